//! [`Cuda`]: the backend on a CUDA device.

use std::fmt;

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, DriverError};
use girih_compress::CompressedFeatures;
use girih_compute::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, Backend, ColumnMoments, ComputeError,
    Dropout, Dtype, Epilogue, EpilogueGrad, FeatureStore, HostFeatures, NeighborGraph, NeighborOperand, SgdUpdate,
    Shape, SparseOperand, SplitRows, StepInputs, Transpose, WritableStore,
};
use girih_graph_format::{Csr, Matrix};
use girih_random::Key;
use girih_tiers::{HostReads, Placement};

use crate::compile::{Defines, Source};
use crate::device::Device;
use crate::driver::explain;
use crate::error::{KernelError, Kind};
use crate::ops::{BlockKernel, Tiling};
use crate::recording::{Recorder, Recording};
use crate::sampling::CudaGraph;
use crate::{CudaIds, CudaMatrix, CudaSparse};

/// A CUDA device as a backend.
pub struct Cuda {
    pub(crate) device: Device,
    pub(crate) tiling: Tiling,
    pub(crate) block_kernel: BlockKernel,
    /// Element type of stored activations and of the operands of dense products.
    pub(crate) precision: Dtype,
    pub(crate) recorder: Recorder,
}

impl Cuda {
    /// Creates the backend on a device.
    #[must_use]
    pub fn new(device: Device) -> Self {
        let block_kernel = BlockKernel::of(device.capability());
        let (tiling, recorder) = (Tiling::default(), Recorder::default());
        Self { device, tiling, block_kernel, precision: Dtype::F32, recorder }
    }

    /// Creates a second backend on the same GPU for concurrent work, with a stream of its own. Steps are captured as
    /// graphs if they are here.
    pub(crate) fn beside(&self, operation: &'static str) -> Result<Self, ComputeError> {
        let device = self.device.beside().map_err(Self::failed(operation))?;
        Ok(Self::new(device).recording(self.recorder.is_enabled()))
    }

    /// Sets the type in which activations and their gradients are stored. In bf16, a dense product with one bf16
    /// operand rounds the other one to bf16, too, so that tensor cores take both. Sums are `f32` throughout.
    #[must_use]
    pub fn storing(self, precision: Dtype) -> Self {
        Self { precision, ..self }
    }

    /// Sets the choice of adjacency blocks that tensor cores multiply.
    #[must_use]
    pub fn tiling(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }

    /// Sets the kernel that multiplies blocks, instead of the fastest that the GPU has.
    ///
    /// # Errors
    /// When the GPU lacks its instructions.
    pub fn multiplying_blocks_by(self, block_kernel: BlockKernel) -> Result<Self, KernelError> {
        let capability = self.device.capability();
        if !block_kernel.runs_on(capability) {
            let instead = BlockKernel::of(capability);
            return Err(Kind::BlockKernel { block_kernel, card: self.device.name(), capability, instead }.into());
        }
        Ok(Self { block_kernel, ..self })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Kernel compiled for element types, each under the macro name that its source uses.
    pub(crate) fn kernel(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        let defines = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned())).collect();
        self.variant(operation, source, name, &defines)
    }

    /// Kernel compiled with the given macros.
    pub(crate) fn variant(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        defines: &Defines,
    ) -> Result<CudaFunction, ComputeError> {
        let kernel = self.device.kernel(source, name, defines);
        kernel.map_err(|error| ComputeError::device(operation, error.to_string()))
    }

    /// Raises a kernel's limit of dynamic shared memory to `bytes`, above the default.
    pub(crate) fn allow_shared(operation: &'static str, kernel: &CudaFunction, bytes: u32) -> Result<(), ComputeError> {
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.set_attribute(most, bytes as i32).map_err(Self::failed(operation))
    }

    /// Converts an error of the driver to that of an operation.
    pub(crate) fn failed(operation: &'static str) -> impl Fn(DriverError) -> ComputeError {
        move |error| ComputeError::device(operation, explain(error.0))
    }
}

/// Reason not to capture a step that allocates: memory of a captured step belongs to the graph.
const OUTLIVES: &str = "allocates what may outlive it";

/// Spelling of an element type in the sources.
pub(crate) fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
    }
}

impl Backend for Cuda {
    type Matrix = CudaMatrix;
    type Sparse = CudaSparse;
    type Ids = CudaIds;
    type Recording = Recording;

