//! LSTM aggregation.
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

mod backward;
mod waves;

use cudarc::driver::PushKernelArg;
use girih_compute::scratch::GATES;
use girih_compute::{ComputeError, Dtype, Memory, Shape, Transpose, checks};
use girih_random::Key;

use self::waves::{by_degree, offsets, readers};
use crate::abi::SequenceOrder;
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::matrix::{CudaMatrix, CudaSparse};
use crate::ops::gemm::{Address, Dense};
use crate::ops::passes::NULL;

/// Address of contiguous rows of `cols` floats.
fn dense_rows(at: u64, cols: usize) -> Address {
    Address { at, dtype: Dtype::F32, pitch: cols }
}

impl SequenceOrder {
    /// Order of the sequences of a matrix; a key draws it.
    fn of((a, key): (&CudaSparse, Option<Key>)) -> Self {
        let first_name = a.names.as_ref().map_or(0, |names| names.first_row);
        Self { key: key.map_or([0; 2], Key::words), first_name, drawn: u32::from(key.is_some()) }
    }
}

/// Sequences of a wave, laid out step by step.
struct Readers {
    /// Number of rows that read at each step.
    readers: Vec<usize>,
    /// Offset of each step, with the end of the last.
    offsets: Vec<u64>,
    /// Rows on the device, by falling degree.
    rows: Buffer<u32>,
    /// Input row of each place.
    sources: Buffer<u32>,
}

impl Readers {
    /// Number of rows of the wave.
    fn n_rows(&self) -> usize {
        self.readers[0]
    }

    /// Number of entries that all steps read.
    fn n_entries(&self) -> usize {
        *self.offsets.last().expect("at least where the first step begins") as usize
    }
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
pub(super) struct Lstm<'a> {
    cuda: &'a Cuda,
    operation: &'static str,
    inputs: &'a CudaMatrix,
    /// Weight in `f32`, `width` × 4·`width`.
    weight: Address,
    /// Columns of a state.
    width: usize,
}

impl<'a> Lstm<'a> {
    /// LSTM over rows of `inputs`, with a `weight` in `f32` that lives as long.
    pub(super) fn new(cuda: &'a Cuda, operation: &'static str, inputs: &'a CudaMatrix, weight: &'a CudaMatrix) -> Self {
        Self { cuda, operation, inputs, weight: cuda.address(weight), width: weight.shape.rows }
    }

    /// Writes the last state of each sequence to its row of `out`.
    pub(super) fn forward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        self.cuda.set_zero(out)?;
        // A wave holds the gates of one step, whatever it reads.
        let rows_max = (GATES.max(self.inputs.shape.len()) / (4 * self.width)).max(1);
        let indptr = self.cuda.indptr_of(self.operation, sequences.0)?;
        let rows = by_degree(&indptr);
        for rows in rows.chunks(rows_max) {
            let walk = self.walk(sequences, (&indptr, rows), None)?;
            let states = self.last_states(&walk)?;
            self.place(&states, &walk, out)?;
        }
        Ok(())
    }

    /// Allocates `n` rows of `cols` floats.
    fn room(&self, n: usize, cols: usize) -> Result<Buffer<f32>, ComputeError> {
        checks::allocation(Shape::new(n, cols), size_of::<f32>())?;
        self.cuda.scratch(self.operation, n * cols)
    }

    /// Draws the sequences of `rows`, which are sorted by falling degree. `places`, if given, is a list and a first
    /// number; the list gets the place of each entry, counted from that number.
    fn walk(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        (indptr, rows): (&[u64], &[u32]),
        places: Option<(&mut Buffer<u64>, usize)>,
    ) -> Result<Readers, ComputeError> {
        let (cuda, a, by) = (self.cuda, sequences.0, SequenceOrder::of(sequences));
        let failed = Cuda::failed(self.operation);
        let readers = readers(indptr, rows);
        let offsets = offsets(&readers);
        let n_entries = offsets[readers.len()] as usize;
        let on_device = cuda.upload_list(self.operation, rows)?;
        let starts = cuda.upload_list(self.operation, &offsets)?;
        let mut sources = cuda.scratch::<u32>(self.operation, n_entries)?;
        let mut order = cuda.scratch::<u32>(self.operation, if by.drawn == 1 { a.forward.nnz } else { 1 })?;
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
        Ok(Readers { readers, offsets, rows: on_device, sources })
    }

    /// Final states, in the order of the walk's rows.
    fn last_states(&self, walk: &Readers) -> Result<Buffer<f32>, ComputeError> {
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
    fn place(&self, states: &Buffer<f32>, walk: &Readers, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        let kernel = self.cuda.kernel(self.operation, Source::SEGMENTS, "place_states", &[("Y", out.dtype)])?;
        let (n, width) = (walk.n_rows() as u64, self.width as u64);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(states).arg(&walk.rows).arg(&n).arg(&width).arg(&mut out.data);
        // SAFETY: there is a state for each row of the walk, and these are different rows of `out`.
        unsafe { launch.launch(threads_for(walk.n_rows() * self.width)) }
            .map(drop)
            .map_err(Cuda::failed(self.operation))
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
        unsafe { launch.launch(threads_for(step.n * self.width)) }.map(drop).map_err(Cuda::failed(self.operation))
    }

    /// Address of the sources of a step.
    fn source(&self, walk: &Readers, t: usize) -> u64 {
        self.cuda.pointer(Some(&walk.sources)) + walk.offsets[t] * size_of::<u32>() as u64
    }
}
