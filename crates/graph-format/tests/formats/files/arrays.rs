//! Refused arrays, and conversions of their values.

use super::*;

/// Makes a `.npy` file with this dictionary and these values.
fn npy(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(dictionary.len() as u16).to_le_bytes());
    bytes.extend_from_slice(dictionary.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Reads an array with this type, shape and values, in the notation of the header.
fn array(descr: &str, shape: &str, data: &[u8]) -> Result<Array, FormatError> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    Array::from_bytes(Path::new("x.npy"), &npy(&text, data))
}

#[test]
fn arrays_that_cannot_be_read_say_why() {
    let cases = [
        (array("'|O'", "(1,)", &[0; 8]), "Python objects"),
        (array("[('a', '<f4')]", "(1,)", &[0; 4]), "structured"),
        (array("'>f4'", "(1,)", &[0; 4]), "big-endian"),
        (array("'<c8'", "(1,)", &[0; 8]), "not supported"),
        (array("'<f4'", "(3,)", &[0; 8]), "takes 12 bytes, found 8"),
        (array("'<f4'", "(1,)", &[0; 8]), "takes 4 bytes, found 8"),
        (array("'<f4'", "(4294967296, 4294967296, 4)", &[0; 8]), "more than 2⁶⁴"),
        (array("'<f8'", "(1000000000000,)", &[0; 8]), "takes 8000000000000 bytes"),
        (array("'|b1'", "(2,)", &[1, 2]), "value 1 of a bool array is 2"),
        (array("'<U1'", "(1,)", &[0xff; 4]), "not Unicode"),
        (array("'<f4'", "(-1,)", &[]), "unreadable .npy header"),
        (Array::from_bytes(Path::new("x.npy"), b"PK\x03\x04"), "not a .npy array"),
        (Array::from_bytes(Path::new("x.npy"), b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "header of 4294967295 bytes"),
        (Array::from_bytes(Path::new("x.npy"), b"\x93NUMPY\x01\x00\x80\x00{"), "cut off"),
    ];
    for (result, expected) in cases {
        let message = result.expect_err(expected).to_string();
        assert!(message.starts_with("x.npy: ") && message.contains(expected), "{message}");
    }
}

#[test]
fn conversions_name_the_value_that_does_not_fit() {
    let of = |values: &[i64]| array("'<i8'", &format!("({},)", values.len()), bytemuck::cast_slice(values)).unwrap();
    let message = |result: Result<(), FormatError>| result.unwrap_err().to_string();
    assert!(message(of(&[0, -3]).into_offsets().map(drop)).contains("value 1 is -3"));
    assert!(message(of(&[0, 1 << 31]).into_ids().map(drop)).contains("value 1 is 2147483648"));
    assert!(message(of(&[0, 2]).into_bools().map(drop)).contains("value 1 is 2"));
    assert!(message(of(&[0]).into_text().map(drop)).contains("values are int64; expected text"));
    assert!(message(of(&[0]).expect_2d().map(drop)).contains("found shape [1]"));
    assert_eq!(&of(&[5, 0]).into_ids().unwrap()[..], &[5, 0]);
    assert_eq!(&of(&[5, -1]).into_f32().unwrap()[..], &[5.0, -1.0]);
    assert_eq!(of(&[1, 0]).into_bools().unwrap(), [true, false]);
    let beyond = array("'<f8'", "()", bytemuck::bytes_of(&1e300f64)).unwrap();
    assert!(message(beyond.into_f32().map(drop)).contains("beyond float32"));
    let text = array("'<U2'", "(2,)", bytemuck::cast_slice(&['a' as u32, 0, 'ü' as u32, 'b' as u32])).unwrap();
    assert_eq!(text.into_text().unwrap(), ["a", "üb"]);
}
