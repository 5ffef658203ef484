//! [`CpuMatrix`]: dense matrix in main memory, aligned to cache lines.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use aligned_vec::{AVec, ConstAlign};
use girih_graph_format::{Buffer, Matrix};
use girih_machine::advise_huge_pages;
use half::bf16;
use rayon::prelude::*;

use super::element::Element;
use super::elementwise;
use crate::backend::{fill_rows, filled_rows};
use crate::{ComputeError, Dtype, HostMatrix, Shape};

/// Alignment of buffers in bytes: one cache line, so that a row of 16 floats lies in a single line.
pub(crate) const ALIGNMENT: usize = 64;

/// Growable array that starts at a cache line.
pub(crate) type Aligned<T> = AVec<T, ConstAlign<ALIGNMENT>>;

/// Dense row-major matrix in main memory.
#[derive(Clone, Debug)]
pub struct CpuMatrix {
    shape: Shape,
    storage: Storage,
}

/// Elements of a [`CpuMatrix`] (`rows * cols` of them).
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    F32(Floats),
    Bf16(Aligned<bf16>),
}

/// Elements in `f32`: owned, shared with a host matrix until the first write, or in memory of another owner.
#[derive(Clone, Debug)]
pub(crate) enum Floats {
    Own(Aligned<f32>),
    Host(Buffer<f32>),
    Lent(Lent),
}

/// Elements in memory of another owner, which are written in place.
pub(crate) struct Lent(Box<dyn FloatOwner>);

/// Owner of the elements of a matrix.
trait FloatOwner: AsRef<[f32]> + AsMut<[f32]> + Send + Sync {}

impl<T: AsRef<[f32]> + AsMut<[f32]> + Send + Sync> FloatOwner for T {}

impl Clone for Lent {
    /// Copy that owns its elements.
    fn clone(&self) -> Self {
        Self(Box::new((*self.0).as_ref().to_vec()))
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((*self.0).as_ref()).finish()
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(values) => values,
            Self::Host(values) => values,
            Self::Lent(Lent(owner)) => (**owner).as_ref(),
        }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Own(values) => values,
            Self::Host(values) => values.make_mut(),
            Self::Lent(Lent(owner)) => (**owner).as_mut(),
        }
    }
}

impl CpuMatrix {
    /// Allocates a matrix of zeros.
    pub(crate) fn zeros(shape: Shape, dtype: Dtype) -> Self {
        let storage = match dtype {
            Dtype::F32 => Storage::F32(Floats::Own(zeroed(shape.len()))),
            Dtype::Bf16 => Storage::Bf16(zeroed(shape.len())),
        };
        Self { shape, storage }
    }

    /// Changes the shape within the allocated memory, and returns whether that suffices. The contents are then
    /// unspecified.
    pub(crate) fn resize(&mut self, shape: Shape) -> bool {
        let len = shape.len();
        match &mut self.storage {
            Storage::F32(Floats::Own(values)) if len <= values.capacity() => values.resize(len, 0.0),
            Storage::Bf16(values) if len <= values.capacity() => values.resize(len, bf16::ZERO),
            Storage::F32(_) | Storage::Bf16(_) => return false,
        }
        self.shape = shape;
        true
    }

    /// Matrix that shares the elements of a host matrix, without a copy.
    pub(crate) fn shared(host: &Matrix) -> Self {
        let shape = Shape::new(host.n_rows(), host.n_cols());
        Self { shape, storage: Storage::F32(Floats::Host(host.buffer().clone())) }
    }

    /// Matrix over memory of another owner, such as a tensor of another library: results are written there, without a
    /// copy. Dropping the matrix drops `owner`; a clone of the matrix owns a copy of the elements.
    ///
    /// # Errors
    /// When `owner` does not hold exactly the elements of the shape.
    pub fn over<O>(shape: Shape, owner: O) -> Result<Self, ComputeError>
    where
        O: AsRef<[f32]> + AsMut<[f32]> + Send + Sync + 'static,
    {
        let found = owner.as_ref().len();
        if found != shape.len() {
            return Err(ComputeError::argument("over", format!("{found} elements for a {shape} matrix")));
        }
        Ok(Self { shape, storage: Storage::F32(Floats::Lent(Lent(Box::new(owner)))) })
    }

