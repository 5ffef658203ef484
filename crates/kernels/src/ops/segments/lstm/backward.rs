//! Backward pass of the LSTM: runs each wave forward again, keeps its activations, and accumulates gradients.

use cudarc::driver::PushKernelArg;
use girih_compute::scratch::GATES;
use girih_compute::{ComputeError, DenseOps, Dtype, Shape, Transpose};
use girih_random::Key;

use super::waves::{by_degree, waves};
use super::{Lstm, Readers, Step, dense_rows};
use crate::abi::WARP_COLUMNS;
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::matrix::{CudaMatrix, CudaSparse};
use crate::ops::gemm::Dense;
use crate::ops::segments::row_blocks;

/// Gradients accumulated wave by wave, in `f32`.
struct Sums {
    inputs: CudaMatrix,
    weight: CudaMatrix,
    /// Place at which each entry was read, counted over all waves.
    places: Buffer<u64>,
    /// Entries of the waves before.
    n_read: usize,
}

/// Activations of a wave that the backward pass keeps, by place.
struct Kept {
    gates: Buffer<f32>,
    memories: Buffer<f32>,
    /// States before the step.
    states: Buffer<f32>,
}

impl Lstm<'_> {
    /// Writes the gradients of the inputs and of the weight, from `grad`, that of the last states. `weight` is the shape
    /// of the weight.
    pub(in crate::ops::segments) fn backward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        weight: Shape,
        grad: &CudaMatrix,
        (inputs_grad, weight_grad): (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        let (cuda, inputs, a) = (self.cuda, self.inputs, sequences.0);
        let mut sums = Sums {
            inputs: cuda.zeros(inputs.shape, Dtype::F32)?,
            weight: cuda.zeros(weight, Dtype::F32)?,
            places: cuda.scratch(self.operation, a.forward.nnz)?,
            n_read: 0,
        };
        let indptr = cuda.indptr_of(self.operation, a)?;
        let rows = by_degree(&indptr);
        for rows in waves(&indptr, &rows, GATES.max(inputs.shape.len()) / (4 * self.width)) {
            self.add_gradients(sequences, (&indptr, rows), grad, &mut sums)?;
        }
        cuda.convert(&sums.inputs, inputs_grad)?;
        cuda.convert(&sums.weight, weight_grad)
    }

    /// Adds the gradients of a wave, given those of its final states.
    fn add_gradients(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        rows: (&[u64], &[u32]),
        grad: &CudaMatrix,
        sums: &mut Sums,
    ) -> Result<(), ComputeError> {
        let walk = self.walk(sequences, rows, Some((&mut sums.places, sums.n_read)))?;
        let kept = self.walk_forward(&walk)?;
        self.walk_back(&walk, &kept, grad)?;
        self.add_to_weight(&walk, &kept, sums)?;
        self.add_to_inputs(sequences.0, &walk, &kept, sums)?;
        sums.n_read += walk.n_entries();
        Ok(())
    }

    /// Runs all steps and keeps the activations for the backward pass.
    fn walk_forward(&self, walk: &Readers) -> Result<Kept, ComputeError> {
        let (n_entries, width) = (walk.n_entries(), self.width);
        let mut states = self.room(n_entries, width)?;
        // States before the first step are zero.
        self.cuda.device.stream.memset_zeros(&mut states).map_err(Cuda::failed(self.operation))?;
        let kept = Kept { gates: self.room(n_entries, 4 * width)?, memories: self.room(n_entries, width)?, states };
        for (t, &n) in walk.readers.iter().enumerate() {
            let [gates, memory, states] = self.kept_at(&kept, walk, t);
            if t > 0 {
                // SAFETY: the step has `n` rows of states and of gates, all in `f32` and without overlap.
                unsafe { self.recur(n, states, gates) }?;
            }
            let n_states = walk.readers.get(t + 1).copied().unwrap_or(0);
            let step = Step {
                n,
                sources: self.source(walk, t),
                recurrent: if t > 0 { gates } else { 0 },
                memory_before: self.memory_before(&kept, walk, t),
                memory,
                gates,
                states: if n_states > 0 { self.kept_at(&kept, walk, t + 1)[2] } else { 0 },
                n_states,
            };
            // SAFETY: the walk names rows of the inputs; the step has `n` rows of everything, the one before at least
            // as many, and the next one `n_states`.
            unsafe { self.step(step) }?;
        }
        Ok(kept)
    }

    /// Propagates gradients from the final states to the gates of all steps, in place.
    fn walk_back(&self, walk: &Readers, kept: &Kept, grad: &CudaMatrix) -> Result<(), ComputeError> {
        let (cuda, width) = (self.cuda, self.width);
        let state_grads = self.take_rows(walk, grad)?;
        let mut memory_grads = self.room(walk.n_rows(), width)?;
        cuda.device.stream.memset_zeros(&mut memory_grads).map_err(Cuda::failed(self.operation))?;
        let (state_grads_at, width_number) = (cuda.pointer(Some(&state_grads)), width as u64);
        let kernel = cuda.kernel(self.operation, Source::SEGMENTS, "lstm_step_backward", &[])?;
        for (t, &n) in walk.readers.iter().enumerate().rev() {
            let [gates, memory, _] = self.kept_at(kept, walk, t);
            let (rows, before) = (n as u64, self.memory_before(kept, walk, t));
            let mut launch = cuda.device.stream.launch_builder(&kernel);
            launch.arg(&rows).arg(&width_number).arg(&before).arg(&memory).arg(&gates).arg(&state_grads_at);
            launch.arg(&mut memory_grads);
            // SAFETY: the step has `n` rows of gates and memory, the one before at least as many, and so have
            // gradients.
            unsafe { launch.launch(threads_for(n * width)) }.map_err(Cuda::failed(self.operation))?;
            if t > 0 {
                let shape = Shape::new(n, width);
                let transposes = (Transpose::No, Transpose::Yes);
                let dense = Dense { shape, depth: 4 * width, transposes, alpha: 1.0, beta: 0.0 };
                let (gates, state_grads) = (dense_rows(gates, 4 * width), dense_rows(state_grads_at, width));
                // SAFETY: the step has `n` rows of gates, and so have the gradients of states; they do not overlap.
                unsafe { cuda.dense(self.operation, dense, gates, self.weight, state_grads) }?;
            }
        }
        Ok(())
    }

    /// Gradient of the final state of each row of the walk.
    fn take_rows(&self, walk: &Readers, grad: &CudaMatrix) -> Result<Buffer<f32>, ComputeError> {
        let mut taken = self.room(walk.n_rows(), self.width)?;
        let kernel = self.cuda.kernel(self.operation, Source::SEGMENTS, "take_rows", &[("X", grad.dtype)])?;
        let (n, width) = (walk.n_rows() as u64, self.width as u64);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&grad.data).arg(&walk.rows).arg(&n).arg(&width).arg(&mut taken);
        // SAFETY: the walk's rows are rows of `grad`, which is `width` wide.
        unsafe { launch.launch(threads_for(walk.n_rows() * self.width)) }.map_err(Cuda::failed(self.operation))?;
        Ok(taken)
    }

    /// Adds the gradient of the weight for all steps at once: statesᵀ · gradients of gates.
    fn add_to_weight(&self, walk: &Readers, kept: &Kept, sums: &mut Sums) -> Result<(), ComputeError> {
        let (shape, depth) = (sums.weight.shape, walk.n_entries());
        let dense = Dense { shape, depth, transposes: (Transpose::Yes, Transpose::No), alpha: 1.0, beta: 1.0 };
        let states = dense_rows(self.cuda.pointer(Some(&kept.states)), self.width);
        let gates = dense_rows(self.cuda.pointer(Some(&kept.gates)), 4 * self.width);
        // SAFETY: there are states and gates of all places, in `f32`, and the gradient does not overlap them.
        unsafe { self.cuda.dense(self.operation, dense, states, gates, self.cuda.address(&sums.weight)) }
    }

    /// Adds to each row of the inputs' gradient the gradients of the gates that read it, in the order of the
    /// transpose.
    fn add_to_inputs(&self, a: &CudaSparse, walk: &Readers, kept: &Kept, sums: &mut Sums) -> Result<(), ComputeError> {
        let transpose = self.cuda.transpose_of(self.operation, a)?;
        let positions = self.cuda.pointer(transpose.positions.as_ref());
        let kernel = self.cuda.kernel(self.operation, Source::SEGMENTS, "add_by_source", &[])?;
        let Shape { rows, cols } = sums.inputs.shape;
        let (n_rows, n_cols) = (rows as u64, cols as u64);
        let (first, n) = (sums.n_read as u64, walk.n_entries() as u64);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&transpose.indptr).arg(&positions).arg(&n_rows).arg(&sums.places).arg(&first).arg(&n);
        launch.arg(&kept.gates).arg(&n_cols).arg(&mut sums.inputs.data);
        // SAFETY: a transpose has positions, which are numbers of entries, each with a place; gates have a row for
        // each of the wave's `n` places, as wide as the inputs.
        unsafe { launch.launch(row_blocks(sums.inputs.shape, WARP_COLUMNS)) }
            .map(drop)
            .map_err(Cuda::failed(self.operation))
    }

    /// Addresses of gates, memories and states of a step.
    fn kept_at(&self, kept: &Kept, walk: &Readers, t: usize) -> [u64; 3] {
        let row = walk.offsets[t] * (self.width * size_of::<f32>()) as u64;
        let [gates, memories, states] =
            [&kept.gates, &kept.memories, &kept.states].map(|slice| self.cuda.pointer(Some(slice)));
        [gates + 4 * row, memories + row, states + row]
    }

    /// Address of the memory before a step; zero at the first.
    fn memory_before(&self, kept: &Kept, walk: &Readers, t: usize) -> u64 {
        if t > 0 { self.kept_at(kept, walk, t - 1)[1] } else { 0 }
    }
}
