//! Files of `torch.save`: one pickle, and the values of its tensors outside it.
//!
//! ```text
//! from PyTorch 1.6 on, a zip archive:
//! NAME/data.pkl     the pickle; a tensor is (storage, offset, size, stride, …), a storage ("storage", type, key, …)
//! NAME/data/KEY     the values of a storage, little-endian
//!
//! before, one after the other: pickles of a magic number, a version, sizes of types; the pickle; a pickled list of the
//! keys of storages; of each storage, the number of its values as i64, and the values
//! ```
//! Nothing is executed: every pickle goes through the same list of allowed names as any other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use girih_graph_format::NodeId;
use girih_graph_format::file::Npz;

use super::{Global, Instance, Object, Pickle, Value};
use crate::DatasetError;

/// Types of stored values, of which integers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    U8,
    I16,
    I32,
    I64,
    /// Floats, booleans and signed bytes, of this many bytes each.
    Other(u8),
}

impl Storage {
    /// Storage type by its name in PyTorch.
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "ByteStorage" => Self::U8,
            "ShortStorage" => Self::I16,
            "IntStorage" => Self::I32,
            "LongStorage" => Self::I64,
            "BoolStorage" | "CharStorage" => Self::Other(1),
            "HalfStorage" | "BFloat16Storage" => Self::Other(2),
            "FloatStorage" => Self::Other(4),
            "DoubleStorage" => Self::Other(8),
            _ => return None,
        })
    }

    /// Bytes of a value.
    fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
            Self::Other(size) => size.into(),
        }
    }
}

/// First bytes of files of `torch.save` before version 1.6: a pickled magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// Number of pickles between the magic number and the pickle of the values: version, and sizes of types.
const LEGACY_HEADERS: usize = 2;

/// Open file of `torch.save`.
pub(crate) struct TorchFile {
    storages: Storages,
    pickle: Pickle,
}

/// Values of tensors.
enum Storages {
    /// Members of an archive, below a folder.
    Zip { zip: Npz, home: String },
    /// Bytes of the file, by key.
    Tail { bytes: Vec<u8>, places: HashMap<Vec<u8>, Range<usize>> },
}

/// Ids of an array, row-major.
pub(crate) struct IdArray {
    /// One or two extents.
    pub(crate) shape: Vec<usize>,
    /// All ids.
    pub(crate) ids: Vec<NodeId>,
}

impl TorchFile {
    /// Opens a file and reads its pickle.
    ///
    /// # Errors
    /// When the file cannot be read, is not a file of `torch.save`, or its pickle asks for a name that is not
    /// allowed.
    pub(crate) fn open(path: &Path) -> Result<Self, DatasetError> {
        Self::read(path).map_err(|e| e.at(path))
    }

    fn read(path: &Path) -> Result<Self, DatasetError> {
        let starts_old = std::fs::File::open(path).is_ok_and(|mut file| {
            let mut start = vec![0; LEGACY.len()];
            std::io::Read::read_exact(&mut file, &mut start).is_ok() && start == LEGACY
        });
        if starts_old {
            return Self::read_legacy(std::fs::read(path)?);
        }
        let mut zip = Npz::open(path)?;
        let home = zip.members().iter().find_map(|name| name.strip_suffix("data.pkl")).map(str::to_owned);
        let home = home.ok_or_else(|| DatasetError::invalid("a zip archive that torch.save has not written"))?;
        let bytes = zip.member(&format!("{home}data.pkl"))?;
        let pickle = Pickle::parse_torch(&bytes, 0)?.0;
        Ok(Self { storages: Storages::Zip { zip, home }, pickle })
    }

