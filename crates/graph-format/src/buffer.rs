//! [`Buffer`]: an immutable array that is owned or mapped from a file.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// An immutable array of plain values, owned or memory-mapped; cloning shares it.
///
/// # Invariants
/// A mapped buffer lies inside its map and is aligned for `T`; both are checked when it is made.
#[derive(Clone)]
pub struct Buffer<T> {
    storage: Storage<T>,
}

#[derive(Clone)]
enum Storage<T> {
    Owned(Arc<Vec<T>>),
    Mapped { map: Arc<Mmap>, offset: usize, len: usize },
}

impl<T: Pod> Buffer<T> {
    /// The `len` values from byte `offset` of a mapped file; `None` when they reach past its end or are not
    /// aligned for `T`.
    ///
    /// Values are read as they lie in the file, so the file must be little-endian, as every supported machine is.
    #[must_use]
    pub fn mapped(map: Arc<Mmap>, offset: usize, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let region = map.get(offset..offset.checked_add(bytes)?)?;
        bytemuck::try_cast_slice::<u8, T>(region).ok()?;
        Some(Self { storage: Storage::Mapped { map, offset, len } })
    }

    /// Whether the values lie in a mapped file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::Mapped { .. })
    }

    /// The same bits as values of another type of the same size and alignment; copies only an owned buffer that is
    /// shared.
    ///
    /// # Panics
    /// When size or alignment of the types differ.
    #[must_use]
    pub fn reinterpreted<U: Pod>(self) -> Buffer<U> {
        assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>(), "types of different layout");
        match self.storage {
            Storage::Mapped { map, offset, len } => Buffer { storage: Storage::Mapped { map, offset, len } },
            Storage::Owned(_) => bytemuck::cast_vec(self.into_vec()).into(),
        }
    }

    /// The values, to be changed: copied first when they are mapped or have another owner.
    pub fn make_mut(&mut self) -> &mut [T] {
        if self.is_mapped() {
            *self = Self::from(self.to_vec());
        }
        match &mut self.storage {
            Storage::Owned(values) => Arc::make_mut(values).as_mut_slice(),
            Storage::Mapped { .. } => unreachable!("copied above"),
        }
    }

    /// The values as an owned vector, without a copy when this is the only owner.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        match self.storage {
            Storage::Owned(values) => Arc::try_unwrap(values).unwrap_or_else(|shared| shared.as_ref().clone()),
            Storage::Mapped { .. } => self.to_vec(),
        }
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Self { storage: Storage::Owned(Arc::new(values)) }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.storage {
            Storage::Owned(values) => values,
            Storage::Mapped { map, offset, len } => bytemuck::cast_slice(&map[*offset..*offset + len * size_of::<T>()]),
        }
    }
}

impl<T: Pod + PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().take(16)).finish_non_exhaustive()
    }
}
