//! Secrets: where they come from, and that they are never shown.

use std::fs;

use girih_comm::Secret;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFf";

#[test]
fn a_secret_is_never_shown() {
    let secret = Secret::detect(None, |name| (name == Secret::VARIABLE).then(|| HEX.to_owned())).unwrap();
    assert_eq!(secret.to_hex(), HEX.to_lowercase());
    assert_eq!(format!("{secret:?} {:?}", Secret::default()), "Secret(hidden) Secret(none)");
    let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
    assert_ne!(one.to_hex(), other.to_hex());
}

#[test]
fn an_invalid_secret_is_named_and_not_shown() {
    for text in ["abc", &HEX[1..], &HEX.replace('0', "g"), &format!("{HEX}00"), &"é".repeat(32)] {
        let error = Secret::detect(None, |name| (name == Secret::VARIABLE).then(|| text.to_owned())).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("GIRIH_SECRET is not 64 hexadecimal digits") && !said.contains(text), "{said}");
    }
    assert!(Secret::detect(None, |_| Some(String::new())).unwrap().is_none());
    assert!(Secret::detect(None, |_| None).unwrap().is_none());
}

#[cfg(unix)]
#[test]
fn files_of_secrets_belong_to_their_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, format!("{HEX}\n")).unwrap();
    let with_mode = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Secret::from_file(&path).map_err(|error| error.to_string())
    };
    for mode in [0o644, 0o640, 0o604, 0o610, 0o602] {
        let said = with_mode(mode).unwrap_err();
        assert!(said.contains("secret is open to other users") && said.contains("chmod 600 "), "{said}");
    }
    assert_eq!(with_mode(0o600).unwrap().to_hex(), HEX.to_lowercase());
    assert_eq!(with_mode(0o400).unwrap().to_hex(), HEX.to_lowercase());
    // The flag takes precedence over the variables, and the secret over its file.
    let other = "11".repeat(32);
    let both = |name: &str| Some(if name == Secret::VARIABLE { other.clone() } else { path.display().to_string() });
    assert_eq!(Secret::detect(Some(&path), both).unwrap().to_hex(), HEX.to_lowercase());
    assert_eq!(Secret::detect(None, both).unwrap().to_hex(), other);
    let file_alone = |name: &str| (name == Secret::FILE_VARIABLE).then(|| path.display().to_string());
    assert_eq!(Secret::detect(None, file_alone).unwrap().to_hex(), HEX.to_lowercase());
    with_mode(0o600).unwrap();
    fs::write(&path, "x".repeat(10_000)).unwrap();
    let said = Secret::from_file(&path).unwrap_err().to_string();
    assert!(said.contains("is not 64 hexadecimal digits: make it with `openssl rand -hex 32"), "{said}");
    assert!(Secret::from_file(&folder.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
}
