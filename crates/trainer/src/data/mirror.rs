//! Messages about the transpose of an adjacency whose rows are spread over ranks: its symmetry, the sums of its
//! columns, and rows of its transpose.

use std::ops::Range;

use girih_comm::{CommError, Parcel, Payload};
use girih_compute::Backend;
use girih_graph_format::{Csr, NodeId, WeightSum};

use crate::tape::ranks::{LoopedRows, Ranks};

/// Whether a matrix equals its transpose; each rank passes its own rows. Compares the sum of hashes of all entries
/// above the diagonal with that of the mirrored entries below it. Different matrices have equal sums with a
/// probability of 2⁻¹²⁸.
pub(super) fn is_symmetric<B: Backend>(rows: &LoopedRows, ranks: &Ranks<B>) -> Result<bool, CommError> {
    let mut sums = [0u64; 2];
    for i in 0..rows.csr.n_rows() {
        let r = (rows.first + i) as NodeId;
        for (c, weight) in rows.csr.row_entries(i).filter(|&(c, _)| c != r) {
            // Adding zero turns −0 into +0.
            let pair = u64::from(r.min(c)) << 32 | u64::from(r.max(c));
            let hashes =
                [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f].map(|seed| mixed(pair, (weight + 0.0).to_bits(), seed));
            for (sum, hash) in sums.iter_mut().zip(hashes) {
                *sum = if r < c { sum.wrapping_add(hash) } else { sum.wrapping_sub(hash) };
            }
        }
    }
    let message = [sums[0].to_le_bytes(), sums[1].to_le_bytes()].concat();
    let all: Vec<u64> = ranks.join_numbers("hashes of entries", &message, |_| Some(2))?;
    let total = |i: usize| all.iter().skip(i).step_by(2).copied().fold(0, u64::wrapping_add);
    Ok(total(0) == 0 && total(1) == 0)
}

