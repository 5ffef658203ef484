//! [`Registry`]: objects under numbers, which travel through PyTorch as tensors of one number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use numpy::PyArray1;
use pyo3::PyClass;
use pyo3::prelude::*;

use crate::arrays::view;

/// Objects of a kind that are alive, by number.
pub struct Registry<T>(RwLock<Option<HashMap<i64, Weak<T>>>>);

impl<T: Send + Sync + 'static> Registry<T> {
    pub const fn new() -> Self {
        Self(RwLock::new(None))
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<HashMap<i64, Weak<T>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<HashMap<i64, Weak<T>>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with a number; `None` once it is gone.
    pub fn find(&self, number: i64) -> Option<Arc<T>> {
        self.read().as_ref()?.get(&number)?.upgrade()
    }

    /// Takes an object in, under a number of its own for as long as the result lives.
    pub fn insert(&'static self, object: T) -> Numbered<T> {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let (number, object) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::new(object));
        self.write().get_or_insert_default().insert(number, Arc::downgrade(&object));
        Numbered { object, number: [number], registry: self }
    }
}

/// Object under a number.
pub struct Numbered<T: Send + Sync + 'static> {
    pub object: Arc<T>,
    number: [i64; 1],
    registry: &'static Registry<T>,
}

impl<T: Send + Sync + 'static> Numbered<T> {
    /// The number.
    pub fn number(&self) -> i64 {
        self.number[0]
    }

    /// The number, in memory that belongs to `owner`: an array of one `int64` that keeps it.
    ///
    /// # Safety
    /// `owner` holds this object, and never moves or changes it.
    pub unsafe fn handle<'py, O: PyClass>(&self, owner: &Bound<'py, O>) -> Bound<'py, PyArray1<i64>> {
        // SAFETY: the caller vouches for the owner.
        unsafe { view(owner, &self.number) }
    }
}

impl<T: Send + Sync + 'static> Drop for Numbered<T> {
    fn drop(&mut self) {
        if let Some(live) = self.registry.write().as_mut() {
            live.remove(&self.number());
        }
    }
}
