//! LSTM over neighbors (Hochreiter and Schmidhuber, 1997), and its backward pass.
//!
//! ```text
//! rows by falling degree     a  b  c  d │ e  f  …       batches of rows that advance in step
//! step 0                     a0 b0 c0 d0                gates = inputs of the named rows + states·W, then the cell
//! step 1                     a1 b1 c1                   finished rows drop off at the end
//! step 2                     a2
//! ```
//! A batch stores its steps one after the other, small enough for a core's cache. The forward pass keeps nothing: the
//! backward pass first walks each batch forward again. It processes the batches in waves. After each wave, the
//! gradients of its gates are added to those of the inputs, one owner per row. No sum thus depends on the number of
//! threads, and memory holds one wave at a time, which is about as large as the inputs.

mod batch;
mod cell;

use std::ops::Range;

use girih_graph_format::Csr;
use girih_random::Key;
use rayon::prelude::*;

use self::batch::{Batch, Network, Walk};
use super::chunks::split_rows;
use super::element::Element;
use super::machine::Machine;
use super::matrix::{CpuMatrix, as_f32, typed};
use super::rows;
use crate::GlobalIds;

/// Maximum number of rows of a batch.
const BATCH_ROWS: usize = 128;
/// Maximum number of gate elements of a batch: 1 MiB, unless a single row has more.
const BATCH_ELEMENTS: usize = 1 << 18;
/// Maximum number of gate elements of a wave, or the number of input elements if that is larger.
const WAVE_ELEMENTS: usize = 1 << 22;
/// Maximum number of elements of all partial gradients of the weight in a wave.
const PARTIAL_ELEMENTS: usize = 1 << 24;
/// Position of a row without entries.
const NOWHERE: u32 = u32::MAX;

/// Pattern of the neighbors, with global ids if it is a submatrix of a larger pattern.
pub(crate) type Pattern<'a> = (&'a Csr, Option<&'a GlobalIds>);

/// Overwrites row `i` of `out` with the last state over the rows `j` of `inputs`, for the entries `(i, j)` of `csr`.
/// If given, `order` is the key of a random reading order. Rows without entries give zeros.
pub(crate) fn forward(
    machine: &Machine,
    (pattern, order): (Pattern<'_>, Option<Key>),
    inputs: &CpuMatrix,
    weight: &CpuMatrix,
    out: &mut CpuMatrix,
) {
    let weight_values = as_f32(weight);
    let width = weight.shape().rows;
    let (network, plan) = (Network { machine, weight: &weight_values, width }, Plan::new(pattern.0, width));
    machine.scratch.with(plan.rows.len() * width, |words| {
        let states: &mut [f32] = bytemuck::cast_slice_mut(words);
        let parts = split_rows(states, width, plan.batches.iter().map(|b| b.rows.len()));
        plan.batches.par_iter().zip(parts.collect::<Vec<_>>()).with_max_len(1).for_each(|(batch, states)| {
            let walk = Walk::new(pattern, order, &plan.rows[batch.rows.clone()]);
            machine.scratch.with(batch.entries * 4 * width, |gates| {
                let gates = bytemuck::cast_slice_mut(gates);
                network.with_steps(&walk, inputs, gates, |steps| steps.last_states(states));
            });
        });
        let positions = plan.positions(pattern.0.n_rows());
        typed!(out = out.storage_mut() => place(states, width, &positions, out));
    });
}

/// Gradients of the operands of an LSTM; each is shaped like its operand and is overwritten.
pub(crate) struct Grads<'a> {
    /// Gradient of the inputs.
    pub(crate) inputs: &'a mut CpuMatrix,
    /// Gradient of the weight.
    pub(crate) weight: &'a mut CpuMatrix,
}

