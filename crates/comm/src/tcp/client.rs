//! [`prove`]: mutual authentication on the connecting side. [`Timed`]: reads with a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::proof::{self, Foreign, GREETING, Meeting, PREFIX, VERDICT};

/// Interval at which `watch` is called during a wait.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Reason why an authentication failed.
pub(super) enum Unmet {
    /// The listener disconnected: it has ended, or too many clients connect. Another try may succeed.
    Left,
    /// The listener does not answer.
    Silent,
    /// The listener is another program, which sent these bytes.
    Program(String),
    /// The listener uses another protocol version.
    Protocol,
    /// The listener refused this process.
    TurnedAway,
    /// The listener does not know the secret.
    Unproven,
    /// This process cannot go on, for this reason.
    Here(String),
}

impl Unmet {
    /// Message about the listener at `place`.
    pub fn describe(self, place: &str) -> String {
        match self {
            Self::Left => format!("what listens at {place} hangs up"),
            Self::Silent => {
                format!("what listens at {place} does not answer: it is another program, or hangs; give another port")
            }
            Self::Program(bytes) => format!(
                "another program than girih listens at {place}: it sent bytes that no girih sends ({bytes}); give another \
                 port"
            ),
            Self::Protocol => format!("{place} runs another version of girih: give all ranks the same program"),
            Self::TurnedAway => format!(
                "another job meets at this place, {place}, or this one with another secret: give jobs ports of their own, and \
                 all ranks of one job the same secret and GIRIH_JOB"
            ),
            Self::Unproven => format!(
                "what listens at {place} does not know the secret of this job: another program pretends to be a rank; give \
                 another port"
            ),
            Self::Here(why) => why,
        }
    }
}

/// Authenticates this process as a rank of the job, and checks the proof of the listener. An error of `watch` ends
/// the wait.
///
/// # Errors
/// Reason why the two ends do not belong together.
pub(super) fn prove(
    stream: &TcpStream,
    meeting: &Meeting,
    port: u16,
    until: Instant,
    watch: impl Fn() -> Result<(), String>,
) -> Result<(), Unmet> {
    let mut greeting = [0; GREETING];
    read_all(stream, &mut greeting, until, &watch, |come| {
        proof::check_prefix(come).map_err(|foreign| match foreign {
            Foreign::Program => Unmet::Program(come[..come.len().min(PREFIX)].escape_ascii().to_string()),
            Foreign::Protocol => Unmet::Protocol,
        })
    })?;
    let claim = meeting.claim(&greeting, port).map_err(|error| Unmet::Here(format!("no random bytes: {error}")))?;
    let mut out = stream;
    out.write_all(&claim).map_err(|_| Unmet::Left)?;
    let mut verdict = [0; VERDICT];
    read_all(stream, &mut verdict, until, &watch, |_| Ok(()))?;
    match meeting.check_verdict(&greeting, &claim, &verdict) {
        Some(true) => Ok(()),
        Some(false) => Err(Unmet::Unproven),
        None => Err(Unmet::TurnedAway),
    }
}

/// Fills `bytes`, and calls `check` on the bytes received so far.
fn read_all(
    stream: &TcpStream,
    bytes: &mut [u8],
    until: Instant,
    watch: &impl Fn() -> Result<(), String>,
    check: impl Fn(&[u8]) -> Result<(), Unmet>,
) -> Result<(), Unmet> {
    let mut come = 0;
    while come < bytes.len() {
        watch().map_err(Unmet::Here)?;
        let mut input = Timed { stream, until, silence: WATCH_INTERVAL };
        match input.read(&mut bytes[come..]) {
            Ok(0) => return Err(Unmet::Left),
            Ok(n) => come += n,
            Err(error) if is_late(&error) && Instant::now() < until => continue,
            Err(error) if is_late(&error) => return Err(Unmet::Silent),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Err(Unmet::Left),
        }
        check(&bytes[..come])?;
    }
    Ok(())
}

/// Whether a read timed out.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Reader with a fixed deadline, which received bytes do not extend.
pub(super) struct Timed<'a> {
    pub stream: &'a TcpStream,
    pub until: Instant,
    /// Longest wait for the next bytes.
    pub silence: Duration,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left.min(self.silence)))?;
        let mut input = self.stream;
        input.read(bytes)
    }
}
