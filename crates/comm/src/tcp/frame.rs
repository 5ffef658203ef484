//! [`Frame`]: message between two processes, and its encoding.
//!
//! A frame consists of a mark, a kind, the length of its body, the body, and the CRC-32 of kind, length and body.
//! Numbers are little-endian, and texts are preceded by their length. Frames follow after both ends have
//! authenticated (`proof.rs`).
//!
//! The checksum finds errors that TCP's 16 bits miss, and memory faults on the way. It is no signature: an attacker
//! who changes packets can change it too. Both ends compute it block by block, while the block is in the CPU cache
//! for the copy.

use std::io::{self, ErrorKind, Read, Take, Write};
use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::transport::{ExchangeId, Parcel};

/// Version of this program. Processes of other versions may be incompatible.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// First bytes of a frame. They identify messages of girih.
const MARK: [u8; 5] = *b"girih";
/// Kind of a parcel frame.
const PARCEL: u8 = 6;
const HEAD: usize = MARK.len() + 1 + size_of::<u64>();

/// Longest body of a frame that is not a parcel, 1 MiB: enough for the addresses of thousands of ranks.
pub(super) const LONGEST_GREETING: u64 = 1 << 20;

/// Longest name of an exchange: numbers in its path, and bytes of its call.
const LONGEST_PATH: u64 = 1 << 10;
const LONGEST_CALL: u64 = 1 << 12;

/// Block size for reads, writes and checksums in bytes, smaller than a CPU cache.
const BLOCK: usize = 256 << 10;

/// Longest body of any frame, 64 GiB. Matrices stay far below it; random bytes read as a length are far above.
pub(super) const LONGEST: u64 = 1 << 36;

/// Memory that a reader allocates for a stated length alone, 1 MiB. Beyond that, it doubles its memory as bytes
/// arrive.
const TRUSTED: usize = 1 << 20;

/// Message between two processes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// All ranks have arrived. Listening addresses of ranks 1, 2, …
    Welcome(Vec<SocketAddr>),
    /// The job does not start, for this reason.
    Refused(String),
    /// The sender is connected to all ranks.
    Ready,
    /// All ranks are ready: start.
    Go,
    /// Heartbeat.
    Beat,
    /// Parcel of an exchange.
    Parcel { id: ExchangeId, call: String, parcel: Parcel },
    /// A rank has failed. The sender sends no further frames.
    Failed { rank: u64, message: String },
    /// The sender has completed its work, and sends no further frames.
    Goodbye,
    /// The sender has many unread parcels. Parcels must wait; other frames are sent as before.
    Pause,
    /// Parcels may be sent again.
    Resume,
}

/// Reader's decision on a parcel, before memory is allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Keep,
    /// No exchange of this rank will read it.
    Discard,
}

impl Frame {
    /// Writes the frame and flushes.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut body = Vec::new();
        let mut tail: &[u8] = &[];
        let kind = match self {
            Self::Welcome(addresses) => {
                put(&mut body, addresses.len() as u64);
                addresses.iter().for_each(|address| put_text(&mut body, &address.to_string()));
                1
            }
            Self::Refused(why) => {
                put_text(&mut body, why);
                2
            }
            Self::Ready => 3,
            Self::Go => 4,
            Self::Beat => 5,
            Self::Parcel { id: (path, number), call, parcel } => {
                put(&mut body, path.len() as u64);
                path.iter().for_each(|&step| put(&mut body, step));
                put(&mut body, *number);
                put_text(&mut body, call);
                tail = parcel;
                PARCEL
            }
            Self::Failed { rank, message } => {
                put(&mut body, *rank);
                put_text(&mut body, message);
                7
            }
            Self::Goodbye => 8,
            Self::Pause => 9,
            Self::Resume => 10,
        };
        let len = (body.len() + tail.len()) as u64;
        let mut hash = Hasher::new();
        // A short frame takes one write, because each write makes a packet.
        let mut short = [&MARK[..], &[kind], &len.to_le_bytes(), &body].concat();
        hash.update(&short[MARK.len()..]);
        while tail.len() > BLOCK / 4 {
            let (block, rest) = tail.split_at(tail.len().min(BLOCK));
            hash.update(block);
            if !short.is_empty() {
                out.write_all(&std::mem::take(&mut short))?;
            }
            out.write_all(block)?;
            tail = rest;
        }
        hash.update(tail);
        short.extend_from_slice(tail);
        short.extend(hash.finalize().to_le_bytes());
        out.write_all(&short)?;
        out.flush()
    }

    /// Reads the next frame, with a body of at most `longest` bytes, where parcels are not allowed.
    ///
    /// # Errors
    /// `InvalidData` for bytes that are no frame or have another checksum; otherwise the error of the reader.
    pub fn read(input: &mut impl Read, longest: u64) -> io::Result<Self> {
        let refuse = |_: &ExchangeId| Err("a parcel before the start".to_owned());
        Self::read_admitted(input, longest, refuse)?.ok_or_else(|| garbled("a parcel before the start".to_owned()))
    }

    /// Reads the next frame. `admit` decides whether a parcel is kept; returns `None` for a discarded one.
    ///
    /// # Errors
    /// As [`read`](Self::read); `InvalidData` with the message of `admit` if it refuses a parcel.
    pub fn read_admitted(
        input: &mut impl Read,
        longest: u64,
        admit: impl FnOnce(&ExchangeId) -> Result<Admission, String>,
    ) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        input.read_exact(&mut head)?;
        let (mark, rest) = head.split_at(MARK.len());
        if mark != MARK {
            return Err(garbled(format!("bytes that no girih sends ({})", mark.escape_ascii())));
        }
        let (kind, len) = (rest[0], rest[1..].try_into().map_or(u64::MAX, u64::from_le_bytes));
        let most = if kind == PARCEL { longest } else { longest.min(LONGEST_GREETING) };
        if len > most {
            return Err(garbled(format!("a message of {len} bytes, of at most {most}")));
        }
        let mut hash = Hasher::new();
        hash.update(rest);
        let mut body = Body { bytes: input.take(len), hash };
        let frame = parse(kind, &mut body, admit)?;
        let (found, mut stated) = (body.hash.finalize(), [0; size_of::<u32>()]);
        input.read_exact(&mut stated)?;
        if u32::from_le_bytes(stated) != found {
            return Err(garbled(format!(
                "a message of kind {kind} whose checksum is another: it was changed on the way"
            )));
        }
        Ok(frame)
    }
}

