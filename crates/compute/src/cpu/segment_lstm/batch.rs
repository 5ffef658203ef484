//! Batch of rows that advance through their sequences in step.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use girih_random::Key;

use super::Pattern;
use super::cell::{Cell, CellBackward};
use crate::cpu::element::Element;
use crate::cpu::machine::Machine;
use crate::cpu::matrix::{CpuMatrix, typed};
use crate::{GlobalIds, sequence};

/// Range of rows in a [`Plan`](super::Plan), and their total number of entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) rows: Range<usize>,
    pub(super) entries: usize,
}

/// Inputs that the rows of a batch read in each step. Degrees fall, so the rows of a step are the first ones.
pub(super) struct Walk<'a> {
    rows: &'a [u32],
    /// Offsets of the steps in the entries of the batch (steps + 1).
    starts: Vec<usize>,
    /// Input row of every entry, step after step.
    sources: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// Creates the walk of `rows` of a pattern. The rows are non-empty and come by falling degree; `names` holds
    /// global ids.
    pub(super) fn new((csr, names): Pattern<'_>, order: Option<Key>, rows: &'a [u32]) -> Self {
        let n_steps = rows.first().map_or(0, |&row| csr.degree(row as usize));
        let (mut starts, mut n_active) = (vec![0], rows.len());
        for step in 0..n_steps {
            while csr.degree(rows[n_active - 1] as usize) <= step {
                n_active -= 1;
            }
            starts.push(starts[step] + n_active);
        }
        let (mut sources, mut sequence) = (vec![0; starts[n_steps]], Vec::new());
        for (position, &row) in rows.iter().enumerate() {
            sequence::read(order, GlobalIds::row(names, row), csr.row(row as usize).iter().copied(), &mut sequence);
            sequence.iter().zip(&starts).for_each(|(&source, start)| sources[start + position] = source);
        }
        Self { rows, starts, sources }
    }

    /// Input row of every entry, step after step.
    pub(super) fn sources(&self) -> &[u32] {
        &self.sources
    }

    fn n_steps(&self) -> usize {
        self.starts.len() - 1
    }

    /// Range of the entries of a step.
    fn step(&self, step: usize) -> Range<usize> {
        self.starts[step]..self.starts[step + 1]
    }

    /// Range of the states after a step. Before these ranges, every row has an initial state.
    fn after(&self, step: usize) -> Range<usize> {
        let Range { start, end } = self.step(step);
        start + self.rows.len()..end + self.rows.len()
    }

    /// Range of the states of a step's rows before the step.
    fn before(&self, step: usize) -> Range<usize> {
        let start = if step == 0 { 0 } else { self.after(step - 1).start };
        start..start + self.step(step).len()
    }
}

/// Weight of the cell, and the machine that computes it.
#[derive(Clone, Copy)]
pub(super) struct Network<'a> {
    pub(super) machine: &'a Machine,
    /// Matrix from states to gates (`width × 4·width`).
    pub(super) weight: &'a [f32],
    /// Number of columns of a state.
    pub(super) width: usize,
}

/// Batch after its forward walk, with the values of every step.
pub(super) struct Steps<'a> {
    network: Network<'a>,
    walk: &'a Walk<'a>,
    /// Four gates of each entry: input, forget, cell, output.
    gates: &'a mut [f32],
    /// Cell memory, before the first step and after each.
    memory: &'a mut [f32],
    /// States, before the first step and after each.
    states: &'a mut [f32],
}

impl Network<'_> {
    /// Walks forward, with `gates` as memory for the gates, and passes the steps to `work`.
    pub(super) fn with_steps(
        &self,
        walk: &Walk<'_>,
        inputs: &CpuMatrix,
        gates: &mut [f32],
        work: impl FnOnce(&mut Steps<'_>),
    ) {
        let n_states = (walk.rows.len() + walk.sources.len()) * self.width;
        self.machine.scratch.with(2 * n_states, |words| {
            let (memory, states) = bytemuck::cast_slice_mut(words).split_at_mut(n_states);
            let n_first = walk.rows.len() * self.width;
            memory[..n_first].fill(0.0);
            states[..n_first].fill(0.0);
            typed!(inputs = inputs.storage() => gather(inputs, 4 * self.width, &walk.sources, gates));
            let mut steps = Steps { network: *self, walk, gates, memory, states };
            (0..walk.n_steps()).for_each(|step| steps.forward(step));
            work(&mut steps);
        });
    }
}

