//! Named arrays in one safetensors file: a header in JSON, then the values
//! (<https://github.com/huggingface/safetensors>).

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo, View};

use super::array::{Array, Element, Values};
use super::mapped::MappedFile;
use super::sniff::{Sniffed, check_binary};
use super::write_file;
use crate::{Buffer, FormatError};

/// File of tensors, mapped; values are copied only where they are not aligned.
#[derive(Debug)]
pub struct Tensors {
    origin: PathBuf,
    map: Arc<MappedFile>,
    metadata: Metadata,
    /// Byte offset of the values.
    data_start: usize,
}

impl Tensors {
    /// Opens a file, and checks that its tensors fill it without gaps.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let map = Arc::new(MappedFile::open(path)?);
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| {
            let damaged = || FormatError::corrupt(format!("not a readable safetensors file: {e}"));
            check_binary(&map, "a safetensors file", Sniffed::Binary).err().unwrap_or_else(damaged).at(path)
        })?;
        Ok(Self { origin: path.to_owned(), map, metadata, data_start: size_of::<u64>() + header })
    }

    /// Path of the file that errors name.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Names of all tensors, in the file's order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Tensor of this name, if it exists. `BF16` becomes `float32`, which represents every such number.
    ///
    /// # Errors
    /// When its type is not one of NumPy's integers and floats, `BOOL` or `BF16`, or a `BOOL` is neither 0 nor 1.
    pub fn try_array(&self, name: &str) -> Result<Option<Array>, FormatError> {
        let Some(info) = self.metadata.info(name) else { return Ok(None) };
        let origin = self.origin.join(name);
        let values = self.values(info).map_err(|e| e.at(&origin))?;
        Array::new(&origin, info.shape.clone(), values).map(Some)
    }

    fn values(&self, info: &TensorInfo) -> Result<Values, FormatError> {
        Ok(match info.dtype {
            Dtype::BOOL => Values::Bool(self.truth_values(info)?),
            Dtype::U8 => Values::U8(self.buffer(info)),
            Dtype::I8 => Values::I8(self.buffer(info)),
            Dtype::I16 => Values::I16(self.buffer(info)),
            Dtype::U16 => Values::U16(self.buffer(info)),
            Dtype::I32 => Values::I32(self.buffer(info)),
            Dtype::U32 => Values::U32(self.buffer(info)),
            Dtype::I64 => Values::I64(self.buffer(info)),
            Dtype::U64 => Values::U64(self.buffer(info)),
            Dtype::F16 => Values::F16(self.buffer::<f16>(info)),
            Dtype::BF16 => {
                let narrow: Buffer<bf16> = self.buffer(info);
                Values::F32(narrow.iter().map(|v| v.to_f32()).collect::<Vec<f32>>().into())
            }
            Dtype::F32 => Values::F32(self.buffer(info)),
            Dtype::F64 => Values::F64(self.buffer(info)),
            other => {
                let message = format!("values of type {other:?}; expected integers, BOOL, F16, BF16, F32 or F64");
                return Err(FormatError::invalid(message));
            }
        })
    }

    /// Values of a tensor; opening the file has compared its size with its shape and type.
    fn buffer<T: bytemuck::Pod>(&self, info: &TensorInfo) -> Buffer<T> {
        let (start, end) = (self.data_start + info.data_offsets.0, self.data_start + info.data_offsets.1);
        let mapped = Buffer::mapped(self.map.clone(), start, (end - start) / size_of::<T>());
        mapped.unwrap_or_else(|| bytemuck::pod_collect_to_vec::<u8, T>(&self.map[start..end]).into())
    }

    fn truth_values(&self, info: &TensorInfo) -> Result<Buffer<u8>, FormatError> {
        let values = self.buffer::<u8>(info);
        match values.iter().position(|&v| v > 1) {
            None => Ok(values),
            Some(at) => Err(FormatError::corrupt(format!("value {at} of a BOOL tensor is {}", values[at]))),
        }
    }
}

/// Tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Tensor<'a> {
    /// Makes a tensor of `values` in C order.
    ///
    /// # Panics
    /// When the product of `shape` is not the number of values.
    pub fn new<T: Element>(shape: &[usize], values: impl Into<Cow<'a, [T]>>) -> Self {
        let dtype = match T::DESCR {
            "|i1" => Dtype::I8,
            "|u1" => Dtype::U8,
            "<i2" => Dtype::I16,
            "<u2" => Dtype::U16,
            "<i4" => Dtype::I32,
            "<u4" => Dtype::U32,
            "<i8" => Dtype::I64,
            "<u8" => Dtype::U64,
            "<f2" => Dtype::F16,
            "<f4" => Dtype::F32,
            _ => Dtype::F64,
        };
        let values = values.into();
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?} of a tensor");
        let bytes = match values {
            Cow::Borrowed(values) => Cow::Borrowed(bytemuck::cast_slice(values)),
            Cow::Owned(values) => Cow::Owned(bytemuck::pod_collect_to_vec(&values)),
        };
        Self { dtype, shape: shape.to_vec(), bytes }
    }

    /// Makes a tensor of booleans, 0 and 1.
    ///
    /// # Panics
    /// When the product of `shape` is not the number of values.
    #[must_use]
    pub fn bools(shape: &[usize], values: Vec<u8>) -> Self {
        Self { dtype: Dtype::BOOL, ..Tensor::new::<u8>(shape, values) }
    }
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes a file of tensors, which appears whole or not at all; equal tensors give equal bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_tensors(path: &Path, tensors: Vec<(String, Tensor<'_>)>) -> Result<(), FormatError> {
    let bytes = safetensors::serialize(tensors, None).map_err(|e| FormatError::invalid(e.to_string()).at(path))?;
    write_file(path, |out| Ok(out.write_all(&bytes)?))
}