    fn name(&self) -> String {
        format!("cuda: {}", self.device.name())
    }

    fn activations(&self) -> Dtype {
        self.precision
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn repeat<E: From<ComputeError> + fmt::Display>(
        &self,
        recording: &mut Recording,
        inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.repeat_step(recording, inputs, step)
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        self.recorder.obstacle(OUTLIVES)?;
        Self::zeros(self, shape, dtype)
    }

    fn resize(&self, matrix: &mut CudaMatrix, shape: Shape) -> bool {
        Self::resize(matrix, shape)
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        Self::upload(self, host, dtype)
    }

    fn download(&self, matrix: &CudaMatrix) -> Result<Matrix, ComputeError> {
        Self::download(self, matrix)
    }

    fn write(&self, host: &Matrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::write(self, host, out)
    }

    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<CudaSparse, ComputeError> {
        Self::upload_sparse(self, operand)
    }

    fn host_features(
        &self,
        rows: &Matrix,
        dtype: Dtype,
        placed: (&Placement, HostReads),
    ) -> Result<Option<HostFeatures<Self>>, ComputeError> {
        Self::host_features(self, rows, dtype, placed).map(Some)
    }

    fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placed: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Self::code_rows(self, codes, dtype, placed)
    }

    fn split_rows(
        &self,
        rows: SplitRows<'_>,
        placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Self::split_rows(self, rows, placement)
    }