    fn read_legacy(bytes: Vec<u8>) -> Result<Self, DatasetError> {
        let mut at = LEGACY.len();
        for _ in 0..LEGACY_HEADERS {
            at = Pickle::parse_torch(&bytes, at)?.1;
        }
        let (pickle, end) = Pickle::parse_torch(&bytes, at)?;
        let (keys, mut at) = Pickle::parse_torch(&bytes, end)?;
        let (kinds, mut places) = (pickle.storage_kinds(), HashMap::new());
        for key in keys.sequence(keys.root())? {
            let key = key.as_bytes().unwrap_or_default();
            let cut = || DatasetError::corrupt(format!("byte {at}: the file ends within the values of a tensor"));
            let kind = kinds.get(key).ok_or_else(|| {
                DatasetError::corrupt(format!("byte {at}: values of a tensor that the pickle does not have"))
            })?;
            let n = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or_else(cut)?;
            let n_bytes = usize::try_from(i64::from_le_bytes(*n)).ok().and_then(|n| n.checked_mul(kind.size()));
            let end = n_bytes.and_then(|n| n.checked_add(at + size_of::<i64>())).filter(|&end| end <= bytes.len());
            let place = at + size_of::<i64>()..end.ok_or_else(cut)?;
            at = place.end;
            places.insert(key.to_vec(), place);
        }
        Ok(Self { storages: Storages::Tail { bytes, places }, pickle })
    }

    /// Values of the file's dictionary, under their keys; `None` when the file holds no dictionary.
    pub(crate) fn entries(&self) -> Option<Vec<(String, Value)>> {
        let pairs = self.pickle.dict(self.pickle.root()).ok()?;
        let text = |value: &Value| value.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        pairs.iter().map(|(key, value)| Some((text(key)?, value.clone()))).collect()
    }

    /// Whether a value is a dictionary.
    pub(crate) fn is_dict(&self, value: &Value) -> bool {
        self.pickle.dict(value).is_ok()
    }

    /// Integer value.
    ///
    /// # Errors
    /// When the value is no integer.
    pub(crate) fn int(&self, value: &Value) -> Result<i64, DatasetError> {
        self.pickle.int(value)
    }

    /// Value of the file.
    pub(crate) fn root(&self) -> Value {
        self.pickle.root().clone()
    }

    /// Ids of a tensor or a NumPy array of `n_dims` dimensions, one or two.
    ///
    /// # Errors
    /// When the value is of another kind, or its numbers are not ids.
    pub(crate) fn ids(&mut self, value: &Value, n_dims: usize) -> Result<IdArray, DatasetError> {
        let is_tensor = self.pickle.instance(value).is_some_and(|instance| instance.class == Global::TorchTensor);
        if is_tensor {
            return self.tensor(value, n_dims);
        }
        let array = self.pickle.array(value)?;
        check_dimensions("an array", array.shape(), n_dims)?;
        let ids = array.to_i64()?.into_iter().map(node_id).collect::<Result<_, _>>()?;
        Ok(IdArray { shape: array.shape().to_vec(), ids })
    }

    fn tensor(&mut self, value: &Value, n_dims: usize) -> Result<IdArray, DatasetError> {
        let tensor = self.pickle.instance(value).expect("a tensor");
        let Layout { kind, key, first, shape, steps } = layout(&self.pickle, tensor)?;
        check_dimensions("a tensor", &shape, n_dims)?;
        if matches!(kind, Storage::Other(_)) {
            return Err(DatasetError::invalid("a tensor of floats or truth values; ids are integers"));
        }
        let bytes = self.storages.values(&key)?;
        let n_stored = bytes.len() / kind.size();
        let n = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let last = shape.iter().zip(&steps).try_fold(first, |at, (&n, &step)| {
            n.saturating_sub(1).checked_mul(step).and_then(|offset| offset.checked_add(at))
        });
        let n = n.filter(|&n| n == 0 || (n <= n_stored && last.is_some_and(|last| last < n_stored)));
        let Some(n) = n else {
            let message = format!("a tensor of {shape:?} values from {first} on, of {n_stored} stored");
            return Err(DatasetError::corrupt(message));
        };
        let at = |i: usize| match (&shape[..], &steps[..]) {
            (&[_, n_cols], &[row, column]) => first + i / n_cols * row + i % n_cols * column,
            _ => first + i * steps[0],
        };
        let id = |i: usize| node_id(little_endian(&bytes[at(i) * kind.size()..][..kind.size()], kind));
        Ok(IdArray { ids: (0..n).map(id).collect::<Result<_, _>>()?, shape })
    }
}

