//! Operations that still go through the processor: operands come to the host, results go back.

use std::borrow::Cow;

use girih_compute::{Backend, ComputeError, Cpu, Dropout, Dtype, Epilogue, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, Scales};
use girih_random::Key;

use crate::backend::Cuda;
use crate::{CudaIds, CudaMatrix, CudaSparse};

type CpuMatrix = <Cpu as Backend>::Matrix;
type CpuSparse = <Cpu as Backend>::Sparse;
type CpuIds = <Cpu as Backend>::Ids;

impl Cuda {
    fn fetch(&self, x: &CudaMatrix) -> Result<CpuMatrix, ComputeError> {
        self.host.upload(&Self::download(self, x)?, x.dtype)
    }

    fn fetch_ids(&self, ids: &CudaIds) -> Result<CpuIds, ComputeError> {
        let ids: Cow<'_, [u32]> = self.ids_on_host("ids", ids)?;
        self.host.upload_ids(&ids)
    }

    fn fetch_pattern(&self, a: &CudaSparse) -> Result<CpuSparse, ComputeError> {
        let scales = Scales { left: None, right: None };
        self.host.upload_sparse(&SparseOperand { csr: &a.host, scales, symmetric: false, names: a.names.clone() })
    }

    fn bring(&self, from: &CpuMatrix, to: &mut CudaMatrix) -> Result<(), ComputeError> {
        let host: Matrix = self.host.download(from)?;
        Self::write(self, &host, to)
    }

    pub(crate) fn gemm(
        &self,
        a: (&CudaMatrix, Transpose),
        dropout: Option<Dropout>,
        b: (&CudaMatrix, Transpose),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (x, y, mut z) = (self.fetch(a.0)?, self.fetch(b.0)?, self.fetch(out)?);
        let bias = epilogue.bias.map(|bias| self.fetch(bias)).transpose()?;
        let epilogue =
            Epilogue { accumulate: epilogue.accumulate, bias: bias.as_ref(), activation: epilogue.activation };
        self.host.gemm((&x, a.1), dropout, (&y, b.1), epilogue, &mut z)?;
        self.bring(&z, out)
    }

    pub(crate) fn softmax_cross_entropy(
        &self,
        logits: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (x, c, r, mut l) =
            (self.fetch(logits)?, self.fetch_ids(classes)?, self.fetch_ids(rows)?, self.fetch(loss)?);
        let mut g = grad.as_deref().map(|grad| self.fetch(grad)).transpose()?;
        self.host.softmax_cross_entropy(&x, &c, &r, g.as_mut(), &mut l)?;
        self.bring_both((g, grad), (&l, loss))
    }

    pub(crate) fn sigmoid_cross_entropy(
        &self,
        logits: &CudaMatrix,
        targets: &CudaMatrix,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (x, t, r, mut l) = (self.fetch(logits)?, self.fetch(targets)?, self.fetch_ids(rows)?, self.fetch(loss)?);
        let mut g = grad.as_deref().map(|grad| self.fetch(grad)).transpose()?;
        self.host.sigmoid_cross_entropy(&x, &t, &r, g.as_mut(), &mut l)?;
        self.bring_both((g, grad), (&l, loss))
    }

    fn bring_both(
        &self,
        (g, grad): (Option<CpuMatrix>, Option<&mut CudaMatrix>),
        (l, loss): (&CpuMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        if let (Some(g), Some(grad)) = (g, grad) {
            self.bring(&g, grad)?;
        }
        self.bring(l, loss)
    }

    pub(crate) fn argmax_rows(&self, x: &CudaMatrix) -> Result<Vec<u32>, ComputeError> {
        self.host.argmax_rows(&self.fetch(x)?)
    }

    pub(crate) fn bpr_loss(
        &self,
        triples: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (x, mut l) = (self.fetch(triples)?, self.fetch(loss)?);
        let mut g = grad.as_deref().map(|grad| self.fetch(grad)).transpose()?;
        self.host.bpr_loss(&x, g.as_mut(), &mut l)?;
        self.bring_both((g, grad), (&l, loss))
    }

    pub(crate) fn top_k_rows(&self, x: &CudaMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        self.host.top_k_rows(&self.fetch(x)?, k, excluded)
    }

    pub(crate) fn segment_max(
        &self,
        a: &CudaSparse,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
        winners: Option<&mut CudaIds>,
    ) -> Result<(), ComputeError> {
        let (p, y, mut z) = (self.fetch_pattern(a)?, self.fetch(x)?, self.fetch(out)?);
        let mut w = winners.as_deref().map(|winners| self.host.zero_ids(winners.range.len)).transpose()?;
        self.host.segment_max(&p, &y, &mut z, w.as_mut())?;
        if let (Some(w), Some(winners)) = (w, winners) {
            *winners = Self::upload_ids(self, w.as_slice())?;
        }
        self.bring(&z, out)
    }

    pub(crate) fn segment_max_backward(
        &self,
        a: &CudaSparse,
        winners: &CudaIds,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (p, w, g) = (self.fetch_pattern(a)?, self.fetch_ids(winners)?, self.fetch(grad)?);
        let mut x = self.fetch(x_grad)?;
        self.host.segment_max_backward(&p, &w, &g, &mut x)?;
        self.bring(&x, x_grad)
    }

    pub(crate) fn segment_lstm(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        inputs: &CudaMatrix,
        weight: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (p, x, w, mut z) =
            (self.fetch_pattern(sequences.0)?, self.fetch(inputs)?, self.fetch(weight)?, self.fetch(out)?);
        self.host.segment_lstm((&p, sequences.1), &x, &w, &mut z)?;
        self.bring(&z, out)
    }

    pub(crate) fn segment_lstm_backward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        operands: (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        let (p, x, w) = (self.fetch_pattern(sequences.0)?, self.fetch(operands.0)?, self.fetch(operands.1)?);
        let (g, mut dx, mut dw) = (self.fetch(grad)?, self.fetch(grads.0)?, self.fetch(grads.1)?);
        self.host.segment_lstm_backward((&p, sequences.1), (&x, &w), &g, (&mut dx, &mut dw))?;
        self.bring(&dx, grads.0)?;
        self.bring(&dw, grads.1)
    }
}
