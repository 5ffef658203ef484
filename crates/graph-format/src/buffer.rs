//! [`Buffer`]: an immutable array that is owned, mapped from a file, or lent by another owner.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Pod;
use girih_machine::{advise_huge_pages, parallel};

use crate::file::MappedFile;

/// Immutable array of plain values, owned, memory-mapped or lent by another owner; cloning and slicing share it.
///
/// # Invariants
/// The values lie inside the storage, and mapped values are aligned for `T`. The constructors check both. Lent values
/// live as long as their owner, of which the storage holds a reference.
#[derive(Clone)]
pub struct Buffer<T: 'static> {
    storage: Storage<T>,
    /// Position of the first value in the storage.
    start: usize,
    len: usize,
}

#[derive(Clone)]
enum Storage<T: 'static> {
    Owned(Arc<Vec<T>>),
    /// Values of a map, from a byte offset on.
    Mapped {
        map: Arc<MappedFile>,
        offset: usize,
    },
    /// Values of `owner`. They are given out for the lifetime of the buffer, and not for theirs.
    Lent {
        values: &'static [T],
        owner: Arc<dyn Any + Send + Sync>,
    },
}

impl<T: Pod> Buffer<T> {
    /// Maps `len` values from byte `offset` of a mapped file; `None` when they reach past its end or are not aligned
    /// for `T`.
    ///
    /// Bytes are not converted, so the file must be little-endian, as every supported machine is.
    #[must_use]
    pub fn mapped(map: Arc<MappedFile>, offset: usize, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let region = map.get(offset..offset.checked_add(bytes)?)?;
        bytemuck::try_cast_slice::<u8, T>(region).ok()?;
        Some(Self { storage: Storage::Mapped { map, offset }, start: 0, len })
    }

    /// Values that belong to `owner`, such as an array of another language, without a copy. The owner is dropped with
    /// the last buffer that shares them.
    ///
    /// An owner may lend memory that others write to, as mapped files are: it answers for that. So [`in_memory`]
    /// copies the values, and code that gathers without checks reads a copy.
    ///
    /// [`in_memory`]: Self::in_memory
    #[must_use]
    pub fn from_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        let owner = Arc::new(owner);
        let values: &[T] = (*owner).as_ref();
        let (first, len) = (values.as_ptr(), values.len());
        // SAFETY: `first` and `len` are those of a slice that borrows from `*owner`, so that they are valid, aligned and
        // initialised while that borrow may last. It may last as long as the `Arc`, which the storage holds beside the
        // slice: the owner neither moves (it lies on the heap) nor is it borrowed mutably (`Arc` has no other way to it
        // than `get_mut`, which needs the only reference, and none leaves this module), and it is dropped after the
        // last clone of the storage. `deref` shortens the lifetime to that of a buffer, so that no slice outlives it.
        let values: &'static [T] = unsafe { std::slice::from_raw_parts(first, len) };
        Self { storage: Storage::Lent { values, owner }, start: 0, len }
    }

    /// Slices consecutive values, which stay shared.
    ///
    /// # Panics
    /// When `range` ends beyond the values.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "values {range:?} of {}", self.len);
        Self { storage: self.storage.clone(), start: self.start + range.start, len: range.len() }
    }

    /// Whether the values lie in a mapped file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::Mapped { .. })
    }

    /// Whether the values belong to buffers alone, so that nobody can change them.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        matches!(self.storage, Storage::Owned(_))
    }

    /// Values that buffers [own](Self::is_owned): shared if they are, else copied in parallel.
    #[must_use]
    pub fn in_memory(&self) -> Self
    where
        T: Send + Sync,
    {
        /// Number of values that one task copies.
        const COPIED: usize = 1 << 18;
        if self.is_owned() {
            return self.clone();
        }
        let values: &[T] = self;
        let mut copy = bytemuck::zeroed_vec(values.len());
        advise_huge_pages(copy.as_ptr(), copy.len());
        parallel::for_each(copy.chunks_mut(COPIED).zip(values.chunks(COPIED)), |(to, from)| to.copy_from_slice(from));
        copy.into()
    }

    /// Reinterprets the bits as values of another type of equal size and alignment. Copies only an owned buffer that
    /// is shared.
    ///
    /// # Panics
    /// When size or alignment of the types differ.
    #[must_use]
    pub fn reinterpreted<U: Pod>(self) -> Buffer<U> {
        assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>(), "types of different layout");
        match self.storage {
            Storage::Mapped { map, offset } => {
                Buffer { storage: Storage::Mapped { map, offset }, start: self.start, len: self.len }
            }
            Storage::Lent { values, owner } => {
                let values = bytemuck::cast_slice(values);
                Buffer { storage: Storage::Lent { values, owner }, start: self.start, len: self.len }
            }
            Storage::Owned(_) => bytemuck::cast_vec(self.into_vec()).into(),
        }
    }

    /// Whether the buffer covers all values of its vector.
    fn is_whole(&self) -> bool {
        matches!(&self.storage, Storage::Owned(values) if values.len() == self.len)
    }

    /// Values for modification: copied first if they are not [owned](Self::is_owned), are a slice, or are shared.
    pub fn make_mut(&mut self) -> &mut [T] {
        if !self.is_whole() {
            *self = Self::from(self.to_vec());
        }
        match &mut self.storage {
            Storage::Owned(values) => Arc::make_mut(values).as_mut_slice(),
            Storage::Mapped { .. } | Storage::Lent { .. } => unreachable!("copied above"),
        }
    }

    /// Converts to an owned vector, without a copy when this is the only owner.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        match self.storage {
            Storage::Owned(values) if values.len() == self.len => {
                Arc::try_unwrap(values).unwrap_or_else(|shared| shared.as_ref().clone())
            }
            _ => self.to_vec(),
        }
    }
}

impl<T: 'static> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Self { start: 0, len: values.len(), storage: Storage::Owned(Arc::new(values)) }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.storage {
            Storage::Owned(values) => &values[self.start..self.start + self.len],
            Storage::Mapped { map, offset } => {
                let first = offset + self.start * size_of::<T>();
                bytemuck::cast_slice(&map[first..first + self.len * size_of::<T>()])
            }
            Storage::Lent { values, .. } => &values[self.start..self.start + self.len],
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
