//! [`Timeline`]: activity of the GPUs of this process over time, recorded by NVIDIA's profiling library (CUPTI).

use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::cupti::result::{CuptiError, activity, get_timestamp};
use cudarc::cupti::sys::{
    CUpti_Activity, CUpti_ActivityKernel10, CUpti_ActivityKind, CUpti_ActivityMemcpy6, CUpti_ActivityMemcpyKind,
    CUpti_ActivityMemcpyPtoP4, CUpti_ActivityMemset4,
};
use cudarc::driver::sys::CUcontext;
use girih_pipeline::{Event, Trace, Track};

use crate::error::{KernelError, Kind};
use crate::libraries;

/// Recorded kinds of activity: concurrent kernels, copies, copies between GPUs, and fills.
const KINDS: [CUpti_ActivityKind; 4] = [
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET,
];
/// Most records that are kept, the latest ones.
const KEPT: usize = 200_000;
/// Buffer that the library fills: 4 MiB, with the alignment that it needs.
const BUFFER: Layout = Layout::new::<[u64; 1 << 19]>();
/// Name of copies between GPUs, and the kind in their records.
const COPY_BETWEEN: &str = "copy from another GPU";
const BETWEEN_GPUS: u32 = CUpti_ActivityMemcpyKind::CUPTI_ACTIVITY_MEMCPY_KIND_PTOP as u32;
/// Flush flag: also flush buffers that are not full.
const FORCED: u32 = 1;

/// Recording under way in this process, if there is one.
static RECORDING: Mutex<Option<Recorder>> = Mutex::new(None);

/// Recording of the activity of all GPUs of this process: its last 200 000 kernels and copies. It costs each kernel
/// about a microsecond. CUDA graphs have to be captured after the recording began.
#[derive(Debug)]
pub struct Timeline(());

#[derive(Default)]
struct Recorder {
    spans: VecDeque<Span>,
    names: HashSet<Arc<str>>,
    marks: Vec<Mark>,
}

/// Name of the program's activity up to a moment.
struct Mark {
    name: String,
    /// End in nanoseconds, by the clock of spans.
    until: u64,
}

/// Activity of a GPU.
struct Span {
    device: u32,
    stream: u32,
    /// Start and end in nanoseconds.
    from: u64,
    to: u64,
    name: Arc<str>,
    category: &'static str,
}

impl Timeline {
    /// Category of kernels of NCCL and of copies from another GPU.
    pub const EXCHANGE: &str = "exchange";
    /// Category of all other kernels.
    pub const KERNEL: &str = "kernel";
    /// Category of copies and fills.
    pub const COPY: &str = "copy";
    /// Category of marks.
    pub const MARK: &str = "mark";

    /// Starts the recording.
    ///
    /// # Errors
    /// When the library is missing or refuses, or this process records already.
    pub fn begin() -> Result<Self, KernelError> {
        libraries::PROFILER.load()?;
        {
            let mut recording = lock();
            if recording.is_some() {
                return Err(Kind::Profiler("this process records a timeline already".to_owned()).into());
            }
            *recording = Some(Recorder::default());
        }
        let timeline = Self(());
        timeline.mark("")?;
        activity::register_callbacks(Some(give_buffer), Some(take_buffer)).map_err(refused)?;
        for kind in KINDS {
            activity::enable(kind).map_err(refused)?;
        }
        Ok(timeline)
    }

    /// Names the time since the last mark, or since the recording began.
    ///
    /// # Errors
    /// When the library fails.
    pub fn mark(&self, name: &str) -> Result<(), KernelError> {
        let mut until = 0;
        // SAFETY: the function writes a number.
        unsafe { get_timestamp(&raw mut until) }.map_err(refused)?;
        if let Some(recording) = lock().as_mut() {
            recording.marks.push(Mark { name: name.to_owned(), until });
        }
        Ok(())
    }

