//! [`Meeting`]: mutual authentication of two processes by the secret of the job.
//!
//! ```text
//! listener → client   greeting   magic, protocol, 32 random bytes
//! client → listener   claim      magic, protocol, 32 random bytes, rank, size, port, version; proof of the client
//! listener → client   verdict    0, proof of the listener; or 1, zeros: turned away
//! ```
//! All three messages have a fixed size, and numbers are little-endian. A proof is an HMAC-SHA-256 with the secret as
//! key. It covers a label, the prover's role, the purpose of the connection, the listener's rank, the greeting, the
//! claim, and the name of the job. So a listener reads the fields of a claim only after the client is known to be a
//! rank of the job. No proof is valid for another role, port, rank or connection.

use std::io;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::frame::VERSION;
use super::options::Options;
use crate::secret::random;

/// First bytes of a greeting and of a claim.
const MAGIC: [u8; 8] = *b"girihtcp";

/// Version of this layout and of the frames. Processes with different versions refuse each other.
const PROTOCOL: u32 = 2;

/// Length of the common prefix of a greeting and a claim: magic and protocol.
pub(super) const PREFIX: usize = MAGIC.len() + size_of::<u32>();

/// Length of each end's random bytes, and of a proof.
const NONCE: usize = 32;
const PROOF: usize = 32;

/// Length of the version in a claim, padded with zeros.
const VERSION_LEN: usize = 32;
const _: () = assert!(VERSION.len() <= VERSION_LEN);

/// Length of a claim without its proof.
const STATEMENT: usize = PREFIX + NONCE + 2 * size_of::<u64>() + size_of::<u16>() + VERSION_LEN;

pub(super) const GREETING: usize = PREFIX + NONCE;
pub(super) const CLAIM: usize = STATEMENT + PROOF;
pub(super) const VERDICT: usize = 1 + PROOF;

/// First byte of a verdict.
const WELCOME: u8 = 0;
const TURNED_AWAY: u8 = 1;

/// Purpose of a connection between ranks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// A rank connects to rank 0.
    Rendezvous = 0,
    /// A rank connects to another one, whose address rank 0 has sent.
    Mesh = 1,
}

/// End of a connection that proves itself.
#[derive(Clone, Copy, Debug)]
enum Role {
    Listener = 0,
    Client = 1,
}

/// Fields of a client's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub version: String,
    pub size: u64,
    pub rank: u64,
    /// Port where the client listens for other ranks; 0 if it does not.
    pub port: u16,
}

/// Reason why first bytes are no greeting or claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// They come from another program.
    Program,
    /// They come from another protocol version.
    Protocol,
}

/// Facts that both ends of a connection know before they connect.
#[derive(Clone, Copy)]
pub(super) struct Meeting<'a> {
    pub options: &'a Options,
    pub purpose: Purpose,
    /// Rank of the listener.
    pub listener: usize,
}

impl Meeting<'_> {
    /// Claim of this process's rank, with its proof.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn claim(&self, greeting: &[u8; GREETING], port: u16) -> io::Result<[u8; CLAIM]> {
        let nonce: [u8; NONCE] = random()?;
        let Options { rank, size, .. } = self.options;
        let mut version = [0; VERSION_LEN];
        version[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
        let [rank, size] = [*rank as u64, *size as u64].map(u64::to_le_bytes);
        let statement = [&prefix()[..], &nonce, &rank, &size, &port.to_le_bytes(), &version].concat();
        let proof = self.mac(Role::Client, greeting, &statement).finalize().into_bytes();
        Ok([&statement[..], &proof].concat().try_into().expect("a statement and its proof"))
    }

    /// Fields of a claim, if its proof is valid.
    pub fn check_claim(&self, greeting: &[u8; GREETING], claim: &[u8; CLAIM]) -> Option<Claim> {
        let (statement, proof) = claim.split_at(STATEMENT);
        // The comparison takes constant time.
        self.mac(Role::Client, greeting, statement).verify_slice(proof).ok()?;
        let (rank, rest) = statement[PREFIX + NONCE..].split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (port, version) = rest.split_first_chunk()?;
        let version = String::from_utf8_lossy(version).trim_end_matches('\0').escape_debug().to_string();
        let (rank, size, port) = (u64::from_le_bytes(*rank), u64::from_le_bytes(*size), u16::from_le_bytes(*port));
        Some(Claim { version, size, rank, port })
    }

    /// The claim with a valid proof, for fuzzing.
    pub fn with_proof(&self, greeting: &[u8; GREETING], claim: &[u8; CLAIM]) -> [u8; CLAIM] {
        let mut proven = *claim;
        let proof = self.mac(Role::Client, greeting, &claim[..STATEMENT]).finalize().into_bytes();
        proven[STATEMENT..].copy_from_slice(&proof);
        proven
    }

    /// Verdict that accepts a claim, with the proof of the listener.
    pub fn welcome(&self, greeting: &[u8; GREETING], claim: &[u8; CLAIM]) -> [u8; VERDICT] {
        let proof = self.mac(Role::Listener, greeting, &claim[..STATEMENT]).finalize().into_bytes();
        let mut verdict = [WELCOME; VERDICT];
        verdict[1..].copy_from_slice(&proof);
        verdict
    }

    /// Checks the proof of a verdict that accepts the claim: true if it is valid. `None` for a verdict that refuses it.
    pub fn check_verdict(
        &self,
        greeting: &[u8; GREETING],
        claim: &[u8; CLAIM],
        verdict: &[u8; VERDICT],
    ) -> Option<bool> {
        let mac = self.mac(Role::Listener, greeting, &claim[..STATEMENT]);
        (verdict[0] == WELCOME).then(|| mac.verify_slice(&verdict[1..]).is_ok())
    }

    fn mac(&self, role: Role, greeting: &[u8; GREETING], statement: &[u8]) -> Hmac<Sha256> {
        let Options { secret, job, .. } = self.options;
        let listener = (self.listener as u64).to_le_bytes();
        // All fields but the last have a fixed length, so their concatenation is unambiguous.
        let context = [role as u8, self.purpose as u8];
        mac(secret.bytes(), &[b"girih ranks", &context, &listener, greeting, statement, job.as_bytes()])
    }
}

