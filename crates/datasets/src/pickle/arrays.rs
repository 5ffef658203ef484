//! Conversion of pickled objects to NumPy arrays and `SciPy` matrices.
//!
//! An array's state is `(version, shape, dtype, is_fortran, bytes)`, a dtype's is `(version, byte order, …)`. A CSR
//! matrix keeps its arrays in its attribute dictionary.

use std::fmt::Display;
use std::rc::Rc;

use girih_graph_format::Csr;

use super::{Global, Instance, Object, Pickle, Value};
use crate::{DatasetError, sparse};

/// Array of up to two dimensions, row-major.
#[derive(Debug)]
pub(crate) struct PickledArray {
    shape: Vec<usize>,
    scalar: Scalar,
    data: Rc<[u8]>,
}

/// Number types of data sets, all little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    Bool,
    I8,
    U8,
    I32,
    I64,
    F32,
    F64,
}

impl Scalar {
    fn from_code(code: &[u8]) -> Option<Self> {
        Some(match code {
            b"b1" => Self::Bool,
            b"i1" => Self::I8,
            b"u1" => Self::U8,
            b"i4" => Self::I32,
            b"i8" => Self::I64,
            b"f4" => Self::F32,
            b"f8" => Self::F64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

impl PickledArray {
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Values as `f32`, rounded where the file has more digits.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match self.scalar {
            Scalar::F32 => self.map(f32::from_le_bytes),
            Scalar::F64 => self.map(|bytes| f64::from_le_bytes(bytes) as f32),
            Scalar::Bool | Scalar::U8 => self.map(|[byte]| f32::from(byte)),
            Scalar::I8 => self.map(|[byte]| f32::from(byte as i8)),
            Scalar::I32 => self.map(|bytes| i32::from_le_bytes(bytes) as f32),
            Scalar::I64 => self.map(|bytes| i64::from_le_bytes(bytes) as f32),
        }
    }

    /// Values as integers; refuses an array of floats.
    pub(crate) fn to_i64(&self) -> Result<Vec<i64>, DatasetError> {
        match self.scalar {
            Scalar::I32 => Ok(self.map(|bytes| i32::from_le_bytes(bytes).into())),
            Scalar::I64 => Ok(self.map(i64::from_le_bytes)),
            Scalar::Bool | Scalar::U8 => Ok(self.map(|[byte]| byte.into())),
            Scalar::I8 => Ok(self.map(|[byte]| (byte as i8).into())),
            Scalar::F32 | Scalar::F64 => {
                Err(DatasetError::invalid(format!("an array of {:?}, where integers are expected", self.scalar)))
            }
        }
    }

    fn map<const N: usize, T>(&self, convert: impl Fn([u8; N]) -> T) -> Vec<T> {
        debug_assert_eq!(N, self.scalar.size());
        let (values, _) = self.data.as_chunks::<N>();
        values.iter().map(|&bytes| convert(bytes)).collect()
    }
}

impl Pickle {
    /// Reads the whole pickle as an array.
    ///
    /// # Errors
    /// When it is not an array, or an array of a kind that data sets do not use.
    pub(crate) fn root_array(&self) -> Result<PickledArray, DatasetError> {
        self.array(self.root())
    }

    /// Reads the whole pickle as a CSR matrix.
    ///
    /// # Errors
    /// As [`Pickle::root_array`], and when the arrays break a rule of [`Csr`].
    pub(crate) fn root_csr(&self) -> Result<Csr, DatasetError> {
        let instance = self.instance_of(self.root(), Global::ScipyCsr, "a scipy.sparse CSR matrix")?;
        let attributes = self.dict(self.state(instance)?)?;
        let attribute = |names: &[&[u8]]| {
            let found = attributes.iter().find(|(key, _)| key.as_bytes().is_some_and(|key| names.contains(&key)));
            found
                .map(|(_, value)| value)
                .ok_or_else(|| at(instance, format!("the CSR matrix has no {}", String::from_utf8_lossy(names[0]))))
        };
        let shape = self.shape(attribute(&[b"_shape", b"shape"])?, instance)?;
        let &[n_rows, n_cols] = &shape[..] else {
            return Err(at(instance, format!("the CSR matrix has {} dimensions; it needs two", shape.len())));
        };
        let indptr = self.array(attribute(&[b"indptr"])?)?.to_i64()?;
        let indices = self.array(attribute(&[b"indices"])?)?.to_i64()?;
        let values = self.array(attribute(&[b"data"])?)?.to_f32();
        sparse::csr_from_arrays(n_rows, n_cols, &indptr, &indices, Some(values))
    }

    /// Integer value, including integers that NumPy wrote as its own scalar type.
    ///
    /// # Errors
    /// When `value` is not an integer.
    pub(crate) fn int(&self, value: &Value) -> Result<i64, DatasetError> {
        if let Value::Int(int) = value {
            return Ok(*int);
        }
        let instance = self.instance_of(value, Global::NumpyScalar, "an integer")?;
        let [dtype, Value::Bytes(data)] = &instance.args[..] else {
            return Err(at(instance, "a NumPy scalar without a type and bytes"));
        };
        let scalar = PickledArray { shape: Vec::new(), scalar: self.dtype(dtype)?, data: Rc::clone(data) };
        match scalar.to_i64()?[..] {
            [int] => Ok(int),
            _ => Err(at(instance, "a NumPy scalar of the wrong size")),
        }
    }

    pub(super) fn array(&self, value: &Value) -> Result<PickledArray, DatasetError> {
        let instance = self.instance_of(value, Global::NumpyArray, "a NumPy array")?;
        let [_, shape, dtype, Value::Bool(is_fortran), data] = self.sequence(self.state(instance)?)? else {
            return Err(at(instance, "an array's state is not (version, shape, dtype, order, bytes)"));
        };
        let shape = self.shape(shape, instance)?;
        if *is_fortran && shape.len() > 1 {
            return Err(at(instance, "the array is in Fortran order; write it with numpy.ascontiguousarray"));
        }
        let scalar = self.dtype(dtype)?;
        let Value::Bytes(data) = data else {
            return Err(at(instance, "an array's values are not bytes; arrays of objects are not supported"));
        };
        let n_bytes = shape.iter().try_fold(scalar.size(), |product, &n| product.checked_mul(n));
        if n_bytes != Some(data.len()) {
            return Err(DatasetError::corrupt(format!(
                "byte {}: an array of shape {shape:?} and type {scalar:?} does not have {} bytes",
                instance.offset,
                data.len()
            )));
        }
        Ok(PickledArray { shape, scalar, data: Rc::clone(data) })
    }

    fn shape(&self, value: &Value, instance: &Instance) -> Result<Vec<usize>, DatasetError> {
        let extents = self.sequence(value)?;
        if extents.len() > 2 {
            return Err(at(instance, format!("an array of {} dimensions; at most two are used", extents.len())));
        }
        extents
            .iter()
            .map(|extent| {
                let extent = self.int(extent)?;
                usize::try_from(extent).map_err(|_| at(instance, format!("an array of extent {extent}")))
            })
            .collect()
    }

    fn dtype(&self, value: &Value) -> Result<Scalar, DatasetError> {
        let instance = self.instance_of(value, Global::NumpyDtype, "a NumPy dtype")?;
        let code = instance.args.first().and_then(Value::as_bytes).unwrap_or_default();
        let scalar = Scalar::from_code(code).ok_or_else(|| {
            at(instance, format!("arrays of type {:?} are not supported", String::from_utf8_lossy(code)))
        })?;
        // A dtype without a state has the byte order of the machine, which is little-endian.
        let order = match &instance.state {
            Some(state) => self.sequence(state)?.get(1).and_then(Value::as_bytes),
            None => Some(&b"<"[..]),
        };
        match order {
            Some(b"<" | b"|" | b"=") => Ok(scalar),
            _ => Err(at(instance, "the array is not little-endian; write it with dtype.newbyteorder('<')")),
        }
    }

    fn instance_of(&self, value: &Value, class: Global, what: &str) -> Result<&Instance, DatasetError> {
        match self.instance(value) {
            Some(instance) if instance.class == class => Ok(instance),
            Some(instance) => Err(at(instance, format!("{:?} where {what} is expected", instance.class))),
            None => Err(super::expected(what, self.describe(value))),
        }
    }

    fn state<'a>(&self, instance: &'a Instance) -> Result<&'a Value, DatasetError> {
        instance.state.as_ref().ok_or_else(|| at(instance, format!("{:?} without any state", instance.class)))
    }

    fn describe(&self, value: &Value) -> &'static str {
        match value {
            Value::Object(id) => Object::describe(&self.objects[id.0]),
            other => other.describe(),
        }
    }
}

fn at(instance: &Instance, what: impl Display) -> DatasetError {
    DatasetError::invalid(format!("byte {}: {what}", instance.offset))
}
