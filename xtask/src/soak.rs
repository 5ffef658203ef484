//! `cargo xtask soak`: long training, with its memory and speed over time.
//!
//! Speed is epochs per second of CPU time, which other programs hardly influence. The run consists of windows of
//! equal duration. The first window, in which caches fill, does not count.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

/// Number of windows of a run.
const WINDOWS: usize = 20;
/// Number of memory samples in a window.
const LOOKS: u32 = 60;
/// Maximum growth of memory and loss of speed, from the first to the last third of windows, as a share.
const DRIFT_MAX: f64 = 0.02;
/// Epochs of the short run that the long one is compared with.
const SHORT_EPOCHS: usize = 5;

/// Program and duration of a long training.
#[derive(Args)]
pub struct SoakArgs {
    /// Minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Record to write.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The program and its arguments, without --epochs, --out and --json: target/release/girih train PATH --batch neighbor.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Measurements of a window.
#[derive(Clone, Copy, Debug, Serialize)]
struct Window {
    /// Resident memory in bytes, the mean over samples: batches in flight come and go.
    memory_bytes: u64,
    /// Number of epochs.
    epochs: usize,
    /// CPU seconds.
    cpu_seconds: f64,
}

impl Window {
    fn speed(&self) -> f64 {
        self.epochs as f64 / self.cpu_seconds
    }
}

/// Outcome of a run.
#[derive(Debug, Serialize)]
struct Record {
    command: Vec<String>,
    minutes: f64,
    windows: Vec<Window>,
    /// Mean memory of the last third of windows over that of the first third, minus 1; without the first window.
    memory_growth: f64,
    /// Speed of the last third of windows over that of the first third, minus 1; without the first window.
    speed_change: f64,
    /// Whether the first epochs had the losses of a short run.
    equals_short_run: bool,
}

/// Trains, and writes the record.
///
/// # Errors
/// When training ends by itself, memory grows or speed falls by more than 2 %, or the losses differ from those of a
/// short run.
pub fn soak(args: &SoakArgs) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("girih-soak-{}", std::process::id()));
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let outcome = run(args, &folder);
    fs::remove_dir_all(&folder).map_err(failed)?;
    let record = outcome?;
    let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())? + "\n";
    if let Some(out) = &args.out {
        fs::write(out, &text).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    println!("memory {:+.2} %, speed {:+.2} %", 100.0 * record.memory_growth, 100.0 * record.speed_change);
    match () {
        () if record.memory_growth > DRIFT_MAX => Err("memory grows".to_owned()),
        () if record.speed_change < -DRIFT_MAX => Err("it becomes slower".to_owned()),
        () if !record.equals_short_run => Err("other losses than those of a short run".to_owned()),
        () => Ok(()),
    }
}

fn run(args: &SoakArgs, folder: &Path) -> Result<Record, String> {
    let losses = Mutex::new(Vec::new());
    let n_epochs = AtomicUsize::new(0);
    let mut child = start(&args.command, &folder.join("long"), usize::from(u16::MAX) << 16)?;
    let out = BufReader::new(child.stdout.take().ok_or("no output")?);
    let window = Duration::from_secs_f64(60.0 * args.minutes / WINDOWS as f64);
    let windows = std::thread::scope(|scope| {
        scope.spawn(|| {
            for loss in out.lines().map_while(Result::ok).filter_map(|line| loss_in(&line)) {
                n_epochs.fetch_add(1, Ordering::Relaxed);
                let mut losses = losses.lock().unwrap_or_else(PoisonError::into_inner);
                if losses.len() < SHORT_EPOCHS {
                    losses.push(loss);
                }
            }
        });
        let windows = watch(&mut child, window, &n_epochs);
        // The first signal stops training after an epoch, with a checkpoint.
        let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let ended = child.wait();
        stopped.and(ended).map_err(|e| e.to_string()).and(windows)
    })?;
    let short =
        start(&args.command, &folder.join("short"), SHORT_EPOCHS)?.wait_with_output().map_err(|e| e.to_string())?;
    let short: Vec<String> = String::from_utf8_lossy(&short.stdout).lines().filter_map(loss_in).collect();
    let losses = losses.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Record {
        command: args.command.clone(),
        minutes: args.minutes,
        memory_growth: memory_growth(&windows),
        speed_change: speed_change(&windows),
        equals_short_run: !losses.is_empty() && losses == short,
        windows,
    })
}

