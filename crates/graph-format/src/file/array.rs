//! [`Array`]: the array of a `.npy` file, and its conversion to the types of this workspace.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use girih_machine::parallel;
use half::f16;

use crate::{Buffer, FormatError, MAX_NODES, Matrix, NodeId};

/// Array of any dimension, in C order (the last index runs fastest), with the path of its file.
///
/// # Invariants
/// The product of `shape` is the number of values.
#[derive(Clone, Debug)]
pub struct Array {
    origin: PathBuf,
    shape: Vec<usize>,
    values: Values,
}

/// Plain type of array elements.
pub trait Element: Pod + Send + Sync + private::Sealed {
    /// NumPy's name of the type with its byte order, as in `<f4`.
    const DESCR: &'static str;
    /// Values of this type as [`Values`].
    fn wrap(values: Buffer<Self>) -> Values;
}

mod private {
    pub trait Sealed {}
}

/// Defines [`Values`] and implements [`Element`] for every plain type.
macro_rules! elements {
    ($($variant:ident $type:ty, $descr:literal, $name:literal;)*) => {
        /// Values of an [`Array`].
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Values {
            /// NumPy's `bool`: bytes 0 and 1.
            Bool(Buffer<u8>),
            /// Strings: NumPy's `S` and `U`.
            Text(Vec<String>),
            $(#[doc = concat!("NumPy's `", $name, "`.")] $variant(Buffer<$type>),)*
        }

        impl Values {
            /// Number of values.
            #[must_use]
            pub fn len(&self) -> usize {
                match self {
                    Self::Bool(v) => v.len(),
                    Self::Text(v) => v.len(),
                    $(Self::$variant(v) => v.len(),)*
                }
            }

            /// Whether there are no values.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Slices consecutive values; all but text stay shared.
            fn slice(&self, range: Range<usize>) -> Self {
                match self {
                    Self::Bool(v) => Self::Bool(v.slice(range)),
                    Self::Text(v) => Self::Text(v[range].to_vec()),
                    $(Self::$variant(v) => Self::$variant(v.slice(range)),)*
                }
            }

            /// Bytes of the mapped file that hold these values.
            fn mapped_bytes(&self) -> Option<&[u8]> {
                match self {
                    Self::Bool(v) => v.is_mapped().then_some(&v[..]),
                    Self::Text(_) => None,
                    $(Self::$variant(v) => v.is_mapped().then(|| bytemuck::cast_slice(&v[..])),)*
                }
            }

            /// NumPy's name of the type.
            #[must_use]
            pub fn type_name(&self) -> &'static str {
                match self {
                    Self::Bool(_) => "bool",
                    Self::Text(_) => "text",
                    $(Self::$variant(_) => $name,)*
                }
            }
        }

        $(
            impl private::Sealed for $type {}
            impl Element for $type {
                const DESCR: &'static str = $descr;
                fn wrap(values: Buffer<Self>) -> Values {
                    Values::$variant(values)
                }
            }
        )*
    };
}

elements! {
    I8 i8, "|i1", "int8";
    U8 u8, "|u1", "uint8";
    I16 i16, "<i2", "int16";
    U16 u16, "<u2", "uint16";
    I32 i32, "<i4", "int32";
    U32 u32, "<u4", "uint32";
    I64 i64, "<i8", "int64";
    U64 u64, "<u8", "uint64";
    F16 f16, "<f2", "float16";
    F32 f32, "<f4", "float32";
    F64 f64, "<f8", "float64";
}

/// Evaluates `$body` with `$v` bound to the buffer if `$values` holds integers, else `$other`.
macro_rules! with_integers {
    ($values:expr, $v:ident => $body:expr, else $other:expr) => {
        match $values {
            Values::Bool($v) | Values::U8($v) => $body,
            Values::I8($v) => $body,
            Values::I16($v) => $body,
            Values::U16($v) => $body,
            Values::I32($v) => $body,
            Values::U32($v) => $body,
            Values::I64($v) => $body,
            Values::U64($v) => $body,
            _ => $other,
        }
    };
}

impl Array {
    /// Makes an array from its parts; errors name the file `origin`.
    ///
    /// # Errors
    /// When the product of `shape` is not the number of values.
    pub fn new(origin: &Path, shape: Vec<usize>, values: Values) -> Result<Self, FormatError> {
        let array = Self { origin: origin.to_owned(), shape, values };
        let n_values = array.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if n_values != Some(array.values.len()) {
            return Err(array.error(format!("shape {:?} does not hold {} values", array.shape, array.values.len())));
        }
        Ok(array)
    }

    /// File, or `archive/member`, that the array came from.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Length of every dimension; empty for a single value.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// All values in C order.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Converts to the values.
    #[must_use]
    pub fn into_values(self) -> Values {
        self.values
    }

    /// Slices consecutive items along the first dimension, which stay shared: a mapped array is not read yet.
    ///
    /// # Errors
    /// When `items` ends beyond the first dimension.
    pub fn slice(&self, items: Range<usize>) -> Result<Self, FormatError> {
        let n_items = self.shape.first().copied().unwrap_or(0);
        if items.start > items.end || items.end > n_items {
            return Err(self.error(format!("items {}..{} of {n_items}", items.start, items.end)));
        }
        let width: usize = self.shape[1..].iter().product();
        let values = self.values.slice(items.start * width..items.end * width);
        let shape = [&[items.len()], &self.shape[1..]].concat();
        Ok(Self { origin: self.origin.clone(), shape, values })
    }

    /// Bytes of the values in the mapped file; `None` for an array that was read into memory.
    #[must_use]
    pub fn mapped_bytes(&self) -> Option<&[u8]> {
        self.values.mapped_bytes()
    }

