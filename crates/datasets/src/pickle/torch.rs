//! Files of `torch.save`: a zip archive of one pickle, and the values of its tensors in members of their own.
//!
//! ```text
//! NAME/data.pkl     the pickle; a tensor is (storage, offset, size, stride, …), a storage ("storage", type, key, …)
//! NAME/data/KEY     the values of a storage, little-endian
//! ```
//! Nothing is executed: the pickle goes through the same list of allowed names as any other.

use std::path::Path;

use girih_graph_format::NodeId;
use girih_graph_format::file::Npz;

use super::{Global, Instance, Pickle, Value};
use crate::DatasetError;

/// Integer types of stored ids; tensors of other types are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    U8,
    I16,
    I32,
    I64,
    /// Floats and booleans.
    Other,
}

impl Storage {
    /// Storage type by its name in PyTorch.
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "ByteStorage" => Self::U8,
            "ShortStorage" => Self::I16,
            "IntStorage" => Self::I32,
            "LongStorage" => Self::I64,
            "FloatStorage" | "DoubleStorage" | "HalfStorage" | "BFloat16Storage" | "BoolStorage" | "CharStorage" => {
                Self::Other
            }
            _ => return None,
        })
    }

    fn size(self) -> Option<usize> {
        match self {
            Self::U8 => Some(1),
            Self::I16 => Some(2),
            Self::I32 => Some(4),
            Self::I64 => Some(8),
            Self::Other => None,
        }
    }
}

/// First bytes of files of `torch.save` before version 1.6: a pickled magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Open file of `torch.save`.
pub(crate) struct TorchFile {
    zip: Npz,
    /// Folder of all members.
    home: String,
    pickle: Pickle,
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
            return Err(DatasetError::invalid(
                "written by PyTorch before version 1.6, in a format that is not read; write it anew with \
                 torch.save(torch.load(path), path)",
            ));
        }
        let mut zip = Npz::open(path)?;
        let home = zip.members().iter().find_map(|name| name.strip_suffix("data.pkl")).map(str::to_owned);
        let home = home.ok_or_else(|| DatasetError::invalid("a zip archive that torch.save has not written"))?;
        let bytes = zip.member(&format!("{home}data.pkl"))?;
        let pickle = Pickle::parse_torch(&bytes)?;
        Ok(Self { zip, home, pickle })
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

    /// Value of the file.
    pub(crate) fn root(&self) -> Value {
        self.pickle.root().clone()
    }

    /// Ids of a tensor or a NumPy array of one dimension.
    ///
    /// # Errors
    /// When the value is of another kind, or its numbers are not ids.
    pub(crate) fn ids(&mut self, value: &Value) -> Result<Vec<NodeId>, DatasetError> {
        let is_tensor = self.pickle.instance(value).is_some_and(|instance| instance.class == Global::TorchTensor);
        let values = if is_tensor { self.tensor(value)? } else { self.pickle.array(value)?.to_i64()? };
        let id = |&id: &i64| {
            let fits = NodeId::try_from(id).ok();
            fits.ok_or_else(|| DatasetError::invalid(format!("{id} is no node id")))
        };
        values.iter().map(id).collect()
    }

    fn tensor(&mut self, value: &Value) -> Result<Vec<i64>, DatasetError> {
        let Some(tensor) = self.pickle.instance(value) else { return Ok(Vec::new()) };
        let Layout { kind, key, first, n, step } = layout(&self.pickle, tensor)?;
        let size = kind
            .size()
            .ok_or_else(|| DatasetError::invalid("a tensor of floats or truth values; ids are integers".to_owned()))?;
        let bytes = self.zip.member(&format!("{}data/{key}", self.home))?;
        let n_stored = bytes.len() / size;
        let last = n.checked_sub(1).and_then(|last| last.checked_mul(step)?.checked_add(first));
        if n > n_stored || (n > 0 && last.is_none_or(|last| last >= n_stored)) {
            return Err(DatasetError::corrupt(format!("a tensor of {n} values from {first} on, of {n_stored} stored")));
        }
        let at = |i: usize| &bytes[(first + i * step) * size..][..size];
        Ok((0..n).map(|i| little_endian(at(i), kind)).collect())
    }
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

/// Position of the values of a tensor of one dimension.
struct Layout {
    kind: Storage,
    key: String,
    first: usize,
    n: usize,
    step: usize,
}

fn layout(pickle: &Pickle, tensor: &Instance) -> Result<Layout, DatasetError> {
    let wrong = || DatasetError::invalid("a tensor that is not (storage, offset, size, stride, …)");
    let [storage, offset, size, stride, ..] = &tensor.args[..] else { return Err(wrong()) };
    let storage = pickle.instance(storage).ok_or_else(wrong)?;
    let (Global::TorchStorage(kind), Some(key)) = (storage.class, storage.args.get(2).and_then(Value::as_bytes)) else {
        return Err(wrong());
    };
    let number = |value: &Value| pickle.int(value).ok().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
    let (size, stride) = (pickle.sequence(size)?, pickle.sequence(stride)?);
    let ([n], [step]) = (size, stride) else {
        return Err(DatasetError::invalid(format!("a tensor of {} dimensions; ids have one", size.len())));
    };
    let key = String::from_utf8_lossy(key).into_owned();
    Ok(Layout { kind, key, first: number(offset)?, n: number(n)?, step: number(step)? })
}