/// Well-mixed bits of a pair of nodes and a weight (the finalizer of `SplitMix64`: Steele et al., OOPSLA 2014).
fn mixed(pair: u64, weight: u32, seed: u64) -> u64 {
    let finalized = |mut x: u64| {
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    finalized(finalized(pair.wrapping_add(seed)) ^ (u64::from(weight) << 17).wrapping_add(seed))
}

/// Sums of the columns with the ids of this rank's own rows. Peers send their entries of these columns, which are
/// added in the order of rows.
pub(super) fn column_sums<B: Backend>(rows: &LoopedRows, ranks: &Ranks<B>) -> Result<Vec<WeightSum>, CommError> {
    let entries_of = |nodes: Range<usize>| -> Parcel {
        let mut message = Vec::new();
        rows.for_each(&nodes, |_, ids, weights| {
            for (i, id) in ids.iter().enumerate() {
                message.extend([*id, weights.get(i).map_or(1.0f32, |w| *w).to_bits()]);
            }
        });
        bytemuck::cast_slice(&message).into()
    };
    let all = ranks.peers.all_to_all_bytes(ranks.peer_nodes().map(entries_of).collect())?;
    let mut sums = vec![WeightSum::default(); ranks.own().len()];
    for (peer, entries) in all.iter().enumerate() {
        let payload = ranks.payload(peer, entries, "entries of columns");
        let numbers = payload.clone().rest::<u32>()?;
        let (pairs, []) = numbers.as_chunks::<2>() else {
            return Err(payload.malformed(format!("{} numbers", numbers.len())));
        };
        for &[id, weight] in pairs {
            let sum = sums.get_mut(id as usize).ok_or_else(|| payload.malformed(format!("column {id} is not here")))?;
            sum.add(f32::from_bits(weight));
        }
    }
    Ok(sums)
}

/// Rows of the transpose: for each panel of this rank's products, with the columns of its steps. They come from peers
/// that together hold every row once, and each sends its own entries. Messages take twice the bytes of the entries.
pub(super) fn transposed<B: Backend>(own: &LoopedRows, ranks: &Ranks<B>) -> Result<Vec<LoopedRows>, CommError> {
    let (plan, mine) = (ranks.plan(), ranks.mine());
    let to_rank = |rank: usize| -> Parcel {
        let theirs = &plan.ranks[rank];
        let multiplies = || theirs.steps.iter().any(|step| contains(&plan.panels[step.panel], &mine.own));
        let mut message: Vec<u32> = Vec::new();
        if theirs.replica == mine.replica && multiplies() {
            let mut n_before = 0;
            for columns in ranks.product_rows(rank) {
                add_mirrored(own, &columns, n_before, &mut message);
                n_before += columns.len();
            }
        }
        bytemuck::cast_slice(&message).into()
    };
    let messages = (0..plan.ranks.len()).map(to_rank).collect();
    let all = ranks.world().all_to_all_bytes(messages)?;
    let sizes = (plan.n_product_rows(ranks.rank()), plan.n_nodes);
    let csr = collected(&all, sizes, own.csr.values().is_some())?;
    let mut n_before = 0;
    let of_panel = |rows: Range<usize>| {
        n_before += rows.len();
        LoopedRows::new(csr.row_slice(n_before - rows.len()..n_before), rows.start, own.self_loops)
    };
    Ok(ranks.product_rows(ranks.rank()).map(of_panel).collect())
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Appends the entries of some columns, row after row. An entry consists of the column (counted from `first`), the
/// row, and the weight if there are weights.
fn add_mirrored(rows: &LoopedRows, columns: &Range<usize>, first: usize, message: &mut Vec<u32>) {
    for i in 0..rows.csr.n_rows() {
        for e in rows.csr.row_range_within(i, columns) {
            let row = rows.csr.indices()[e] - columns.start as NodeId + first as NodeId;
            message.extend([row, (rows.first + i) as NodeId]);
            message.extend(rows.csr.values().map(|values| values[e].to_bits()));
        }
    }
}

/// Matrix of received entries. Columns ascend in each row, whichever rank sent them.
///
/// # Errors
/// When a message does not hold whole entries, or an entry lies outside the matrix.
fn collected(messages: &[Parcel], (n_rows, n_cols): (usize, usize), weighted: bool) -> Result<Csr, CommError> {
    let entry_words = if weighted { 3 } else { 2 };
    for (rank, message) in messages.iter().enumerate() {
        let mut payload = Payload::new(message, rank, "mirrored entries");
        while !payload.is_empty() {
            let (row, column) = (payload.number::<u32>()?, payload.number::<u32>()?);
            if row as usize >= n_rows || column as usize >= n_cols {
                return Err(payload.malformed(format!("entry {row}, {column} of a matrix of {n_rows} × {n_cols}")));
            }
            payload.bytes(4 * (entry_words - 2))?;
        }
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    let entries = || {
        messages.iter().flat_map(|message| message.chunks_exact(4 * entry_words)).map(|entry| {
            let weight = if weighted { f32::from_bits(word(&entry[8..])) } else { 1.0 };
            (word(&entry[..4]) as usize, word(&entry[4..8]), weight)
        })
    };
    let mut indptr = vec![0u64; n_rows + 1];
    entries().for_each(|(row, ..)| indptr[row + 1] += 1);
    for row in 0..n_rows {
        indptr[row + 1] += indptr[row];
    }
    let (mut next, nnz) = (indptr.clone(), indptr[n_rows] as usize);
    let (mut indices, mut values) = (vec![0; nnz], vec![0.0; if weighted { nnz } else { 0 }]);
    for (row, column, weight) in entries() {
        let place = next[row] as usize;
        next[row] += 1;
        indices[place] = column;
        if let Some(value) = values.get_mut(place) {
            *value = weight;
        }
    }
    Csr::new(n_rows, n_cols, indptr, indices, weighted.then(|| values.into()))
        .map_err(|error| CommError::Operand { operation: "mirrored entries", what: error.to_string() })
}