    /// Length of an array of one dimension.
    ///
    /// # Errors
    /// When the array has another number of dimensions.
    pub fn expect_1d(&self) -> Result<usize, FormatError> {
        match self.shape[..] {
            [n] => Ok(n),
            _ => Err(self.error(format!("found shape {:?}; expected one dimension", self.shape))),
        }
    }

    /// Numbers of rows and columns of an array of two dimensions.
    ///
    /// # Errors
    /// When the array has another number of dimensions.
    pub fn expect_2d(&self) -> Result<(usize, usize), FormatError> {
        match self.shape[..] {
            [rows, columns] => Ok((rows, columns)),
            _ => Err(self.error(format!("found shape {:?}; expected two dimensions", self.shape))),
        }
    }

    /// Values as `f32`; other floats and integers are rounded to the nearest.
    ///
    /// # Errors
    /// When the values are text, or a finite `f64` is too large for `f32`.
    pub fn into_f32(self) -> Result<Buffer<f32>, FormatError> {
        if let Values::F64(v) = &self.values
            && let Some(at) = parallel::position(v, |v| v.is_finite() && !(*v as f32).is_finite())
        {
            return Err(self.error(format!("value {at} is {}, which is beyond float32", v[at])));
        }
        Ok(match &self.values {
            Values::F32(v) => v.clone(),
            Values::F16(v) => parallel::convert(v, |v| v.to_f32()).into(),
            Values::F64(v) => parallel::convert(v, |v| v as f32).into(),
            Values::Text(_) => return Err(self.wrong_type("numbers")),
            _ => self.integers(|v| v as f32)?,
        })
    }

    /// Values as unsigned offsets.
    ///
    /// # Errors
    /// When the values are not integers, or one is negative.
    pub fn into_offsets(self) -> Result<Buffer<u64>, FormatError> {
        self.check_integers("an offset", u64::MAX)?;
        Ok(match self.values {
            Values::U64(v) => v,
            Values::I64(v) => v.reinterpreted(),
            _ => self.integers(|v| v as u64)?,
        })
    }

    /// Values as node ids, each below [`MAX_NODES`].
    ///
    /// # Errors
    /// When the values are not integers, or one is negative or too large.
    pub fn into_ids(self) -> Result<Buffer<NodeId>, FormatError> {
        self.check_integers("a node id", MAX_NODES as u64 - 1)?;
        Ok(match self.values {
            Values::U32(v) => v,
            Values::I32(v) => v.reinterpreted(),
            _ => self.integers(|v| v as NodeId)?,
        })
    }

    /// Values as signed integers, for labels and the like.
    ///
    /// # Errors
    /// When the values are not integers, or one does not fit.
    pub fn into_i64(self) -> Result<Buffer<i64>, FormatError> {
        if let Values::U64(v) = &self.values
            && let Some(at) = parallel::position(v, |&v| i64::try_from(v).is_err())
        {
            return Err(self.error(format!("value {at} is {}, which is beyond int64", v[at])));
        }
        match self.values {
            Values::I64(v) => Ok(v),
            _ => self.integers(|v| v as i64),
        }
    }

    /// Values as booleans: NumPy's `bool`, or integers that are all 0 or 1.
    ///
    /// # Errors
    /// When the values are not integers, or one is neither 0 nor 1.
    pub fn into_bools(self) -> Result<Vec<bool>, FormatError> {
        self.check_integers("a truth value", 1)?;
        Ok(self.integers(|v| v as u8)?.iter().map(|&v| v == 1).collect())
    }

    /// Converts the array to a dense matrix.
    ///
    /// # Errors
    /// When the array does not have two dimensions, or as [`Array::into_f32`].
    pub fn into_matrix(self) -> Result<Matrix, FormatError> {
        let (n_rows, n_cols) = self.expect_2d()?;
        let origin = self.origin.clone();
        Matrix::new(n_rows, n_cols, self.into_f32()?).map_err(|e| e.at(&origin))
    }

    /// The strings of an array of text.
    ///
    /// # Errors
    /// When the values are not text.
    pub fn into_text(self) -> Result<Vec<String>, FormatError> {
        match self.values {
            Values::Text(text) => Ok(text),
            _ => Err(self.wrong_type("text")),
        }
    }

    /// Error about this array, naming its file.
    pub(crate) fn error(&self, message: impl Into<String>) -> FormatError {
        FormatError::invalid(message).at(&self.origin)
    }

    fn wrong_type(&self, expected: &str) -> FormatError {
        self.error(format!("values are {}; expected {expected}", self.values.type_name()))
    }

    /// All values, converted one by one.
    fn integers<T: Pod + Default + Send>(&self, of: impl Fn(i128) -> T + Sync) -> Result<Buffer<T>, FormatError> {
        with_integers!(&self.values, v => Ok(parallel::convert(v, |v| of(i128::from(v))).into()), else Err(self.wrong_type("integers")))
    }

    /// Refuses the first value that is not within `0..=max`.
    fn check_integers(&self, what: &str, max: u64) -> Result<(), FormatError> {
        let allowed = 0..=i128::from(max);
        let bad = with_integers!(
            &self.values,
            v => parallel::position(v, |&v| !allowed.contains(&i128::from(v))).map(|at| (at, i128::from(v[at]))),
            else return Err(self.wrong_type("integers"))
        );
        match bad {
            None => Ok(()),
            Some((at, value)) => {
                Err(self.error(format!("value {at} is {value}, which is not {what}; expected 0 to {max}")))
            }
        }
    }
}