    /// Ends the recording, once all work asked of the GPUs is done. A group of the trace is a GPU, `cuda:0`, and a
    /// row is one of its streams. The first row has the marks. Time starts with the recording.
    ///
    /// # Errors
    /// When the library fails.
    pub fn finish(self) -> Result<Trace, KernelError> {
        activity::flush_all(FORCED).map_err(refused)?;
        let recording = lock().take().unwrap_or_default();
        Ok(trace(recording))
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        for kind in KINDS {
            // Kinds that are not recorded cannot be stopped either; nobody needs the error.
            let _ = activity::disable(kind);
        }
        lock().take();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Recorder>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: CuptiError) -> KernelError {
    let what =
        error.error_string().map_or_else(|_| format!("{:?}", error.0), |text| text.to_string_lossy().into_owned());
    Kind::Profiler(what).into()
}

/// Gives the library a buffer to fill.
unsafe extern "C" fn give_buffer(buffer: *mut *mut u8, size: *mut usize, n_records_max: *mut usize) {
    // SAFETY: the library passes places to write to. It takes no buffer if the pointer is null.
    unsafe {
        *buffer = alloc(BUFFER);
        *size = if (*buffer).is_null() { 0 } else { BUFFER.size() };
        *n_records_max = 0;
    }
}

/// Takes the records of a buffer, and frees it.
unsafe extern "C" fn take_buffer(_: CUcontext, _: u32, buffer: *mut u8, _: usize, n_bytes: usize) {
    if buffer.is_null() {
        return;
    }
    let (mut recording, mut record) = (lock(), std::ptr::null_mut());
    // SAFETY: the library gives back a buffer of `give_buffer` with so many bytes of records, and steps through them.
    while unsafe { activity::get_next_record(buffer, n_bytes, &raw mut record) }.is_ok() {
        if let Some(recording) = recording.as_mut() {
            // SAFETY: the record lies in the buffer.
            unsafe { recording.take(record) };
        }
    }
    drop(recording);
    // SAFETY: `give_buffer` allocated it, and nobody else has it any more.
    unsafe { dealloc(buffer, BUFFER) };
}

/// Device, stream, start and end of a record.
macro_rules! span {
    ($record:expr, $kind:ty) => {{
        let record = $record.cast::<$kind>();
        // Records are packed, and hold enumerations that newer libraries extend: only these fields are read.
        let (device, stream) = (&raw const (*record).deviceId, &raw const (*record).streamId);
        let (from, to) = (&raw const (*record).start, &raw const (*record).end);
        (device.read_unaligned(), stream.read_unaligned(), from.read_unaligned(), to.read_unaligned())
    }};
}

impl Recorder {
    /// # Safety
    /// `record` is one of CUPTI's, of version 13.0 or one that starts like it.
    unsafe fn take(&mut self, record: *const CUpti_Activity) {
        // SAFETY: every record starts with its kind, which is 32 bits and determines its type.
        let kind = unsafe { record.cast::<u32>().read_unaligned() };
        let ((device, stream, from, to), name) = match KINDS.map(|kind| kind as u32).iter().position(|&k| k == kind) {
            // SAFETY: as above. Names live as long as the kernels.
            Some(0) => unsafe {
                let name = (&raw const (*record.cast::<CUpti_ActivityKernel10>()).name).read_unaligned();
                (span!(record, CUpti_ActivityKernel10), kernel_name(name))
            },
            // SAFETY: as above.
            Some(1) => unsafe {
                let kind = (&raw const (*record.cast::<CUpti_ActivityMemcpy6>()).copyKind).read_unaligned();
                let name = if u32::from(kind) == BETWEEN_GPUS { COPY_BETWEEN } else { "copy" };
                (span!(record, CUpti_ActivityMemcpy6), name.to_owned())
            },
            // SAFETY: as above.
            Some(2) => (unsafe { span!(record, CUpti_ActivityMemcpyPtoP4) }, COPY_BETWEEN.to_owned()),
            // SAFETY: as above.
            Some(_) => (unsafe { span!(record, CUpti_ActivityMemset4) }, "fill".to_owned()),
            None => return,
        };
        let category = match name.as_str() {
            "copy" | "fill" => Timeline::COPY,
            name if name == COPY_BETWEEN || name.contains("nccl") => Timeline::EXCHANGE,
            _ => Timeline::KERNEL,
        };
        let name = self.name(name);
        if self.spans.len() == KEPT {
            self.spans.pop_front();
        }
        self.spans.push_back(Span { device, stream, from, to, name, category });
    }