/// Starts training.
fn start(command: &[String], out: &Path, n_epochs: usize) -> Result<Child, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", command[0]);
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).args(["--json", "--epochs", &n_epochs.to_string(), "--out"]).arg(out);
    program.stdout(Stdio::piped()).spawn().map_err(failed)
}

/// Training loss in an epoch's event, as printed.
fn loss_in(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    (event["event"] == "epoch").then(|| event["train_loss"].to_string())
}

/// Measures all windows in order.
fn watch(child: &mut Child, window: Duration, n_epochs: &AtomicUsize) -> Result<Vec<Window>, String> {
    let mut windows = Vec::new();
    let (mut epochs, mut seconds) = (0, 0.0);
    let begin = Instant::now();
    for i in 1..=WINDOWS {
        let mut memory_bytes = 0;
        for look in 1..=LOOKS {
            let due = window * i as u32 - window * (LOOKS - look) / LOOKS;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("training ended: {status}"));
            }
            memory_bytes += memory(child.id())? / u64::from(LOOKS);
        }
        let (now, used) = (n_epochs.load(Ordering::Relaxed), cpu_seconds(child.id())?);
        let measured = Window { memory_bytes, epochs: now - epochs, cpu_seconds: used - seconds };
        (epochs, seconds) = (now, used);
        println!("window {i}: {} MiB, {:.4} epochs a second", measured.memory_bytes >> 20, measured.speed());
        windows.push(measured);
    }
    Ok(windows)
}

fn read_proc(process: u32, file: &str) -> Result<String, String> {
    let path = format!("/proc/{process}/{file}");
    fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
}

/// Resident memory of a process, in bytes.
fn memory(process: u32) -> Result<u64, String> {
    let status = read_proc(process, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("VmRSS is{line}"))?;
    Ok(kib << 10)
}

/// CPU time of a process in seconds, user and system.
fn cpu_seconds(process: u32) -> Result<f64, String> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = read_proc(process, "stat")?;
    // The process name, in parentheses, may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / TICKS_PER_SECOND)
}

fn memory_growth(windows: &[Window]) -> f64 {
    change(windows, |windows| {
        windows.iter().map(|window| window.memory_bytes as f64).sum::<f64>() / windows.len() as f64
    })
}

fn speed_change(windows: &[Window]) -> f64 {
    change(windows, |windows| {
        let sum = |of: fn(&Window) -> f64| windows.iter().map(of).sum::<f64>();
        sum(|window| window.epochs as f64) / sum(|window| window.cpu_seconds)
    })
}

/// Value of `figure` over the last third of windows, relative to the first third, minus 1. The first window is left
/// out.
fn change(windows: &[Window], figure: impl Fn(&[Window]) -> f64) -> f64 {
    let later = &windows[windows.len().min(1)..];
    let third = later.len().div_ceil(3);
    figure(&later[later.len() - third..]) / figure(&later[..third]) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(all: &[(u64, usize)]) -> Vec<Window> {
        all.iter().map(|&(memory_bytes, epochs)| Window { memory_bytes, epochs, cpu_seconds: 10.0 }).collect()
    }

    #[test]
    fn growth_and_loss_of_speed_are_seen_after_the_first_window() {
        let steady = windows(&[(50, 3), (100, 10), (102, 10), (101, 10), (102, 10)]);
        assert!((memory_growth(&steady) - 0.5 / 101.0).abs() < 1e-9 && speed_change(&steady).abs() < 1e-9);
        let worse = windows(&[(50, 3), (100, 10), (100, 10), (120, 9), (120, 9)]);
        assert!((memory_growth(&worse) - 0.2).abs() < 1e-9 && (speed_change(&worse) + 0.1).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_memory_and_time() {
        if cfg!(target_os = "linux") {
            assert!(memory(std::process::id()).unwrap() > 1 << 16);
            assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        }
    }

    #[test]
    fn losses_are_those_of_epochs() {
        assert_eq!(loss_in(r#"{"event":"epoch","train_loss":0.5}"#).as_deref(), Some("0.5"));
        assert_eq!(loss_in(r#"{"event":"result","train_loss":0.5}"#), None);
    }
}
