//! `kernels/segments.cu`: aggregations other than sums.
//!
//! An LSTM reads all sequences of a wave in step. Rows are sorted by falling degree. So the rows that still read at a
//! step come first, and their inputs are contiguous:
//!
//! ```text
//! rows by falling degree     a  b  c  d
//! step 0                     a0 b0 c0 d0      places 0..4
//! step 1                     a1 b1 c1         places 4..7
//! step 2                     a2               place  7
//! ```
//! A step is a dense product of the states with the weight, by cuBLAS, and a pass over gates. The backward pass runs
//! each wave forward again and keeps its gates, so that a wave bounds the memory.

use std::cmp::Reverse;

use cudarc::driver::{CudaSlice, DeviceRepr, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype, Shape, Transpose, checks};
use girih_random::Key;

use super::gemm::{Address, Dense};
use super::passes::NULL;
use crate::backend::Cuda;
use crate::compile::Source;
use crate::device::{threads_for, warps_for};
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse};

/// Elements of the gates of a wave: 512 MiB, unless the inputs are larger or a single row has more.
const WAVE_ELEMENTS: usize = 1 << 27;

impl Cuda {
    /// [`Backend::segment_max`](girih_compute::Backend::segment_max).
    pub(crate) fn segment_max(
        &self,
        a: &CudaSparse,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
        winners: Option<&mut CudaIds>,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_max";
        let n_winners = winners.as_deref().map(|winners| winners.range.len);
        checks::segment_max(OPERATION, self.sparse_shape(a), x.shape, out.shape, n_winners)?;
        if out.shape.is_empty() {
            return Ok(());
        }
        let kernel = self.kernel(OPERATION, Source::SEGMENTS, OPERATION, &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (out.shape.rows as u64, out.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&a.forward.indptr).arg(&a.forward.indices).arg(&rows).arg(&x.data).arg(&cols).arg(&mut out.data);
        match winners {
            Some(winners) => launch.arg(winners.overwrite(x.shape.rows as u64)),
            None => launch.arg(&NULL),
        };
        // SAFETY: indices of a `Csr` are rows of `x`; `x` and `out` have `cols` columns and the types that the kernel
        // was compiled for, and there is a winner for each element of `out`.
        unsafe { launch.launch(row_blocks(out.shape, 32)) }.map_err(Self::failed(OPERATION))?;
        Ok(())
    }

    /// [`Backend::segment_max_backward`](girih_compute::Backend::segment_max_backward).
    pub(crate) fn segment_max_backward(
        &self,
        a: &CudaSparse,
        winners: &CudaIds,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_max_backward";
        checks::segment_max(OPERATION, self.sparse_shape(a), x_grad.shape, grad.shape, Some(winners.range.len))?;
        if x_grad.shape.is_empty() {
            return Ok(());
        }
        let csr = self.direction(OPERATION, a, Transpose::Yes, false)?.csr;
        let types = [("X", grad.dtype), ("Y", x_grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::SEGMENTS, OPERATION, &types)?;
        let (rows, cols) = (x_grad.shape.rows as u64, x_grad.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&csr.indptr).arg(&csr.indices).arg(&rows).arg(&winners.ids).arg(&grad.data).arg(&cols);
        launch.arg(&mut x_grad.data);
        // SAFETY: indices of the transpose are rows of `grad`; `grad` and `x_grad` have `cols` columns and the types
        // that the kernel was compiled for, and there is a winner for each element of `grad`.
        unsafe { launch.launch(row_blocks(x_grad.shape, 32)) }.map_err(Self::failed(OPERATION))?;
        Ok(())
    }

    /// [`Backend::segment_lstm`](girih_compute::Backend::segment_lstm).
    pub(crate) fn segment_lstm(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        inputs: &CudaMatrix,
        weight: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_lstm";
        let (a, width) = (sequences.0, weight.shape.rows);
        checks::segment_lstm(OPERATION, self.sparse_shape(a), inputs.shape, weight.shape, out.shape)?;
        let weight = self.as_f32(weight)?;
        let lstm = Lstm { cuda: self, operation: OPERATION, inputs, weight: self.address(&weight), width };
        self.set_zero(out)?;
        // A wave holds the gates of one step, whatever it reads.
        let rows_max = (WAVE_ELEMENTS.max(inputs.shape.len()) / (4 * width)).max(1);
        let indptr = self.indptr_of(OPERATION, a)?;
        let rows = by_degree(&indptr);
        for rows in rows.chunks(rows_max) {
            let walk = lstm.walk(sequences, (&indptr, rows), None)?;
            let states = lstm.last_states(&walk)?;
            lstm.place(&states, &walk, out)?;
        }
        Ok(())
    }

    /// [`Backend::segment_lstm_backward`](girih_compute::Backend::segment_lstm_backward).
    pub(crate) fn segment_lstm_backward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        (inputs, weight): (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        (inputs_grad, weight_grad): (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_lstm_backward";
        let (a, width) = (sequences.0, weight.shape.rows);
        let (operands, grads) = ((inputs.shape, weight.shape), (inputs_grad.shape, weight_grad.shape));
        checks::segment_lstm_backward(self.sparse_shape(a), operands, grad.shape, grads)?;
        let weight = self.as_f32(weight)?;
        let lstm = Lstm { cuda: self, operation: OPERATION, inputs, weight: self.address(&weight), width };
        let mut sums = Sums {
            inputs: self.zeros(inputs.shape, Dtype::F32)?,
            weight: self.zeros(weight.shape, Dtype::F32)?,
            places: self.scratch(OPERATION, self.nnz(a))?,
            n_read: 0,
        };
        let indptr = self.indptr_of(OPERATION, a)?;
        let rows = by_degree(&indptr);
        for rows in waves(&indptr, &rows, WAVE_ELEMENTS.max(inputs.shape.len()) / (4 * width)) {
            lstm.add_gradients(sequences, (&indptr, rows), grad, &mut sums)?;
        }
        self.convert(&sums.inputs, inputs_grad)?;
        self.convert(&sums.weight, weight_grad)
    }
}

/// Address of contiguous rows of `cols` floats.
fn dense_rows(at: u64, cols: usize) -> Address {
    Address { at, dtype: Dtype::F32, pitch: cols }
}

/// Launch with a warp for each row and each `at_once` of its columns.
fn row_blocks(shape: Shape, at_once: usize) -> LaunchConfig {
    warps_for(shape.rows * shape.cols.div_ceil(at_once))
}

/// Number of entries of a row.
fn degree(indptr: &[u64], row: u32) -> usize {
    (indptr[row as usize + 1] - indptr[row as usize]) as usize
}

/// Rows with entries, by falling degree.
fn by_degree(indptr: &[u64]) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..indptr.len() as u32 - 1).filter(|&row| degree(indptr, row) > 0).collect();
    rows.sort_by_key(|&row| Reverse(degree(indptr, row)));
    rows
}

/// Cuts rows into waves of at most `entries_max` entries, or of one row.
fn waves<'a>(indptr: &[u64], rows: &'a [u32], entries_max: usize) -> Vec<&'a [u32]> {
    let (mut waves, mut start, mut entries) = (Vec::new(), 0, 0);
    for (at, &row) in rows.iter().enumerate() {
        let degree = degree(indptr, row);
        if at > start && entries + degree > entries_max {
            waves.push(&rows[start..at]);
            (start, entries) = (at, 0);
        }
        entries += degree;
    }
    waves.extend(Some(&rows[start..]).filter(|wave| !wave.is_empty()));
    waves
}

