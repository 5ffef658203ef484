//! Python pickles, read as data and never executed.
//!
//! A pickle is a program for a stack machine whose `GLOBAL` and `REDUCE` instructions call anything that Python can
//! import. This reader knows a fixed list of names ([`Global`]) and calls none of them. `REDUCE` and `BUILD` only
//! record the call with its arguments, and `arrays` reads NumPy arrays and `SciPy` matrices from such records. Any
//! other name is refused, and the error states it.
//!
//! ```text
//! bytes ──machine──▶ Pickle { objects, root } ──arrays──▶ PickledArray, Csr
//! ```
//! Containers live in one arena and refer to each other by position, so that deep or cyclic nesting costs no stack.
//! Memory stays proportional to the file: every instruction is at least one byte and makes at most one object.

pub(crate) mod arrays;
mod cursor;
mod literal;
mod machine;
pub(crate) mod torch;

use std::path::Path;
use std::rc::Rc;

use girih_graph_format::file::{Sniffed, check_binary};

use crate::DatasetError;

/// Objects of one pickle.
#[derive(Debug)]
pub(crate) struct Pickle {
    objects: Vec<Object>,
    root: Value,
}

/// Value on the machine's stack; cloning shares the referenced data.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A float; no data set keeps one outside an array, so its value is dropped.
    Float,
    /// Bytes; also every Python 2 string, in latin-1.
    Bytes(Rc<[u8]>),
    Text(Rc<str>),
    Global(Global),
    Object(ObjectId),
}

/// Position in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectId(usize);

/// Container, or the record of a call.
#[derive(Debug)]
pub(crate) enum Object {
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Instance(Instance),
}

/// Record of an object of an allowed class; `offset` is the byte of the instruction that made it.
#[derive(Debug)]
pub(crate) struct Instance {
    class: Global,
    args: Vec<Value>,
    state: Option<Value>,
    offset: usize,
}

/// Names that a pickle may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    NumpyReconstruct,
    NumpyArray,
    NumpyDtype,
    NumpyScalar,
    ScipyCsr,
    Dict,
    List,
    PlainObject,
    CopyReconstructor,
    CodecsEncode,
    TorchTensor,
    /// Reference to values in another member of the archive.
    TorchStorage(torch::Storage),
}

impl Global {
    /// Looks up the allow-list: modules have moved between versions of Python, NumPy and `SciPy`.
    fn find(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::NumpyReconstruct,
            ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Self::NumpyScalar,
            ("numpy", "ndarray") => Self::NumpyArray,
            ("numpy", "dtype") => Self::NumpyDtype,
            ("scipy.sparse.csr" | "scipy.sparse._csr", "csr_matrix") => Self::ScipyCsr,
            ("collections", "defaultdict" | "OrderedDict") | ("__builtin__" | "builtins", "dict") => Self::Dict,
            ("__builtin__" | "builtins", "list") => Self::List,
            ("__builtin__" | "builtins", "object") => Self::PlainObject,
            ("copy_reg" | "copyreg", "_reconstructor") => Self::CopyReconstructor,
            ("_codecs", "encode") => Self::CodecsEncode,
            ("torch._utils", "_rebuild_tensor_v2") => Self::TorchTensor,
            ("torch", name) => Self::TorchStorage(torch::Storage::find(name)?),
            _ => return None,
        })
    }
}

impl Pickle {
    /// Reads a pickle file of protocol 0 to 4.
    ///
    /// # Errors
    /// When the file cannot be read, is cut off or damaged, or asks for a name that is not allowed.
    pub(crate) fn open(path: &Path) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(|e| DatasetError::from(e).at(path))?;
        Self::parse(&bytes).map_err(|e| {
            let other = check_binary(&bytes, "a Python pickle", Sniffed::Pickle).err();
            other.map_or(e, DatasetError::from).at(path)
        })
    }

    /// Reads the bytes of a pickle.
    ///
    /// # Errors
    /// As [`Pickle::open`], each naming the byte.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DatasetError> {
        Ok(machine::run(bytes, 0, false)?.0)
    }

    /// Reads a pickle that PyTorch wrote, from byte `start` on: values of tensors lie outside it. Also returns the byte
    /// after its end.
    ///
    /// # Errors
    /// As [`Pickle::parse`].
    pub(crate) fn parse_torch(bytes: &[u8], start: usize) -> Result<(Self, usize), DatasetError> {
        machine::run(bytes, start, true)
    }

    /// Value of the whole pickle.
    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// Pairs of a dictionary, in file order.
    ///
    /// # Errors
    /// When `value` is not a dictionary.
    pub(crate) fn dict(&self, value: &Value) -> Result<&[(Value, Value)], DatasetError> {
        match value {
            Value::Object(id) => match &self.objects[id.0] {
                Object::Dict(pairs) => Ok(pairs),
                other => Err(expected("a dictionary", other.describe())),
            },
            other => Err(expected("a dictionary", other.describe())),
        }
    }

    /// Items of a list or tuple.
    ///
    /// # Errors
    /// When `value` is neither.
    pub(crate) fn sequence(&self, value: &Value) -> Result<&[Value], DatasetError> {
        match value {
            Value::Object(id) => match &self.objects[id.0] {
                Object::List(items) | Object::Tuple(items) => Ok(items),
                other => Err(expected("a list", other.describe())),
            },
            other => Err(expected("a list", other.describe())),
        }
    }

    fn instance(&self, value: &Value) -> Option<&Instance> {
        match value {
            Value::Object(id) => match &self.objects[id.0] {
                Object::Instance(instance) => Some(instance),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Value {
    /// Kind of the value, for messages.
    fn describe(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float => "a float",
            Self::Bytes(_) | Self::Text(_) => "a string",
            Self::Global(_) => "a class or function",
            Self::Object(_) => "an object",
        }
    }

    /// Bytes of a string of either kind.
    fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Text(text) => Some(text.as_bytes()),
            _ => None,
        }
    }
}

impl Object {
    fn describe(&self) -> &'static str {
        match self {
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
            Self::Instance(_) => "an instance of a class",
        }
    }
}

fn expected(what: &str, found: &str) -> DatasetError {
    DatasetError::invalid(format!("the pickle holds {found} where {what} is expected"))
}

#[cfg(test)]
mod tests;