/// Overwrites `grads` with the gradients of `inputs` and `weight`, given `grad`, the gradient of the result.
pub(crate) fn backward(
    machine: &Machine,
    (pattern, order): (Pattern<'_>, Option<Key>),
    (inputs, weight): (&CpuMatrix, &CpuMatrix),
    grad: &CpuMatrix,
    grads: Grads<'_>,
) {
    let Grads { inputs: inputs_grad, weight: weight_grad } = grads;
    let weight_values = as_f32(weight);
    let width = weight.shape().rows;
    let (network, plan) = (Network { machine, weight: &weight_values, width }, Plan::new(pattern.0, width));
    let mut weight_sums = vec![0.0; weight.shape().len()];
    typed!(out = inputs_grad.storage_mut() => out.fill(Element::from_f32(0.0)));
    for wave in plan.waves(width, inputs.shape().len()) {
        let batches = &plan.batches[wave];
        let walks: Vec<Walk> =
            batches.par_iter().map(|batch| Walk::new(pattern, order, &plan.rows[batch.rows.clone()])).collect();
        let n_entries: usize = batches.iter().map(|batch| batch.entries).sum();
        machine.scratch.with(n_entries * 4 * width, |gates| {
            let gates: &mut [f32] = bytemuck::cast_slice_mut(gates);
            network.walk_back(&walks, inputs, grad, gates, &mut weight_sums);
            let sources: Vec<u32> = walks.iter().flat_map(|walk| walk.sources()).copied().collect();
            typed!(out = inputs_grad.storage_mut() => rows::scatter_add(gates, 4 * width, &sources, out));
        });
    }
    weight_grad.write_all(&weight_sums);
}

impl Network<'_> {
    /// Fills `gates` with the gradients of the gates of all walks, one walk after the other. Adds their contribution
    /// to the weight's gradient to `weight_sums`.
    fn walk_back(
        &self,
        walks: &[Walk],
        inputs: &CpuMatrix,
        grad: &CpuMatrix,
        gates: &mut [f32],
        weight_sums: &mut [f32],
    ) {
        let n_weights = weight_sums.len();
        self.machine.scratch.with(walks.len() * n_weights, |words| {
            let partials: &mut [f32] = bytemuck::cast_slice_mut(words);
            partials.fill(0.0);
            let n_entries = walks.iter().map(|walk| walk.sources().len());
            let gates: Vec<_> = split_rows(gates, 4 * self.width, n_entries).collect();
            let tasks = walks.par_iter().zip(gates).zip(partials.par_chunks_exact_mut(n_weights));
            tasks.with_max_len(1).for_each(|((walk, gates), partial)| {
                self.with_steps(walk, inputs, gates, |steps| steps.walk_back(grad, partial));
            });
            for partial in partials.chunks_exact(n_weights) {
                weight_sums.iter_mut().zip(partial).for_each(|(sum, part)| *sum += part);
            }
        });
    }
}

/// Copies row `positions[i]` of `states` to row `i` of `out`, or zeros for [`NOWHERE`].
fn place<E: Element>(states: &[f32], width: usize, positions: &[u32], out: &mut [E]) {
    out.par_chunks_exact_mut(width).zip(positions).with_min_len(64).for_each(|(out, &position)| match position {
        NOWHERE => out.fill(E::from_f32(0.0)),
        _ => {
            let state = &states[position as usize * width..][..width];
            out.iter_mut().zip(state).for_each(|(out, &value)| *out = E::from_f32(value));
        }
    });
}

/// Non-empty rows by falling degree, divided into batches. The plan depends on the pattern and the width alone.
struct Plan {
    rows: Vec<u32>,
    batches: Vec<Batch>,
}

impl Plan {
    /// Plan for the rows of `csr`, with states of `width` columns.
    fn new(csr: &Csr, width: usize) -> Self {
        let mut rows: Vec<u32> = (0..csr.n_rows() as u32).filter(|&row| csr.degree(row as usize) > 0).collect();
        rows.par_sort_by_key(|&row| std::cmp::Reverse(csr.degree(row as usize)));
        let entries_max = BATCH_ELEMENTS / (4 * width);
        let (mut batches, mut open) = (Vec::new(), Batch::default());
        for (position, &row) in rows.iter().enumerate() {
            let degree = csr.degree(row as usize);
            if !open.rows.is_empty() && (open.rows.len() == BATCH_ROWS || open.entries + degree > entries_max) {
                batches.push(std::mem::replace(&mut open, Batch { rows: position..position, entries: 0 }));
            }
            open = Batch { rows: open.rows.start..position + 1, entries: open.entries + degree };
        }
        batches.extend(Some(open).filter(|batch| !batch.rows.is_empty()));
        Self { rows, batches }
    }

    /// Position of each of `n_rows` rows in the plan, or [`NOWHERE`].
    fn positions(&self, n_rows: usize) -> Vec<u32> {
        let mut positions = vec![NOWHERE; n_rows];
        self.rows.iter().zip(0..).for_each(|(&row, position)| positions[row as usize] = position);
        positions
    }

    /// Waves: consecutive batches whose gates and partial gradients fit into memory together.
    fn waves(&self, width: usize, n_inputs: usize) -> Vec<Range<usize>> {
        let entries_max = WAVE_ELEMENTS.max(n_inputs) / (4 * width);
        let batches_max = (PARTIAL_ELEMENTS / (4 * width * width)).max(1);
        let (mut waves, mut start, mut entries) = (Vec::new(), 0, 0);
        for (at, batch) in self.batches.iter().enumerate() {
            if at > start && (at - start == batches_max || entries + batch.entries > entries_max) {
                waves.push(start..at);
                (start, entries) = (at, 0);
            }
            entries += batch.entries;
        }
        waves.extend(Some(start..self.batches.len()).filter(|wave| !wave.is_empty()));
        waves
    }
}
