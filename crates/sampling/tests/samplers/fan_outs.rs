//! Texts of fan-outs.

use girih_sampling::{FanOut, Neighbors};

#[test]
fn text_and_hops_are_the_same() {
    let fan_out: FanOut = " 15, 10,-1".parse().unwrap();
    assert_eq!(fan_out.hops(), [Neighbors::Count(15), Neighbors::Count(10), Neighbors::All]);
    assert_eq!(fan_out.to_string(), "15,10,-1");
}

#[test]
fn invalid_fan_outs_are_refused_with_their_place() {
    for (text, told) in [
        ("", "hop 0"),
        ("15,,5", "hop 1"),
        ("15,ten", "\"ten\", hop 1"),
        ("15,-2", "\"-2\", hop 1"),
        ("0", "hop 0 of the fan-out takes 0"),
        ("1,2147483648", "hop 1"),
        ("1,4294967296", "hop 1"),
    ] {
        let error = text.parse::<FanOut>().unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
    assert!(FanOut::new([]).is_err());
}

#[test]
fn layers_are_counted() {
    let fan_out: FanOut = "15,10".parse().unwrap();
    assert!(fan_out.check_layers(2).is_ok());
    let error = fan_out.check_layers(3).unwrap_err().to_string();
    assert!(error.contains("15,10 has 2 hops") && error.contains("3 layers"), "{error}");
}
