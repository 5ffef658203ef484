//! Hand-assembled pickles: refused instructions, and the errors.

use super::*;

fn refusal(bytes: &[u8]) -> String {
    Pickle::parse(bytes).expect_err("this pickle must be refused").to_string()
}

#[test]
fn a_call_of_the_shell_is_refused_by_name() {
    for (payload, name) in [
        (&b"cos\nsystem\n(S'echo owned'\ntR."[..], "os.system"),
        (&b"\x80\x02cposix\nsystem\n(U\x04echotR."[..], "posix.system"),
        (&b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04echo\x85R."[..], "os.system"),
        (&b"\x80\x02c__builtin__\neval\n(U\x011tR."[..], "__builtin__.eval"),
        (&b"\x80\x02cnumpy.core.multiarray\nfromfile\n)R."[..], "numpy.core.multiarray.fromfile"),
    ] {
        let message = refusal(payload);
        assert!(message.contains(name) && message.contains("byte"), "{message}");
    }
}

#[test]
fn allowed_names_cannot_be_called_freely() {
    for payload in [
        &b"\x80\x02c__builtin__\nlist\n(U\x03abctR."[..],
        b"\x80\x02c__builtin__\nobject\n)R.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(c__builtin__\nobject\nK\x00U\x01btR.",
        b"\x80\x02ccopy_reg\n_reconstructor\n(c__builtin__\ndict\nc__builtin__\nobject\nNtR.",
        b"\x80\x02K\x01)R.",
        b"\x80\x02]}b.",
    ] {
        refusal(payload);
    }
}

#[test]
fn instructions_that_import_or_persist_are_unknown() {
    // INST, OBJ, PERSID, BINPERSID, EXT1, NEWOBJ_EX.
    for payload in [&b"(ios\nsystem\n."[..], b"(co\n.", b"P1\n.", b"K\x01Q.", b"\x82\x01.", b"\x80\x04))}\x92."] {
        refusal(payload);
    }
}

#[test]
fn deep_nesting_costs_no_stack() {
    let mut bytes = vec![b']'; 1_000_000];
    bytes.extend(vec![b'a'; 999_999]);
    bytes.push(b'.');
    let pickle = Pickle::parse(&bytes).expect("a list of a list of …");
    assert_eq!(pickle.sequence(pickle.root()).unwrap().len(), 1);
    assert!(pickle.root_array().is_err());
}

#[test]
fn claims_of_huge_lengths_allocate_nothing() {
    for payload in [
        &b"T\xff\xff\xff\xffabc."[..],
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"\x80\x02Nr\xff\xff\xff\xffj\xfe\xff\xff\xff.",
        b"I99999999999999999999\n.",
    ] {
        refusal(payload);
    }
}

#[test]
fn encoding_the_same_text_again_and_again_is_refused() {
    let mut bytes = b"\x80\x02c_codecs\nencode\nq\x000X\x00\x10\x00\x00".to_vec();
    bytes.extend(vec![b'x'; 4096]);
    bytes.extend(b"X\x06\x00\x00\x00latin1\x86q\x010");
    for _ in 0..64 {
        bytes.extend(b"h\x00h\x01R0");
    }
    bytes.extend(b"N.");
    assert!(refusal(&bytes).contains("over and over"));
}

#[test]
fn the_stack_below_a_mark_is_out_of_reach() {
    refusal(b"K\x01(0.");
    refusal(b"K\x01K\x02(\x86.");
}

#[test]
fn protocol_zero_strings_and_numbers() {
    let pickle = Pickle::parse(b"(lp0\nS'a\\x41\\n'\naI-7\naL12L\naI01\na.").unwrap();
    let items = pickle.sequence(pickle.root()).unwrap();
    assert_eq!(items[0].as_bytes(), Some(&b"aA\n"[..]));
    assert_eq!((pickle.int(&items[1]).unwrap(), pickle.int(&items[2]).unwrap()), (-7, 12));
    assert!(matches!(items[3], Value::Bool(true)));
}

#[test]
fn a_numpy_array_of_protocol_two() {
    let array = |dtype: &[u8], order: &[u8], fortran: u8, data: &[u8]| {
        let mut bytes = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02K\x01\x86cnumpy\ndtype\nU".to_vec();
        bytes.push(dtype.len() as u8);
        bytes.extend(
            [dtype, b"K\x00K\x01\x87R(K\x03U\x01", order, b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"].concat(),
        );
        bytes.push(fortran);
        bytes.extend([b"U", &[data.len() as u8][..], data, b"tb."].concat());
        Pickle::parse(&bytes).unwrap().root_array()
    };
    let read = array(b"i4", b"<", 0x89, &[1, 0, 0, 0, 255, 255, 255, 255]).unwrap();
    assert_eq!((read.shape(), read.to_i64().unwrap()), (&[2, 1][..], vec![1, -1]));
    assert!(array(b"f4", b"<", 0x89, &[0; 8]).unwrap().to_i64().is_err(), "floats are no integers");
    assert!(array(b"i4", b">", 0x89, &[0; 8]).unwrap_err().to_string().contains("little-endian"));
    assert!(array(b"i4", b"<", 0x88, &[0; 8]).unwrap_err().to_string().contains("Fortran"));
    assert!(array(b"O8", b"|", 0x89, &[0; 8]).unwrap_err().to_string().contains("O8"));
    assert!(array(b"i4", b"<", 0x89, &[0; 7]).unwrap_err().is_corrupt());
}