    /// Shared copy of a name.
    fn name(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.names.get(name.as_str()) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

/// Name of a kernel; for C++ names without a namespace, the bare name.
///
/// # Safety
/// `name` is a string or null.
unsafe fn kernel_name(name: *const c_char) -> String {
    if name.is_null() {
        return "kernel".to_owned();
    }
    // SAFETY: the caller vouches.
    readable(&unsafe { CStr::from_ptr(name) }.to_string_lossy()).to_owned()
}

/// Bare name of a mangled C++ name: `name` of `_Z4nameIiEvi`.
fn readable(name: &str) -> &str {
    let plain = name.strip_prefix("_Z").and_then(|rest| {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let len: usize = rest[..digits].parse().ok()?;
        rest[digits..].get(..len)
    });
    plain.unwrap_or(name)
}

/// Trace with a row of marks, and rows of all streams by device and number.
fn trace(Recorder { spans, marks, .. }: Recorder) -> Trace {
    let start = marks.first().map_or(0, |mark| mark.until);
    let since = |nanoseconds: u64| Duration::from_nanos(nanoseconds.saturating_sub(start));
    let stretches = marks.windows(2).map(|pair| Event {
        name: pair[1].name.clone(),
        category: Timeline::MARK,
        from: since(pair[0].until),
        to: since(pair[1].until),
        item: None,
    });
    let marked = Track { group: "girih".to_owned(), name: "training".to_owned(), events: stretches.collect() };
    let mut streams: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    for Span { device, stream, from, to, name, category } in spans {
        let event = Event { name: name.to_string(), category, from: since(from), to: since(to), item: None };
        streams.entry((device, stream)).or_default().push(event);
    }
    let of_stream = |((device, stream), events)| Track {
        group: format!("cuda:{device}"),
        name: format!("stream {stream}"),
        events,
    };
    Trace::new([marked].into_iter().chain(streams.into_iter().map(of_stream)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_readable() {
        for (name, expected) in [
            ("spmm_rows", "spmm_rows"),
            ("_Z23ncclDevKernel_AllReduce8ncclArgs", "ncclDevKernel_AllReduce"),
            ("_Z4nameIiEvi", "name"),
            ("_ZN3abc4nameEv", "_ZN3abc4nameEv"),
            ("_Z99short", "_Z99short"),
        ] {
            assert_eq!(readable(name), expected);
        }
    }

    #[test]
    fn rows_are_marks_and_streams_of_devices() {
        let span = |device, stream, from: u64| Span {
            device,
            stream,
            from,
            to: from + 10,
            name: "k".into(),
            category: Timeline::KERNEL,
        };
        let mark = |name: &str, until| Mark { name: name.to_owned(), until };
        let spans = [span(1, 7, 1_020), span(0, 9, 1_000), span(1, 7, 1_040)].into_iter().collect();
        let marks = vec![mark("", 990), mark("epoch 1", 1_030), mark("epoch 2", 1_060)];
        let trace = trace(Recorder { spans, marks, ..Recorder::default() });
        let found: Vec<_> = trace
            .tracks()
            .iter()
            .map(|track| {
                (track.group.as_str(), track.name.as_str(), track.events[0].from.as_nanos(), track.events.len())
            })
            .collect();
        let expected = [("girih", "training", 0, 2), ("cuda:0", "stream 9", 10, 1), ("cuda:1", "stream 7", 30, 2)];
        assert_eq!(found, expected);
        let second = &trace.tracks()[0].events[1];
        assert_eq!((second.name.as_str(), second.from.as_nanos(), second.to.as_nanos()), ("epoch 2", 40, 70));
    }
}