    /// Shape of the matrix.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Storage type of the elements.
    pub(crate) fn dtype(&self) -> Dtype {
        match self.storage {
            Storage::F32(_) => Dtype::F32,
            Storage::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Overwrites all elements with `values`, rounded to the storage.
    ///
    /// # Panics
    /// When their numbers differ.
    pub(crate) fn write_all(&mut self, values: &[f32]) {
        match &mut self.storage {
            Storage::F32(out) => elementwise::convert(values, out),
            Storage::Bf16(out) => elementwise::convert(values, out),
        }
    }

    /// Overwrites all rows with those that `fill` computes, in blocks of rows, as
    /// [`Memory::write_rows`](crate::Memory::write_rows) specifies.
    pub(crate) fn write_rows(&mut self, fill: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let cols = self.shape.cols;
        match &mut self.storage {
            Storage::F32(values) => fill_rows(fill, cols, values),
            Storage::Bf16(values) => {
                let rows = filled_rows(cols);
                let pieces = values.par_chunks_mut(rows * cols.max(1)).enumerate();
                pieces.for_each_init(Vec::new, |filled, (piece, values)| {
                    filled.resize(values.len(), 0.0);
                    fill(piece * rows, filled);
                    filled.iter().zip(values).for_each(|(&value, out)| *out = bf16::from_f32(value));
                });
            }
        }
    }

    /// Calls `write` to overwrite all elements as `f32`, then rounds them to the storage.
    pub(crate) fn write_with(&mut self, write: impl FnOnce(&mut [f32])) {
        match &mut self.storage {
            Storage::F32(out) => write(out),
            Storage::Bf16(out) => {
                let mut values: Vec<f32> = out.iter().map(|value| value.to_f32()).collect();
                write(&mut values);
                elementwise::convert(&values, out);
            }
        }
    }

    /// Elements of a matrix that the checks have found to be `f32`.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn expect_f32(&self) -> &[f32] {
        match &self.storage {
            Storage::F32(values) => values,
            Storage::Bf16(_) => unreachable!("checked to be f32"),
        }
    }

    /// As [`expect_f32`](Self::expect_f32), but mutable.
    ///
    /// # Panics
    /// When it is not `f32`.
    pub(crate) fn expect_f32_mut(&mut self) -> &mut [f32] {
        match &mut self.storage {
            Storage::F32(values) => values,
            Storage::Bf16(_) => unreachable!("checked to be f32"),
        }
    }

    /// Elements, row by row.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Elements, row by row, mutable.
    pub(crate) fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }
}

impl HostMatrix for CpuMatrix {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn dtype(&self) -> Dtype {
        Self::dtype(self)
    }

    fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::F32(values) => bytemuck::cast_slice(values),
            Storage::Bf16(values) => bytemuck::cast_slice(values),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::F32(values) => bytemuck::cast_slice_mut(values),
            Storage::Bf16(values) => bytemuck::cast_slice_mut(values),
        }
    }
}

/// Evaluates an expression in which each name is bound to the typed elements of a storage:
/// `typed!(x = a, y = b => f(x, y))`.
macro_rules! typed {
    (=> $body:expr) => { $body };
    ($name:ident = $storage:expr $(, $next:ident = $others:expr)* => $body:expr) => {
        match $storage {
            $crate::cpu::matrix::Storage::F32($name) => {
                $crate::cpu::matrix::typed!($($next = $others),* => $body)
            }
            $crate::cpu::matrix::Storage::Bf16($name) => {
                $crate::cpu::matrix::typed!($($next = $others),* => $body)
            }
        }
    };
}
pub(crate) use typed;

/// Elements of `matrix` as `f32`, copied only if they are stored as another type.
pub(crate) fn as_f32(matrix: &CpuMatrix) -> Cow<'_, [f32]> {
    match matrix.storage() {
        Storage::F32(values) => Cow::Borrowed(values),
        Storage::Bf16(values) => values.iter().map(|&value| Element::to_f32(value)).collect(),
    }
}

/// Allocates `len` zeros, aligned to a cache line. Large arrays use huge pages.
pub(crate) fn zeroed<T: bytemuck::Zeroable + Copy>(len: usize) -> Aligned<T> {
    let mut values = Aligned::<T>::with_capacity(ALIGNMENT, len);
    // The advice must precede the first write, which allocates the pages.
    advise_huge_pages(values.as_ptr(), len);
    values.resize(len, T::zeroed());
    values
}