impl Steps<'_> {
    /// Computes one step: `gates += states·W`, then the cell.
    fn forward(&mut self, step: usize) {
        let (width, before, after) = (self.network.width, self.walk.before(step), self.walk.after(step));
        let gates = rows_mut(self.gates, 4 * width, self.walk.step(step));
        if step > 0 {
            let states = view(rows(self.states, width, before.clone()), width);
            let weight = view(self.network.weight, 4 * width);
            matmul(view_mut(gates, 4 * width), Accum::Add, states, weight, 1.0, Par::Seq);
        }
        let (earlier, later) = self.memory.split_at_mut(after.start * width);
        self.network.machine.isa.run(Cell {
            width,
            gates,
            before: rows(earlier, width, before),
            memory: &mut later[..after.len() * width],
            states: rows_mut(self.states, width, after),
        });
    }

    /// Copies the state of each row after its last step to `out`.
    pub(super) fn last_states(&self, out: &mut [f32]) {
        let (width, walk) = (self.network.width, self.walk);
        for step in 0..walk.n_steps() {
            let after = walk.after(step);
            // The next step overwrites the rows that continue.
            out[..after.len() * width].copy_from_slice(rows(self.states, width, after));
        }
    }

    /// Walks back from `grad`, the gradient of the result, row for row. The gradients of the gates replace the gates,
    /// and that of the weight is added to `weight_grad`.
    pub(super) fn walk_back(&mut self, grad: &CpuMatrix, weight_grad: &mut [f32]) {
        let (width, walk) = (self.network.width, self.walk);
        let n = walk.rows.len() * width;
        self.network.machine.scratch.with(2 * n, |words| {
            let (states_grad, memory_grad) = bytemuck::cast_slice_mut(words).split_at_mut(n);
            typed!(grad = grad.storage() => gather(grad, width, walk.rows, states_grad));
            memory_grad.fill(0.0);
            for step in (0..walk.n_steps()).rev() {
                let n = walk.step(step).len() * width;
                self.backward(step, &mut states_grad[..n], &mut memory_grad[..n], weight_grad);
            }
        });
    }

    /// Propagates the gradients of states and memory back through a step.
    fn backward(&mut self, step: usize, states_grad: &mut [f32], memory_grad: &mut [f32], weight_grad: &mut [f32]) {
        let (width, before) = (self.network.width, self.walk.before(step));
        let gates = rows_mut(self.gates, 4 * width, self.walk.step(step));
        self.network.machine.isa.run(CellBackward {
            width,
            before: rows(self.memory, width, before.clone()),
            memory: rows(self.memory, width, self.walk.after(step)),
            states_grad,
            memory_grad,
            gates,
        });
        if step > 0 {
            let gates = view(gates, 4 * width);
            let states = view(rows(self.states, width, before), width);
            matmul(view_mut(weight_grad, 4 * width), Accum::Add, states.transpose(), gates, 1.0, Par::Seq);
            let weight = view(self.network.weight, 4 * width).transpose();
            matmul(view_mut(states_grad, width), Accum::Replace, gates, weight, 1.0, Par::Seq);
        }
    }
}

fn rows(values: &[f32], width: usize, rows: Range<usize>) -> &[f32] {
    &values[rows.start * width..rows.end * width]
}

fn rows_mut(values: &mut [f32], width: usize, rows: Range<usize>) -> &mut [f32] {
    &mut values[rows.start * width..rows.end * width]
}

fn view(values: &[f32], width: usize) -> MatRef<'_, f32> {
    MatRef::from_row_major_slice(values, values.len() / width, width)
}

fn view_mut(values: &mut [f32], width: usize) -> MatMut<'_, f32> {
    let n_rows = values.len() / width;
    MatMut::from_row_major_slice_mut(values, n_rows, width)
}

/// Gathers rows: row `i` of `out` becomes row `ids[i]` of `x`.
fn gather<X: Element>(x: &[X], width: usize, ids: &[u32], out: &mut [f32]) {
    for (out, &id) in out.chunks_exact_mut(width).zip(ids) {
        let row = &x[id as usize * width..][..width];
        out.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_f32());
    }
}
