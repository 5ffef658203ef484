//! [`Free`]: main memory that this process may still take, and the limit that determines it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::machine::field_kibibytes;

/// Main memory that this process may still take. It is the minimum of the machine's free memory, the rest of the
/// memory cgroups' limits (versions 1 and 2, all levels), and the rest of `RLIMIT_AS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    /// Free memory in bytes.
    pub bytes: u64,
    /// Limit that is reached first.
    pub limit: Limit,
}

/// A limit of main memory; its text names where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Memory of the machine (`MemAvailable`).
    Machine,
    /// Memory cgroup of a container or a batch job, by the file with its limit.
    Cgroup(PathBuf),
    /// Address space of a process (`ulimit -v`).
    AddressSpace,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Cgroup(file) => write!(f, "the memory cgroup of this process ({})", file.display()),
            Self::AddressSpace => f.write_str("the address space of this process (ulimit -v)"),
        }
    }
}

impl Free {
    /// Free memory now; `None` if the system does not report it.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::read(|path| std::fs::read_to_string(path).ok())
    }

    /// Free memory from the files that `read` returns.
    fn read(read: impl Fn(&Path) -> Option<String>) -> Option<Self> {
        let machine = || {
            let meminfo = read(Path::new("/proc/meminfo"))?;
            let bytes = field_kibibytes(&meminfo, "MemAvailable:")? << 10;
            Some(Self { bytes, limit: Limit::Machine })
        };
        let all = machine().into_iter().chain(address_space(&read)).chain(cgroups(&read));
        all.min_by_key(|free| free.bytes)
    }
}

/// Rest of the address space; `None` if it is not limited.
fn address_space(read: &impl Fn(&Path) -> Option<String>) -> Option<Free> {
    let limits = read(Path::new("/proc/self/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    let status = read(Path::new("/proc/self/status"))?;
    let used = field_kibibytes(&status, "VmSize:")? << 10;
    Some(Free { bytes: limit.saturating_sub(used), limit: Limit::AddressSpace })
}

/// File names of a memory cgroup, by version.
struct Version {
    /// File system type in the table of mounts.
    fs_type: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` with the bytes of cached files, which the system drops when memory is short.
    file_fields: [&'static str; 2],
}

const V1: Version = Version {
    fs_type: "cgroup",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    file_fields: ["total_inactive_file ", "total_active_file "],
};
const V2: Version = Version {
    fs_type: "cgroup2",
    limit: "memory.max",
    usage: "memory.current",
    file_fields: ["inactive_file ", "active_file "],
};

/// Free memory of each cgroup of this process, from its own to the outermost visible one.
fn cgroups(read: &impl Fn(&Path) -> Option<String>) -> Vec<Free> {
    let (Some(own), Some(mounts)) = (read(Path::new("/proc/self/cgroup")), read(Path::new("/proc/self/mountinfo")))
    else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let version = match controllers {
            "" => &V2,
            _ if controllers.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        let Some((root, mount)) = mounts.lines().find_map(|line| mount_of(line, version)) else { continue };
        // A container may see its own cgroup as the root of the mount.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let folder = mount.join(below.strip_prefix("/").unwrap_or(below));
        all.extend(folder.ancestors().take_while(|f| f.starts_with(&mount)).filter_map(|f| left_in(read, f, version)));
    }
    all
}

/// Root and mount point of the memory cgroups' hierarchy, if a line of the mount table has one.
fn mount_of(line: &str, version: &Version) -> Option<(PathBuf, PathBuf)> {
    let (mount, options) = line.split_once(" - ")?;
    let mut options = options.split(' ');
    let (fs_type, super_options) = (options.next()?, options.nth(1)?);
    let has_memory = version.fs_type == V2.fs_type || super_options.split(',').any(|option| option == "memory");
    if fs_type != version.fs_type || !has_memory {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    Some((PathBuf::from(fields.next()?), PathBuf::from(fields.next()?)))
}

/// Free memory of one cgroup; `None` if it has no limit.
fn left_in(read: &impl Fn(&Path) -> Option<String>, folder: &Path, version: &Version) -> Option<Free> {
    let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
    let limit = number(version.limit)?;
    let usage = number(version.usage)?;
    let stat = read(&folder.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let files: u64 = version.file_fields.iter().filter_map(|name| field(name)).sum();
    let bytes = limit.saturating_sub(usage.saturating_sub(files));
    Some(Free { bytes, limit: Limit::Cgroup(folder.join(version.limit)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   1000 kB\n");

    fn free(files: &[(&str, &str)]) -> Option<Free> {
        Free::read(|path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn without_limits_the_machine_counts() {
        assert_eq!(free(&[]), None);
        assert_eq!(free(&[MEMINFO]), Some(Free { bytes: 1000 << 10, limit: Limit::Machine }));
        let unlimited =
            ("/proc/self/limits", "Max address space         unlimited            unlimited            bytes\n");
        assert_eq!(free(&[MEMINFO, unlimited]).unwrap().limit, Limit::Machine);
    }

    #[test]
    fn address_space_counts_what_is_used() {
        let limits =
            ("/proc/self/limits", "Max cpu time unlimited unlimited seconds\nMax address space 600000 900000 bytes\n");
        let status = ("/proc/self/status", "VmPeak:\t 900 kB\nVmSize:\t 500 kB\n");
        let found = free(&[MEMINFO, limits, status]);
        assert_eq!(found, Some(Free { bytes: 600_000 - (500 << 10), limit: Limit::AddressSpace }));
    }

    #[test]
    fn the_tightest_level_of_cgroup_v2_counts_without_files_that_can_be_dropped() {
        let own = ("/proc/self/cgroup", "0::/user/job\n");
        let mounts =
            ("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
        let files = [
            MEMINFO,
            own,
            mounts,
            ("/sys/fs/cgroup/user/job/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/memory.max", "500000\n"),
            ("/sys/fs/cgroup/user/memory.current", "450000\n"),
            ("/sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 200000\nactive_file 50000\n"),
        ];
        let expected = Limit::Cgroup("/sys/fs/cgroup/user/memory.max".into());
        assert_eq!(free(&files), Some(Free { bytes: 300_000, limit: expected }));
    }

    #[test]
    fn a_container_sees_its_cgroup_of_version_1_as_the_root() {
        let own = ("/proc/self/cgroup", "5:cpu:/docker/a\n4:memory:/docker/a\n0::/\n");
        let mounts = (
            "/proc/self/mountinfo",
            "32 31 0:29 /docker/a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n\
             35 31 0:32 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        );
        let files = [
            MEMINFO,
            own,
            mounts,
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
        ];
        let found = free(&files).unwrap();
        assert_eq!(found.bytes, 300_000);
        assert!(found.limit.to_string().contains("memory.limit_in_bytes"), "{}", found.limit);
    }
}
