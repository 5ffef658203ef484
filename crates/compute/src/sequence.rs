//! Order in which a recurrent aggregation reads the neighbors of a row.

use girih_random::Key;

/// Overwrites `sequence` with the columns of a row of a pattern. Without `order`, they keep their stored order.
/// Otherwise they are shuffled by the draws of `order` at the counter `(name, 0)`, where `name` is the global id of
/// the row.
///
/// The order is a pure function of key and row: it is not stored, and the backward pass draws it again.
/// `docs/draws.md` fixes it.
pub(crate) fn read(order: Option<Key>, name: u32, columns: impl Iterator<Item = u32>, sequence: &mut Vec<u32>) {
    sequence.clear();
    sequence.extend(columns);
    if let Some(order) = order {
        order.stream(u64::from(name), 0).shuffle(sequence);
    }
}