fn garbled(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn put(body: &mut Vec<u8>, number: u64) {
    body.extend(number.to_le_bytes());
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    put(body, text.len() as u64);
    body.extend(text.as_bytes());
}

/// Parses the body of a frame; `None` for a discarded parcel.
///
/// # Errors
/// `InvalidData` if the body is malformed.
fn parse(
    kind: u8,
    body: &mut Body<impl Read>,
    admit: impl FnOnce(&ExchangeId) -> Result<Admission, String>,
) -> io::Result<Option<Frame>> {
    let other = || garbled(format!("a message of kind {kind} that says something else"));
    let frame = match kind {
        1 => {
            let n = body.number()?;
            let address = |_| body.text(LONGEST_GREETING)?.parse().map_err(|_| other());
            Frame::Welcome((0..n).map(address).collect::<io::Result<_>>()?)
        }
        2 => Frame::Refused(body.text(LONGEST_GREETING)?),
        3 => Frame::Ready,
        4 => Frame::Go,
        5 => Frame::Beat,
        PARCEL => {
            let n = body.number()?;
            if n > LONGEST_PATH {
                return Err(garbled(format!("a parcel of a group that {n} numbers name, of at most {LONGEST_PATH}")));
            }
            let path = (0..n).map(|_| body.number()).collect::<io::Result<_>>()?;
            let id = (path, body.number()?);
            let call = body.text(LONGEST_CALL)?;
            if admit(&id).map_err(garbled)? == Admission::Discard {
                return body.discard().map(|()| None);
            }
            Frame::Parcel { id, call, parcel: body.rest()?.into() }
        }
        7 => Frame::Failed { rank: body.number()?, message: body.text(LONGEST_GREETING)? },
        8 => Frame::Goodbye,
        9 => Frame::Pause,
        10 => Frame::Resume,
        _ => return Err(other()),
    };
    if body.bytes.limit() == 0 { Ok(Some(frame)) } else { Err(other()) }
}

/// Body of a frame, read as it arrives.
struct Body<R> {
    bytes: Take<R>,
    hash: Hasher,
}

impl<R: Read> Body<R> {
    fn number(&mut self) -> io::Result<u64> {
        let mut number = [0; size_of::<u64>()];
        self.check_left(number.len() as u64)?;
        self.bytes.read_exact(&mut number)?;
        self.hash.update(&number);
        Ok(u64::from_le_bytes(number))
    }

    fn text(&mut self, longest: u64) -> io::Result<String> {
        let len = self.number()?;
        if len > longest {
            return Err(garbled(format!("a text of {len} bytes, of at most {longest}")));
        }
        String::from_utf8(self.take(len)?).map_err(|_| garbled("a text that is none".to_owned()))
    }

    fn rest(&mut self) -> io::Result<Vec<u8>> {
        self.take(self.bytes.limit())
    }

    /// Checks that at least `len` bytes of the body are left.
    fn check_left(&self, len: u64) -> io::Result<()> {
        match len.checked_sub(self.bytes.limit()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(garbled(format!("a message that ends {missing} bytes early"))),
        }
    }

    /// Reads `len` bytes. Memory grows with the bytes received; the system can grow large blocks without a copy.
    fn take(&mut self, len: u64) -> io::Result<Vec<u8>> {
        self.check_left(len)?;
        let mut bytes = Vec::new();
        self.fill(&mut bytes, len as usize)?;
        Ok(bytes)
    }

    /// Appends bytes until there are `len`. Never allocates more than the larger of [`TRUSTED`] and twice the bytes
    /// received.
    fn fill(&mut self, bytes: &mut Vec<u8>, len: usize) -> io::Result<()> {
        while bytes.len() < len {
            if bytes.len() == bytes.capacity() {
                bytes.reserve_exact(bytes.len().max(TRUSTED).min(len - bytes.len()));
            }
            let (start, some) = (bytes.len(), BLOCK.min(bytes.capacity() - bytes.len()).min(len - bytes.len()));
            let n = self.bytes.by_ref().take(some as u64).read_to_end(bytes)?;
            self.hash.update(&bytes[start..]);
            if n < some {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads the rest of the body without keeping it.
    fn discard(&mut self) -> io::Result<()> {
        let mut block = Vec::new();
        while self.bytes.limit() > 0 {
            block.clear();
            if self.bytes.by_ref().take(BLOCK as u64).read_to_end(&mut block)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.hash.update(&block);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = prop_oneof![any::<Vec<u8>>(), (0..3 * BLOCK, any::<u8>()).prop_map(|(n, byte)| vec![byte; n])];
        let parcel = (any::<(Vec<u64>, u64)>(), ".*", bytes).prop_map(|((path, number), call, bytes)| Frame::Parcel {
            id: (path.into(), number),
            call,
            parcel: bytes.into(),
        });
        prop_oneof![
            parcel,
            any::<Vec<std::net::SocketAddrV4>>()
                .prop_map(|all| Frame::Welcome(all.into_iter().map(SocketAddr::V4).collect())),
            ".*".prop_map(Frame::Refused),
            (any::<u64>(), ".*").prop_map(|(rank, message)| Frame::Failed { rank, message }),
            Just(Frame::Ready),
            Just(Frame::Go),
            Just(Frame::Beat),
            Just(Frame::Goodbye),
            Just(Frame::Pause),
            Just(Frame::Resume),
        ]
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        bytes
    }

    fn read(input: &mut &[u8]) -> io::Result<Frame> {
        Frame::read_admitted(input, LONGEST, |_| Ok(Admission::Keep)).map(|frame| frame.expect("it is kept"))
    }

    proptest! {
        #[test]
        fn frames_are_read_as_written_one_behind_the_other(all in prop::collection::vec(frames(), 0..5)) {
            let bytes: Vec<u8> = all.iter().flat_map(written).collect();
            let mut input = &bytes[..];
            for frame in all {
                prop_assert_eq!(read(&mut input).unwrap(), frame);
            }
            prop_assert!(input.is_empty());
        }

        /// A frame with any one bit flipped is an error. It does not panic, nor allocate memory for absent bytes.
        #[test]
        fn changed_frames_are_errors(frame in frames(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut bytes = written(&frame);
            let place = at.index(bytes.len());
            bytes[place] ^= 1 << bit;
            prop_assert!(read(&mut &bytes[..]).is_err());
        }

        #[test]
        fn frames_that_are_cut_off_end_early(frame in frames(), cut in any::<prop::sample::Index>()) {
            let bytes = written(&frame);
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(read(&mut &short[..]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }

        #[test]
        fn discarded_frames_are_skipped(frame in frames(), next in frames()) {
            let bytes = [written(&frame), written(&next)].concat();
            let mut input = &bytes[..];
            let first = Frame::read_admitted(&mut input, LONGEST, |_| Ok(Admission::Discard)).unwrap();
            prop_assert_eq!(first.is_none(), matches!(frame, Frame::Parcel { .. }));
            prop_assert_eq!(read(&mut input).unwrap(), next);
        }
    }

    fn body<R: Read>(bytes: R, len: u64) -> Body<R> {
        Body { bytes: bytes.take(len), hash: Hasher::new() }
    }

    #[test]
    fn memory_is_taken_as_bytes_arrive() {
        for come in [0, 10, TRUSTED, TRUSTED + 1, 5 * TRUSTED] {
            let (mut bytes, len) = (Vec::new(), 1 << 36);
            let error = body(io::repeat(7).take(come as u64), len).fill(&mut bytes, len as usize).unwrap_err();
            assert_eq!((error.kind(), bytes.len()), (ErrorKind::UnexpectedEof, come));
            assert!(bytes.capacity() <= come + come.max(TRUSTED), "{} bytes for {come}", bytes.capacity());
        }
        let whole = body(io::repeat(7), 5 << 20).rest().unwrap();
        assert_eq!((whole.len(), whole.capacity()), (5 << 20, 5 << 20));
    }

    #[test]
    fn malformed_frames_are_named() {
        let said = |bytes: &[u8]| Frame::read(&mut &bytes[..], LONGEST_GREETING).unwrap_err().to_string();
        assert!(said(b"HTTP/1.1 400 Bad Request").contains("bytes that no girih sends (HTTP/)"));
        let long = [&MARK[..], &[6], &u64::MAX.to_le_bytes()].concat();
        assert!(said(&long).contains("a message of 18446744073709551615 bytes, of at most 1048576"));
        assert!(said(&[&MARK[..], &[99], &0u64.to_le_bytes()].concat()).contains("kind 99"));
    }
}