/// HMAC-SHA-256 (RFC 2104) of the concatenation of `parts`.
fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Verdict that refuses a claim.
pub(super) fn turned_away() -> [u8; VERDICT] {
    let mut verdict = [0; VERDICT];
    verdict[0] = TURNED_AWAY;
    verdict
}

/// Greeting with new random bytes.
///
/// # Errors
/// When the system has no random bytes.
pub(super) fn greeting() -> io::Result<[u8; GREETING]> {
    let nonce: [u8; NONCE] = random()?;
    Ok([&prefix()[..], &nonce].concat().try_into().expect("a prefix and random bytes"))
}

fn prefix() -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..MAGIC.len()].copy_from_slice(&MAGIC);
    prefix[MAGIC.len()..].copy_from_slice(&PROTOCOL.to_le_bytes());
    prefix
}

/// Compares the received first bytes of a greeting or claim, at least one, with the expected prefix.
///
/// # Errors
/// When another program or another protocol version sent them.
pub(super) fn check_prefix(come: &[u8]) -> Result<(), Foreign> {
    let known = come.len().min(PREFIX);
    if come[..known] == prefix()[..known] {
        return Ok(());
    }
    let magic = come.len().min(MAGIC.len());
    Err(if come[..magic] == MAGIC[..magic] { Foreign::Protocol } else { Foreign::Program })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Secret;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Cases 2 and 6 of RFC 4231: a short key, and one longer than a block.
    #[test]
    fn proofs_are_those_of_the_standard() {
        let short = mac(b"Jefe", &[b"what do ya want ", b"for nothing?"]).finalize().into_bytes();
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = mac(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hex(&long.finalize().into_bytes()), expected);
    }

    fn options(secret: u8, job: &str, rank: usize) -> Options {
        let lookup = |name: &str| (name == Secret::VARIABLE).then(|| format!("{secret:02x}").repeat(32));
        let secret = Secret::detect(None, lookup).unwrap();
        let wait = Duration::from_secs(1);
        let (job, rendezvous) = (job.to_owned(), String::new());
        Options { rank, size: 3, rendezvous, job, secret, start_deadline: wait, deadline: wait }
    }

    /// A single difference between the ends makes a proof invalid.
    #[test]
    fn proofs_hold_for_one_secret_job_purpose_listener_and_greeting() {
        let [zero, one] = [0, 1].map(|rank| options(7, "job", rank));
        let others = [options(8, "job", 1), options(7, "jo", 1)];
        let meeting = |options| Meeting { options, purpose: Purpose::Rendezvous, listener: 0 };
        let (here, hello) = (meeting(&zero), greeting().unwrap());
        let good = meeting(&one).claim(&hello, 9).unwrap();
        let claim = Claim { version: VERSION.to_owned(), size: 3, rank: 1, port: 9 };
        assert_eq!(here.check_claim(&hello, &good), Some(claim));
        let verdict = here.welcome(&hello, &good);
        assert_eq!(meeting(&one).check_verdict(&hello, &good, &verdict), Some(true));
        assert_eq!(meeting(&one).check_verdict(&hello, &good, &turned_away()), None);

        let bad = [
            meeting(&others[0]),
            meeting(&others[1]),
            Meeting { purpose: Purpose::Mesh, ..meeting(&one) },
            Meeting { listener: 1, ..meeting(&one) },
        ];
        for other in bad {
            assert_eq!(here.check_claim(&hello, &other.claim(&hello, 9).unwrap()), None);
            assert_eq!(other.check_verdict(&hello, &good, &verdict), Some(false));
        }
        assert_eq!(here.check_claim(&greeting().unwrap(), &good), None, "another connection");
        // The proof of a listener is not valid for a client.
        let reflected = [&good[..STATEMENT], &verdict[1..]].concat().try_into().unwrap();
        assert_eq!(here.check_claim(&hello, &reflected), None);
        for at in 0..CLAIM {
            let mut changed = good;
            changed[at] ^= 1;
            assert_eq!(here.check_claim(&hello, &changed), None, "byte {at}");
        }
    }

    #[test]
    fn other_programs_are_known_by_their_first_bytes() {
        assert_eq!(check_prefix(b"g"), Ok(()));
        assert_eq!(check_prefix(&greeting().unwrap()), Ok(()));
        assert_eq!(check_prefix(b"GET / HTTP/1.1"), Err(Foreign::Program));
        assert_eq!(check_prefix(b"girihtcp\x01\0\0\0"), Err(Foreign::Protocol));
    }
}