/// Number of rows that still read at each step; `rows` are sorted by falling degree.
fn readers(indptr: &[u64], rows: &[u32]) -> Vec<usize> {
    let mut n = rows.len();
    let degree = |row: u32| degree(indptr, row);
    let n_steps = rows.first().map_or(0, |&row| degree(row));
    let at_step = |step| {
        while degree(rows[n - 1]) <= step {
            n -= 1;
        }
        n
    };
    (0..n_steps).map(at_step).collect()
}

/// Offset of each step, with the end of the last.
fn offsets(readers: &[usize]) -> Vec<u64> {
    let mut end = 0;
    let ends = readers.iter().map(|&n| {
        end += n as u64;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Order of a sequence: `Order` of `kernels/segments.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Order {
    key: [u32; 2],
    first_name: u32,
    drawn: u32,
}

// SAFETY: plain 32-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Order {}

impl Order {
    fn of((a, key): (&CudaSparse, Option<Key>)) -> Self {
        let first_name = a.names.as_ref().map_or(0, |names| names.first_row);
        Self { key: key.map_or([0; 2], Key::words), first_name, drawn: u32::from(key.is_some()) }
    }
}

/// Sequences of a wave, laid out step by step.
struct Walk {
    /// Number of rows that read at each step.
    readers: Vec<usize>,
    /// Offset of each step, with the end of the last.
    offsets: Vec<u64>,
    /// Rows on the device, by falling degree.
    rows: CudaSlice<u32>,
    /// Input row of each place.
    sources: CudaSlice<u32>,
}

impl Walk {
    fn n_rows(&self) -> usize {
        self.readers[0]
    }

    fn n_entries(&self) -> usize {
        *self.offsets.last().expect("at least where the first step begins") as usize
    }
}

/// Gradients accumulated wave by wave, in `f32`.
struct Sums {
    inputs: CudaMatrix,
    weight: CudaMatrix,
    /// Place at which each entry was read, counted over all waves.
    places: CudaSlice<u64>,
    /// Entries of the waves before.
    n_read: usize,
}

/// Activations of a wave that the backward pass keeps, by place.
struct Kept {
    gates: CudaSlice<f32>,
    memories: CudaSlice<f32>,
    /// States before the step.
    states: CudaSlice<f32>,
}

/// Addresses that a step reads and writes; zero for absent ones.
#[derive(Clone, Copy, Debug)]
struct Step {
    n: usize,
    sources: u64,
    recurrent: u64,
    memory_before: u64,
    memory: u64,
    gates: u64,
    states: u64,
    n_states: usize,
}

/// Operation and its operands.
struct Lstm<'a> {
    cuda: &'a Cuda,
    operation: &'static str,
    inputs: &'a CudaMatrix,
    /// Weight in `f32`, `width` × 4·`width`.
    weight: Address,
    /// Columns of a state.
    width: usize,
}

impl Lstm<'_> {
    /// Allocates `n` rows of `cols` floats.
    fn room(&self, n: usize, cols: usize) -> Result<CudaSlice<f32>, ComputeError> {
        checks::allocation(Shape::new(n, cols), size_of::<f32>())?;
        self.cuda.scratch(self.operation, n * cols)
    }

    /// Draws the sequences of `rows`, which are sorted by falling degree. `places`, if given, is a list and a first
    /// number; the list gets the place of each entry, counted from that number.
    fn walk(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        (indptr, rows): (&[u64], &[u32]),
        places: Option<(&mut CudaSlice<u64>, usize)>,
    ) -> Result<Walk, ComputeError> {
        let (cuda, a, by) = (self.cuda, sequences.0, Order::of(sequences));
        let failed = Cuda::failed(self.operation);
        let readers = readers(indptr, rows);
        let offsets = offsets(&readers);
        let n_entries = offsets[readers.len()] as usize;
        let on_device = cuda.upload_list(self.operation, rows)?;
        let starts = cuda.upload_list(self.operation, &offsets)?;
        let mut sources = cuda.scratch::<u32>(self.operation, n_entries)?;
        let mut order = cuda.scratch::<u32>(self.operation, if by.drawn == 1 { cuda.nnz(a) } else { 1 })?;
        let kernel = cuda.kernel(self.operation, Source::SEGMENTS, "lay_out", &[])?;
        let n = rows.len() as u64;
        let first = places.as_ref().map_or(0, |(_, first)| *first as u64);
        let mut launch = cuda.device.stream.launch_builder(&kernel);
        launch.arg(&a.forward.indptr).arg(&a.forward.indices).arg(&on_device).arg(&n).arg(&starts).arg(&by);
        launch.arg(&mut order).arg(&mut sources);
        match places {
            Some((places, _)) => launch.arg(places),
            None => launch.arg(&NULL),
        };
        launch.arg(&first);
        // SAFETY: `rows` are rows of the pattern by falling degree, so that the entries of each step fit between its
        // offset and the next; order, if one is drawn, and places have a number for each entry.
        unsafe { launch.launch(threads_for(rows.len())) }.map_err(failed)?;
        Ok(Walk { readers, offsets, rows: on_device, sources })
    }

    /// Final states, in the order of the walk's rows.
    fn last_states(&self, walk: &Walk) -> Result<CudaSlice<f32>, ComputeError> {
        let (n, width) = (walk.n_rows(), self.width);
        let (states, memory) = (self.room(n, width)?, self.room(n, width)?);
        let recurrent = self.room(n, 4 * width)?;
        let [states_at, memory_at, recurrent_at] =
            [&states, &memory, &recurrent].map(|slice| self.cuda.pointer(Some(slice)));
        for (t, &n) in walk.readers.iter().enumerate() {
            if t > 0 {
                // SAFETY: states have at least `n` rows of `width` and gates of four times as many, all in `f32` and
                // without overlap.
                unsafe { self.recur(n, states_at, recurrent_at) }?;
            }
            let later = |address: u64| if t > 0 { address } else { 0 };
            let step = Step {
                n,
                sources: self.source(walk, t),
                recurrent: later(recurrent_at),
                memory_before: later(memory_at),
                memory: memory_at,
                gates: 0,
                states: states_at,
                n_states: n,
            };
            // SAFETY: the walk names rows of the inputs, and the memory that the step reads and writes has at least
            // `n` rows.
            unsafe { self.step(step) }?;
        }
        Ok(states)
    }

    /// Copies row `p` of `states` to row `rows[p]` of `out`.
    fn place(&self, states: &CudaSlice<f32>, walk: &Walk, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        let kernel = self.cuda.kernel(self.operation, Source::SEGMENTS, "place_states", &[("Y", out.dtype)])?;
        let (n, width) = (walk.n_rows() as u64, self.width as u64);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(states).arg(&walk.rows).arg(&n).arg(&width).arg(&mut out.data);
        // SAFETY: there is a state for each row of the walk, and these are different rows of `out`.
        unsafe { launch.launch(threads_for(walk.n_rows() * self.width)) }.map_err(Cuda::failed(self.operation))?;
        Ok(())
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
    fn walk_forward(&self, walk: &Walk) -> Result<Kept, ComputeError> {
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
    fn walk_back(&self, walk: &Walk, kept: &Kept, grad: &CudaMatrix) -> Result<(), ComputeError> {
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
    fn take_rows(&self, walk: &Walk, grad: &CudaMatrix) -> Result<CudaSlice<f32>, ComputeError> {
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
    fn add_to_weight(&self, walk: &Walk, kept: &Kept, sums: &mut Sums) -> Result<(), ComputeError> {
        let (shape, depth) = (sums.weight.shape, walk.n_entries());
        let dense = Dense { shape, depth, transposes: (Transpose::Yes, Transpose::No), alpha: 1.0, beta: 1.0 };
        let states = dense_rows(self.cuda.pointer(Some(&kept.states)), self.width);
        let gates = dense_rows(self.cuda.pointer(Some(&kept.gates)), 4 * self.width);
        // SAFETY: there are states and gates of all places, in `f32`, and the gradient does not overlap them.
        unsafe { self.cuda.dense(self.operation, dense, states, gates, self.cuda.address(&sums.weight)) }
    }

    /// Adds to each row of the inputs' gradient the gradients of the gates that read it, in the order of the
    /// transpose.
    fn add_to_inputs(&self, a: &CudaSparse, walk: &Walk, kept: &Kept, sums: &mut Sums) -> Result<(), ComputeError> {
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
        unsafe { launch.launch(row_blocks(sums.inputs.shape, 128)) }.map_err(Cuda::failed(self.operation))?;
        Ok(())
    }

    /// Recurrent contribution of the states to the gates: `n` rows.
    ///
    /// # Safety
    /// There are `n` rows of states and of gates at the addresses, in `f32` and without overlap.
    unsafe fn recur(&self, n: usize, states: u64, gates: u64) -> Result<(), ComputeError> {
        let (shape, transposes) = (Shape::new(n, 4 * self.width), (Transpose::No, Transpose::No));
        let dense = Dense { shape, depth: self.width, transposes, alpha: 1.0, beta: 0.0 };
        let (states, gates) = (dense_rows(states, self.width), dense_rows(gates, 4 * self.width));
        // SAFETY: as the caller promises; the weight is `width` × 4·`width`.
        unsafe { self.cuda.dense(self.operation, dense, states, self.weight, gates) }
    }

    /// Pass over the gates of a step.
    ///
    /// # Safety
    /// The sources are rows of the inputs, and at each address that is not zero are `n` rows, or `n_states`.
    unsafe fn step(&self, step: Step) -> Result<(), ComputeError> {
        let types = [("X", self.inputs.dtype)];
        let kernel = self.cuda.kernel(self.operation, Source::SEGMENTS, "lstm_step", &types)?;
        let (n, width, n_states) = (step.n as u64, self.width as u64, step.n_states as u64);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&self.inputs.data).arg(&step.sources).arg(&n).arg(&width).arg(&step.recurrent);
        launch.arg(&step.memory_before).arg(&step.memory).arg(&step.gates).arg(&step.states).arg(&n_states);
        // SAFETY: as the caller promises.
        unsafe { launch.launch(threads_for(step.n * self.width)) }.map_err(Cuda::failed(self.operation))?;
        Ok(())
    }

    /// Address of the sources of a step.
    fn source(&self, walk: &Walk, t: usize) -> u64 {
        self.cuda.pointer(Some(&walk.sources)) + walk.offsets[t] * size_of::<u32>() as u64
    }

    /// Addresses of gates, memories and states of a step.
    fn kept_at(&self, kept: &Kept, walk: &Walk, t: usize) -> [u64; 3] {
        let row = walk.offsets[t] * (self.width * size_of::<f32>()) as u64;
        let [gates, memories, states] =
            [&kept.gates, &kept.memories, &kept.states].map(|slice| self.cuda.pointer(Some(slice)));
        [gates + 4 * row, memories + row, states + row]
    }

    /// Address of the memory before a step; zero at the first.
    fn memory_before(&self, kept: &Kept, walk: &Walk, t: usize) -> u64 {
        if t > 0 { self.kept_at(kept, walk, t - 1)[1] } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(degrees: &[u64]) -> Vec<u64> {
        let ends = degrees.iter().scan(0, |end, degree| {
            *end += degree;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    #[test]
    fn rows_read_in_step_and_drop_off_at_the_end() {
        let indptr = degrees(&[2, 0, 5, 2, 1]);
        let rows = by_degree(&indptr);
        assert_eq!(rows, [2, 0, 3, 4]);
        assert_eq!(readers(&indptr, &rows), [4, 3, 1, 1, 1]);
        assert_eq!(offsets(&readers(&indptr, &rows)), [0, 4, 7, 8, 9, 10]);
        assert!(readers(&indptr, &[]).is_empty());
    }

    #[test]
    fn waves_are_bounded_unless_a_row_is_not() {
        let indptr = degrees(&[5, 2, 2, 1]);
        assert_eq!(waves(&indptr, &[0, 1, 2, 3], 4), [&[0][..], &[1, 2], &[3]]);
        assert!(waves(&indptr, &[], 4).is_empty());
    }
}
