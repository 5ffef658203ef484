//! Laws of reading messages of other ranks.

use girih_comm::{CommError, Payload};
use proptest::prelude::*;

fn payload(bytes: &[u8]) -> Payload<'_> {
    Payload::new(bytes, 3, "a test")
}

fn is_named<T>(outcome: &Result<T, CommError>) -> bool {
    matches!(outcome, Err(CommError::Malformed { rank: 3, operation: "a test", .. }))
}

#[test]
fn numbers_are_read_in_order_and_to_the_end() {
    let bytes = [&7u64.to_le_bytes()[..], &2.5f32.to_le_bytes(), &9u32.to_le_bytes(), &8u32.to_le_bytes()].concat();
    let mut all = payload(&bytes);
    assert_eq!(all.index(8), Ok(7));
    assert_eq!(all.number(), Ok(2.5f32));
    assert!(is_named(&all.end()));
    assert_eq!(all.clone().exactly(2), Ok(vec![9u32, 8]));
    assert_eq!(all.clone().ids(&(8..10)), Ok(vec![9, 8]));
    assert!(is_named(&all.clone().ids(&(0..9))));
    assert_eq!(all.rest::<u32>(), Ok(vec![9, 8]));
}

#[test]
fn errors_name_the_rank_the_operation_and_the_fault() {
    let message = payload(&[1, 2]).exactly::<u32>(1).unwrap_err().to_string();
    assert!(message.starts_with("rank 3 sent a malformed message (a test): 2 bytes are left where 4"), "{message}");
}

proptest! {
    /// Even the largest counts allocate no memory and do not panic.
    #[test]
    fn reads_of_any_bytes_are_values_or_errors(bytes: Vec<u8>, n: usize) {
        let len = bytes.len();
        prop_assert_eq!(is_named(&payload(&bytes).exactly::<u32>(n)), n.checked_mul(4) != Some(len));
        prop_assert_eq!(is_named(&payload(&bytes).numbers::<f64>(n).map(drop)), n > len / 8);
        prop_assert_eq!(is_named(&payload(&bytes).rest::<u64>()), len % 8 != 0);
        prop_assert_eq!(is_named(&payload(&bytes).bytes(n)), n > len);
        let index = payload(&bytes).index(n);
        prop_assert!(is_named(&index) || index.is_ok_and(|index| index < n));
    }
}
