//! [`Machine`]: CPU and memory that a number was measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// CPU, caches and memory of a machine, as the operating system reports them; unreported values are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the CPU.
    pub cpu: Option<String>,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Bytes of the level-1 data cache of one core.
    pub l1d_bytes: Option<u64>,
    /// Bytes of the level-2 cache of one core.
    pub l2_bytes: Option<u64>,
    /// Bytes of the level-3 cache that cores share.
    pub l3_bytes: Option<u64>,
    /// Bytes of main memory.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// Machine that this process runs on.
    #[must_use]
    pub fn here() -> Self {
        let cache = |index| cache_bytes(&fs::read_to_string(format!("{CACHES}/index{index}/size")).ok()?);
        Self {
            cpu: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            l1d_bytes: cache(0),
            l2_bytes: cache(2),
            l3_bytes: cache(3),
            memory_bytes: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_bytes(&text)),
        }
    }

    /// Description in one line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let size = |bytes: Option<u64>| bytes.map_or("?".to_owned(), readable_bytes);
        format!(
            "{}, {} cores, L1d {}, L2 {}, L3 {}, memory {}",
            self.cpu.as_deref().unwrap_or("unknown processor"),
            self.cores,
            size(self.l1d_bytes),
            size(self.l2_bytes),
            size(self.l3_bytes),
            size(self.memory_bytes)
        )
    }
}

/// Folder in which Linux lists the caches of the first core: 0 is level-1 data, 1 level-1 instructions, then the
/// levels.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// First `model name` in `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Bytes of a cache, from Linux's text `32768K`.
fn cache_bytes(size: &str) -> Option<u64> {
    let kibibytes: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Bytes of `MemTotal` in `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    field_kibibytes(meminfo, "MemTotal:").map(|kibibytes| kibibytes << 10)
}

/// Number in a line `NAME   123 kB`.
pub(crate) fn field_kibibytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Readable size in the largest binary unit for which the number is at least one.
#[must_use]
pub fn readable_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_files_are_read() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A 9\nmodel name\t: B\n").as_deref(), Some("A 9"));
        assert_eq!(cache_bytes("32768K\n"), Some(32 << 20));
        assert_eq!(memory_bytes("MemTotal:       24000000 kB\n"), Some(24_576_000_000));
    }

    #[test]
    fn missing_values_are_none() {
        assert_eq!(cpu_model(""), None);
        assert_eq!(cache_bytes("many"), None);
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(readable_bytes(49_152), "48 KiB");
        assert_eq!(readable_bytes(32 << 20), "32.0 MiB");
        assert_eq!(readable_bytes(24 << 30), "24.0 GiB");
    }
}