impl Storages {
    /// Values of a storage.
    fn values(&mut self, key: &[u8]) -> Result<Cow<'_, [u8]>, DatasetError> {
        match self {
            Self::Zip { zip, home } => {
                Ok(Cow::Owned(zip.member(&format!("{home}data/{}", String::from_utf8_lossy(key)))?))
            }
            Self::Tail { bytes, places } => {
                let place = places.get(key).cloned();
                let place = place.ok_or_else(|| DatasetError::corrupt("a tensor whose values are not in the file"))?;
                Ok(Cow::Borrowed(&bytes[place]))
            }
        }
    }
}

impl Pickle {
    /// Types of the storages that tensors refer to, by key.
    fn storage_kinds(&self) -> HashMap<&[u8], Storage> {
        let kind = |object| match object {
            &Object::Instance(Instance { class: Global::TorchStorage(kind), ref args, .. }) => {
                Some((args.get(2).and_then(Value::as_bytes)?, kind))
            }
            _ => None,
        };
        self.objects.iter().filter_map(kind).collect()
    }
}

fn node_id(id: i64) -> Result<NodeId, DatasetError> {
    NodeId::try_from(id).map_err(|_| DatasetError::invalid(format!("{id} is no node id")))
}

fn check_dimensions(what: &str, shape: &[usize], n_dims: usize) -> Result<(), DatasetError> {
    if shape.len() == n_dims {
        return Ok(());
    }
    let found = shape.len();
    Err(DatasetError::invalid(format!("{what} of {found} dimensions, where {n_dims} are expected")))
}

fn little_endian(bytes: &[u8], kind: Storage) -> i64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    match kind {
        Storage::I16 => i64::from(i16::from_le_bytes([word[0], word[1]])),
        Storage::I32 => i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]])),
        _ => i64::from_le_bytes(word),
    }
}

/// Position of the values of a tensor.
struct Layout {
    kind: Storage,
    key: Vec<u8>,
    first: usize,
    shape: Vec<usize>,
    /// Distance of consecutive values along each dimension.
    steps: Vec<usize>,
}

fn layout(pickle: &Pickle, tensor: &Instance) -> Result<Layout, DatasetError> {
    let wrong = || DatasetError::invalid("a tensor that is not (storage, offset, size, stride, …)");
    let [storage, offset, size, stride, ..] = &tensor.args[..] else { return Err(wrong()) };
    let storage = pickle.instance(storage).ok_or_else(wrong)?;
    let (Global::TorchStorage(kind), Some(key)) = (storage.class, storage.args.get(2).and_then(Value::as_bytes)) else {
        return Err(wrong());
    };
    let number = |value: &Value| pickle.int(value).ok().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
    let numbers = |value: &Value| pickle.sequence(value)?.iter().map(number).collect::<Result<Vec<_>, _>>();
    let (shape, steps) = (numbers(size)?, numbers(stride)?);
    if shape.len() != steps.len() || shape.len() > 2 {
        return Err(DatasetError::invalid(format!("a tensor of {} dimensions; ids have one or two", shape.len())));
    }
    // Before PyTorch 1.6, a storage could be a part of another one.
    if storage.args.get(5).is_some_and(|view| !matches!(view, Value::None)) {
        return Err(DatasetError::invalid("a tensor that shares the values of another; save a copy of it"));
    }
    Ok(Layout { kind, key: key.to_vec(), first: number(offset)?, shape, steps })
}
