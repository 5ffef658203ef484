//! [`Buffer`]: memory of a device, which goes back to where it came from when it is dropped.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop, sys,
};

/// Elements in memory of a device. Memory of a guest's stream goes back to its pool, which hands it out again without the
/// driver; other memory is freed by the driver.
pub(crate) struct Buffer<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    home: Option<Home>,
}

/// Owner of memory that buffers are made of.
pub(crate) trait TakesBack: Send + Sync {
    /// Takes the memory of a dropped buffer back, in the order of its stream.
    fn take_back(&self, stream: &Arc<CudaStream>, address: u64, n_bytes: usize);
}

/// Where memory goes back to.
pub(crate) struct Home {
    pub(crate) owner: Arc<dyn TakesBack>,
    /// Bytes of the memory, which may be more than those of the elements.
    pub(crate) n_bytes: usize,
}

impl<T> Buffer<T> {
    /// Elements in memory that goes back to `home`.
    pub(crate) fn of(slice: CudaSlice<T>, home: Home) -> Self {
        Self { slice: ManuallyDrop::new(slice), home: Some(home) }
    }

    /// Leaves the memory to its owner.
    pub(crate) fn forget(mut self) {
        self.home = None;
        let mut left = ManuallyDrop::new(self);
        // SAFETY: the slice is taken once: the buffer is not dropped.
        let _address = unsafe { ManuallyDrop::take(&mut left.slice) }.leak();
    }
}

impl<T> From<CudaSlice<T>> for Buffer<T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self { slice: ManuallyDrop::new(slice), home: None }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once, and not used again.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        if let Some(Home { owner, n_bytes }) = self.home.take() {
            let stream = Arc::clone(slice.stream());
            owner.take_back(&stream, slice.leak(), n_bytes);
        }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.slice
    }
}

impl<T> DeviceSlice<T> for Buffer<T> {
    fn len(&self) -> usize {
        self.slice.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.slice.stream()
    }
}

impl<T> DevicePtr<T> for Buffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr(stream)
    }
}

impl<T> DevicePtrMut<T> for Buffer<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr_mut(stream)
    }
}

// SAFETY: the argument is that of the slice.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b Buffer<T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b Buffer<T>) -> &mut Self {
        self.arg(&*arg.slice)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut Buffer<T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut Buffer<T>) -> &mut Self {
        self.arg(&mut *arg.slice)
    }
}
