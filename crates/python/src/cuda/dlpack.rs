//! DLPack: arrays that one library hands to another without a copy, as of version 1.0 of its C structures.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Type of the device: memory of a CUDA GPU.
pub const CUDA: i32 = 2;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// Type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DataType {
    pub const I32: Self = Self { code: 0, bits: 32, lanes: 1 };
    pub const I64: Self = Self { code: 0, bits: 64, lanes: 1 };
    pub const F32: Self = Self { code: 2, bits: 32, lanes: 1 };
    pub const BF16: Self = Self { code: 4, bits: 16, lanes: 1 };

    pub fn name(self) -> &'static str {
        match (self.code, self.bits) {
            (0, 32) => "int32",
            (0, _) => "int64",
            (2, _) => "float32",
            _ => "bfloat16",
        }
    }
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Plain {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Array to hand over: its place, and what keeps its memory.
pub struct Lent {
    pub address: u64,
    pub ordinal: usize,
    pub dtype: DataType,
    pub shape: Vec<i64>,
    /// In elements.
    pub strides: Vec<i64>,
    /// Dropped when the other library is done, on any thread, perhaps without the GIL.
    pub _keeper: Box<dyn Send>,
}

impl Lent {
    fn tensor(&mut self) -> Tensor {
        Tensor {
            data: self.address as *mut c_void,
            device_type: CUDA,
            device_id: self.ordinal as i32,
            ndim: self.shape.len() as i32,
            dtype: self.dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        }
    }

    /// Capsule of the array; of the versioned form if the taker knows it.
    pub fn into_capsule(self, py: Python<'_>, is_versioned: bool) -> PyResult<Bound<'_, PyAny>> {
        let mut lent = Box::new(self);
        let tensor = lent.tensor();
        let context = Box::into_raw(lent).cast::<c_void>();
        let (managed, name) = if is_versioned {
            let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut Versioned));
            let managed = Versioned { version: [1, 0], context, deleter, flags: 0, tensor };
            (Box::into_raw(Box::new(managed)).cast::<c_void>(), VERSIONED)
        } else {
            let deleter = Some(delete_plain as unsafe extern "C" fn(*mut Plain));
            (Box::into_raw(Box::new(Plain { tensor, context, deleter })).cast::<c_void>(), PLAIN)
        };
        // SAFETY: the pointer is not null, the name is static, and the destructor takes a capsule of this name.
        let capsule = unsafe { ffi::PyCapsule_New(managed, name.as_ptr(), Some(release)) };
        let Some(capsule) = NonNull::new(capsule) else {
            return Err(PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("Python makes no capsule")));
        };
        // SAFETY: it is a new object, owned by us.
        Ok(unsafe { Bound::from_owned_ptr(py, capsule.as_ptr()) })
    }
}

/// Frees what a capsule holds that nobody took: takers rename it.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that is being destroyed; its pointer is that of its name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// Frees an array that its taker is done with.
unsafe extern "C" fn delete_plain(managed: *mut Plain) {
    // SAFETY: both were made by `Box::into_raw`, and the taker calls this once.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Lent>())) };
}

/// As [`delete_plain`].
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as there.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Lent>())) };
}
