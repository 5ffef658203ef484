//! Several hosts: network namespaces of this machine with their own addresses, joined by a bridge.
//!
//! The tests need root and iproute2; otherwise they report that they are skipped.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::girih::{Finished, SMALL, Workspace, command, curve, girih, within};

/// More epochs than a pipe holds lines: training blocks while its output is not read.
const EPOCHS: &str = "500";

/// Hosts with the addresses 10.77.0.1, 10.77.0.2, …
struct Hosts {
    hosts: Vec<String>,
    switch: String,
    work: Workspace,
}

impl Hosts {
    /// Creates `n` hosts; `None` if this machine cannot.
    fn new(n: usize) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let job = format!("girih-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let switch = format!("{job}-switch");
        if !ip(&["netns", "add", &switch]) {
            println!("skipped: network namespaces need root and iproute2");
            return None;
        }
        let work = Workspace::new();
        let secret = work.path("secret");
        fs::write(&secret, "0123456789abcdef".repeat(4)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let mut all = Self { hosts: Vec::new(), switch, work };
        all.must(&["-n", &all.switch, "link", "add", "bridge", "up", "type", "bridge"]);
        (0..n).for_each(|i| all.add(&format!("{job}-{i}")));
        Some(all)
    }

    fn must(&self, args: &[&str]) {
        assert!(ip(args), "ip {} failed", args.join(" "));
    }

    /// Connects one more host.
    fn add(&mut self, name: &str) {
        let (port, address) = (port(self.hosts.len()), format!("{}/24", address(self.hosts.len())));
        self.must(&["netns", "add", name]);
        self.hosts.push(name.to_owned());
        let switch = &self.switch;
        self.must(&["-n", switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", name]);
        self.must(&["-n", switch, "link", "set", &port, "master", "bridge", "up"]);
        self.must(&["-n", name, "addr", "add", &address, "dev", "eth0"]);
        self.must(&["-n", name, "link", "set", "eth0", "up"]);
        self.must(&["-n", name, "link", "set", "lo", "up"]);
    }

    /// Unplugs or plugs in the network link of a host.
    fn set_link(&self, host: usize, state: &str) {
        self.must(&["-n", &self.switch, "link", "set", &port(host), state]);
    }

    /// Makes the link of a host slow or lossy. Returns whether the kernel supports it.
    fn shape(&self, host: usize, discipline: &[&str]) -> bool {
        let mut tc = Command::new("tc");
        tc.args(["-n", &self.switch, "qdisc", "add", "dev", &port(host), "root"]).args(discipline);
        tc.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Starts `girih launch` with `n` processes on every host.
    fn launch(&self, n: &str, train: &[&str]) -> Vec<Child> {
        let (n_hosts, place, secret) =
            (self.hosts.len().to_string(), format!("{}:29400", address(0)), self.work.arg("secret"));
        let start = |host: usize| {
            let number = host.to_string();
            let launch = ["launch", "--nproc", n, "--nodes", &n_hosts, "--node", &number, "--rendezvous", &place];
            let binary = command(&[&launch[..], &["--secret-file", &secret, "--", "train"], train].concat());
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", &self.hosts[host]]);
            within(inside, &binary).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        (0..self.hosts.len()).map(start).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.switch]) {
            ip(&["netns", "del", name]);
        }
    }
}

/// Runs `ip`; returns whether it succeeded.
fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Name of a host's port at the bridge.
fn port(host: usize) -> String {
    format!("port{host}")
}

fn address(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

fn training(epochs: &str) -> Vec<&str> {
    vec!["--data", SMALL, "--epochs", epochs, "--json"]
}

/// Losses of `n` ranks that are threads of one process.
fn curve_of_threads(n: &str, train: &[&str]) -> Vec<String> {
    curve(girih(&[&["train", "--ranks", n], train].concat()))
}

fn finish(child: Child) -> Finished {
    Finished::new(child.wait_with_output().unwrap())
}

/// Reads `n` lines of the first host, which reports.
fn read_lines(children: &mut [Child], n: usize) -> (BufReader<std::process::ChildStdout>, String) {
    let mut out = BufReader::new(children[0].stdout.take().unwrap());
    let mut text = String::new();
    for _ in 0..n {
        assert!(out.read_line(&mut text).unwrap() > 0, "it ended early");
    }
    (out, text)
}

#[test]
fn hosts_train_what_threads_do() {
    for (n_hosts, n_local, n_ranks, flags) in [
        (2, "2", "4", &["--partition", "2d"][..]),
        (4, "1", "4", &["--batch", "neighbor", "--batch-size", "64", "--model", "sage"]),
    ] {
        let Some(hosts) = Hosts::new(n_hosts) else { return };
        let train = [&training("8")[..], flags].concat();
        let mut finished: Vec<Finished> = hosts.launch(n_local, &train).into_iter().map(finish).collect();
        for other in finished.drain(1..) {
            assert_eq!(other.ok().out, "", "the first host reports");
        }
        assert_eq!(curve(finished.remove(0)), curve_of_threads(n_ranks, &train), "{n_hosts} hosts {flags:?}");
    }
}

#[test]
fn a_slow_and_lossy_link_changes_no_number() {
    let Some(hosts) = Hosts::new(2) else { return };
    let is_lossy = hosts.shape(1, &["netem", "delay", "10ms", "5ms", "loss", "2%"]);
    let is_slow = hosts.shape(0, &["tbf", "rate", "5mbit", "burst", "16kb", "latency", "50ms"]);
    println!("delay and loss: {is_lossy}; limited rate: {is_slow} (false: this kernel has none, skipped)");
    let train = training("8");
    let mut finished: Vec<Finished> = hosts.launch("1", &train).into_iter().map(|child| finish(child).ok()).collect();
    assert_eq!(curve(finished.remove(0)), curve_of_threads("2", &train));
}

/// The host disappears without a packet that announces it.
#[test]
fn a_host_that_is_cut_off_ends_the_job_by_name() {
    let Some(hosts) = Hosts::new(4) else { return };
    let mut children = hosts.launch("1", &training(EPOCHS));
    let (mut out, _) = read_lines(&mut children, 20);
    hosts.set_link(2, "down");
    let start = Instant::now();
    out.read_to_string(&mut String::new()).unwrap();
    let finished: Vec<Finished> = children.into_iter().map(finish).collect();
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    for (host, rank) in finished.iter().enumerate() {
        assert_eq!(rank.code, Some(1), "host {host}: {}{}", rank.out, rank.err);
        let is_named = if host == 2 { rank.err.contains("rank ") } else { rank.err.contains("rank 2") };
        assert!(is_named && rank.err.contains("nothing was heard from it"), "host {host}: {}", rank.err);
    }
}

#[test]
fn a_partition_that_heals_in_time_changes_no_number() {
    let Some(hosts) = Hosts::new(2) else { return };
    let train = training(EPOCHS);
    let mut children = hosts.launch("1", &train);
    let (mut out, mut text) = read_lines(&mut children, 20);
    hosts.set_link(1, "down");
    std::thread::sleep(Duration::from_secs(2));
    hosts.set_link(1, "up");
    out.read_to_string(&mut text).unwrap();
    let mut finished: Vec<Finished> = children.into_iter().map(|child| finish(child).ok()).collect();
    let first = Finished { out: text, ..finished.remove(0) };
    assert!(curve(first) == curve_of_threads("2", &train), "the curves differ");
}