    fn row_store(
        &self,
        shape: Shape,
        dtype: Dtype,
        together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError> {
        Self::row_store(self, shape, dtype, together).map(Some)
    }

    fn neighbor_graph(
        &self,
        operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError> {
        let graph = CudaGraph::new(self, operand)?;
        Ok(Some(Box::new(graph)))
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<CudaIds, ComputeError> {
        Self::upload_ids(self, ids)
    }

    fn shape(&self, matrix: &CudaMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &CudaMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &CudaSparse) -> Shape {
        Self::sparse_shape(self, sparse)
    }

    fn nnz(&self, sparse: &CudaSparse) -> usize {
        Self::nnz(self, sparse)
    }

    fn gemm(
        &self,
        a: (&CudaMatrix, Transpose),
        dropout: Option<Dropout>,
        b: (&CudaMatrix, Transpose),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm(self, a, dropout, b, epilogue, out)
    }

    fn gemm_pair(
        &self,
        first: (&CudaMatrix, &CudaMatrix),
        second: (&CudaMatrix, &CudaMatrix),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm_pair(self, first, second, epilogue, out)
    }

    fn spmm(
        &self,
        a: (&CudaSparse, Transpose),
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::spmm(self, a, weights, x, epilogue, out)
    }

    fn spmm_columns(
        &self,
        a: (&CudaSparse, Transpose),
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: (&mut CudaMatrix, usize),
    ) -> Result<(), ComputeError> {
        Self::spmm_columns(self, a, x, epilogue, out)
    }

    fn gemm_backward(
        &self,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        epilogue_grad: EpilogueGrad<'_, CudaMatrix>,
        out: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::gemm_backward(self, a, b, epilogue_grad, out, bias_grad)
    }

    fn gemm_scaled(
        &self,
        factors: &CudaMatrix,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm_scaled(self, factors, a, b, out)
    }

    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::epilogue_backward(self, slope, y, grad, bias_grad)
    }

    fn dropout(&self, x: &CudaMatrix, dropout: Dropout, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::dropout(self, x, dropout, out)
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::dropout_in_place(self, dropout, x)
    }

    fn convert(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::convert(self, x, out)
    }

    fn add_scaled(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::add_scaled(self, factor, x, out)
    }

    fn gather_rows(&self, x: &CudaMatrix, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::gather_rows(self, x, ids, out)
    }

    fn scatter_add_rows(&self, x: &CudaMatrix, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scatter_add_rows(self, x, ids, out)
    }

    fn column_sums(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::column_sums(self, x, out)
    }

    fn softmax_cross_entropy(
        &self,
        logits: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::softmax_cross_entropy(self, logits, classes, rows, grad, loss)
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &CudaMatrix,
        targets: &CudaMatrix,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::sigmoid_cross_entropy(self, logits, targets, rows, grad, loss)
    }

    fn argmax_rows(&self, x: &CudaMatrix) -> Result<Vec<u32>, ComputeError> {
        Self::argmax_rows(self, x)
    }

    fn count_correct(&self, x: &CudaMatrix, classes: &CudaIds, rows: &CudaIds) -> Result<u64, ComputeError> {
        Self::count_correct(self, x, classes, rows)
    }

    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, CudaMatrix>]) -> Result<(), ComputeError> {
        Self::adam(self, step, updates)
    }

    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, CudaMatrix>]) -> Result<(), ComputeError> {
        Self::sgd(self, lr, momentum, updates)
    }

    fn sddmm(&self, a: &CudaSparse, x: &CudaMatrix, y: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::sddmm(self, a, x, y, out)
    }

    fn segment_softmax(&self, a: &CudaSparse, scores: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::segment_softmax(self, a, scores)
    }

    fn segment_softmax_backward(
        &self,
        a: &CudaSparse,
        shares: &CudaMatrix,
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_softmax_backward(self, a, shares, grad)
    }

    fn head_dots(&self, x: &CudaMatrix, vector: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::head_dots(self, x, vector, out)
    }

    fn head_dots_backward(
        &self,
        x: &CudaMatrix,
        vector: &CudaMatrix,
        grad: &CudaMatrix,
        x_grad: Option<&mut CudaMatrix>,
        vector_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::head_dots_backward(self, x, vector, grad, x_grad, vector_grad)
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut CudaMatrix,
        log_sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::attention(self, attention, out, log_sums)
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        results: (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: AttentionGrads<'_, CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::attention_backward(self, attention, results, grad, grads)
    }

    fn normalize_rows(
        &self,
        eps: f32,
        x: &CudaMatrix,
        gain_and_bias: (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
        moments: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_rows(self, eps, x, gain_and_bias, out, moments)
    }

    fn normalize_rows_backward(
        &self,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        moments: &CudaMatrix,
        grad: &mut CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        Self::normalize_rows_backward(self, x, gain, moments, grad, grads)
    }

    fn column_squares(&self, x: &CudaMatrix, means: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::column_squares(self, x, means, out)
    }

    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        gain_and_bias: (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_columns(self, &moments, x, gain_and_bias, out)
    }

    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        grad: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalized_products(self, &moments, x, grad, out)
    }

    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        means: (&CudaMatrix, &CudaMatrix),
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_columns_backward(self, &moments, x, gain, means, grad)
    }

    fn copy_block(
        &self,
        shape: Shape,
        x: &CudaMatrix,
        from: (usize, usize),
        out: &mut CudaMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        Self::copy_block(self, shape, x, from, out, to)
    }

    fn activate(
        &self,
        activation: Activation,
        bias: Option<&CudaMatrix>,
        x: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::activate(self, activation, bias, x)
    }

    fn set_zero(&self, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::set_zero(self, out)
    }

    fn scale(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scale(self, factor, x, out)
    }

    fn scale_rows(
        &self,
        factors: &CudaMatrix,
        x: (&CudaMatrix, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::scale_rows(self, factors, x, out)
    }

    fn scale_rows_in_place(&self, factors: &CudaMatrix, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scale_rows_in_place(self, factors, x)
    }

    fn bpr_loss(
        &self,
        triples: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::bpr_loss(self, triples, grad, loss)
    }

    fn l2_penalty(
        &self,
        weight: f32,
        x: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::l2_penalty(self, weight, x, grad, loss)
    }

    fn top_k_rows(&self, x: &CudaMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        Self::top_k_rows(self, x, k, excluded)
    }

    fn zero_ids(&self, len: usize) -> Result<CudaIds, ComputeError> {
        self.recorder.obstacle(OUTLIVES)?;
        Self::zero_ids(self, len)
    }

    fn segment_max(
        &self,
        a: &CudaSparse,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
        winners: Option<&mut CudaIds>,
    ) -> Result<(), ComputeError> {
        Self::segment_max(self, a, x, out, winners)
    }

    fn segment_max_backward(
        &self,
        a: &CudaSparse,
        winners: &CudaIds,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_max_backward(self, a, winners, grad, x_grad)
    }

    fn segment_lstm(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        inputs: &CudaMatrix,
        weight: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_lstm(self, sequences, inputs, weight, out)
    }

    fn segment_lstm_backward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        operands: (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        Self::segment_lstm_backward(self, sequences, operands, grad, grads)
    }
}
