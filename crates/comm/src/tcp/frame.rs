//! [`Frame`]: what travels between two processes, and how it is written.
//!
//! A frame is a mark, a kind, the length of its body, and the body. Numbers are little-endian, texts have their length
//! before them. Frames follow once both ends have proven themselves (`proof.rs`).

use std::io::{self, ErrorKind, Read, Take, Write};
use std::net::SocketAddr;

use crate::transport::Parcel;

/// The version of this program; processes of other versions may agree on nothing.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first bytes of a frame: what does not start so was not sent by girih.
const MARK: [u8; 5] = *b"girih";
const HEAD: usize = MARK.len() + 1 + size_of::<u64>();

/// Longest body before the order to go, 1 MiB: the addresses of thousands of ranks.
pub(super) const LONGEST_GREETING: u64 = 1 << 20;

/// The longest body of all, 64 GiB: no matrix comes near it, random bytes read as a length go far beyond.
pub(super) const LONGEST: u64 = 1 << 36;

/// Memory that a stated length alone makes a reader take, 1 MiB. More is taken as bytes arrive: as much again.
const TRUSTED: usize = 1 << 20;

/// Which communicator, by the exchanges that it was split off at, and which of its exchanges.
pub(super) type ExchangeId = (Vec<u64>, u64);

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// All have come: where ranks 1, 2, … listen.
    Welcome(Vec<SocketAddr>),
    /// It will not start; why.
    Refused(String),
    /// The sender is connected to everybody.
    Ready,
    /// Everybody is.
    Go,
    /// The sender lives.
    Beat,
    /// A part of an exchange.
    Parcel { id: ExchangeId, call: String, parcel: Parcel },
    /// A rank has failed; nothing follows.
    Failed { rank: u64, message: String },
    /// The sender has done its work; nothing follows.
    Goodbye,
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
                6
            }
            Self::Failed { rank, message } => {
                put(&mut body, *rank);
                put_text(&mut body, message);
                7
            }
            Self::Goodbye => 8,
        };
        let len = (body.len() + tail.len()) as u64;
        // One write for what is short: each is a packet.
        let head = [&MARK[..], &[kind], &len.to_le_bytes(), &body].concat();
        out.write_all(&head)?;
        out.write_all(tail)?;
        out.flush()
    }

    /// Reads the next frame, whose body has at most `longest` bytes.
    ///
    /// # Errors
    /// `InvalidData` for what is no frame; whatever reading says otherwise.
    pub fn read(input: &mut impl Read, longest: u64) -> io::Result<Self> {
        let mut head = [0; HEAD];
        input.read_exact(&mut head)?;
        let (mark, rest) = head.split_at(MARK.len());
        if mark != MARK {
            return Err(garbled(format!("bytes that no girih sends ({})", mark.escape_ascii())));
        }
        let len = u64::from_le_bytes(rest[1..].try_into().expect("eight bytes"));
        if len > longest {
            return Err(garbled(format!("a message of {len} bytes, of at most {longest}")));
        }
        parse(rest[0], &mut Body(input.take(len)))
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

/// The frame of a body.
///
/// # Errors
/// `InvalidData` for what is none.
fn parse(kind: u8, body: &mut Body<impl Read>) -> io::Result<Frame> {
    let other = || garbled(format!("a message of kind {kind} that says something else"));
    let frame = match kind {
        1 => {
            let n = body.number()?;
            let address = |_| body.text()?.parse().map_err(|_| other());
            Frame::Welcome((0..n).map(address).collect::<io::Result<_>>()?)
        }
        2 => Frame::Refused(body.text()?),
        3 => Frame::Ready,
        4 => Frame::Go,
        5 => Frame::Beat,
        6 => {
            let path = (0..body.number()?).map(|_| body.number()).collect::<io::Result<_>>()?;
            let (number, call) = (body.number()?, body.text()?);
            Frame::Parcel { id: (path, number), call, parcel: body.rest()?.into() }
        }
        7 => Frame::Failed { rank: body.number()?, message: body.text()? },
        8 => Frame::Goodbye,
        _ => return Err(other()),
    };
    if body.0.limit() == 0 { Ok(frame) } else { Err(other()) }
}

/// A body as it arrives.
struct Body<R>(Take<R>);

impl<R: Read> Body<R> {
    fn number(&mut self) -> io::Result<u64> {
        let bytes = self.bytes(size_of::<u64>() as u64)?;
        Ok(u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
    }

    fn text(&mut self) -> io::Result<String> {
        let len = self.number()?;
        String::from_utf8(self.bytes(len)?).map_err(|_| garbled("a text that is none".to_owned()))
    }

    fn rest(&mut self) -> io::Result<Vec<u8>> {
        self.bytes(self.0.limit())
    }

    /// So many bytes. Memory grows with what has come, and large blocks grow without being copied where the system can.
    fn bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        if len > self.0.limit() {
            return Err(garbled(format!("a message that ends {} bytes early", len - self.0.limit())));
        }
        let mut bytes = Vec::new();
        self.fill(&mut bytes, len as usize)?;
        Ok(bytes)
    }

    /// Appends bytes until there are `len`. Never holds memory for more than came already, or [`TRUSTED`].
    fn fill(&mut self, bytes: &mut Vec<u8>, len: usize) -> io::Result<()> {
        while bytes.len() < len {
            let some = bytes.len().max(TRUSTED).min(len - bytes.len());
            bytes.reserve_exact(some);
            if self.0.by_ref().take(some as u64).read_to_end(bytes)? < some {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let parcel = (any::<(Vec<u64>, u64)>(), ".*", any::<Vec<u8>>()).prop_map(|(id, call, bytes)| Frame::Parcel {
            id,
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
        ]
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn frames_are_read_as_written_one_behind_the_other(all in prop::collection::vec(frames(), 0..5)) {
            let bytes: Vec<u8> = all.iter().flat_map(written).collect();
            let mut input = &bytes[..];
            for frame in all {
                prop_assert_eq!(Frame::read(&mut input, LONGEST).unwrap(), frame);
            }
            prop_assert!(input.is_empty());
        }

        /// Whatever comes is a frame or an error; it neither panics nor takes memory for bytes that are not there.
        #[test]
        fn garbled_frames_are_errors(frame in frames(), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
            let mut bytes = written(&frame);
            let place = at.index(bytes.len());
            bytes[place] = byte;
            drop(Frame::read(&mut &bytes[..], LONGEST));
            let short = &written(&frame)[..cut.index(bytes.len())];
            prop_assert_eq!(Frame::read(&mut &short[..], LONGEST).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn memory_is_taken_as_bytes_arrive() {
        for come in [0, 10, TRUSTED, TRUSTED + 1, 5 * TRUSTED] {
            let (mut bytes, len) = (Vec::new(), 1 << 36);
            let error = Body(io::repeat(7).take(come as u64).take(len)).fill(&mut bytes, len as usize).unwrap_err();
            assert_eq!((error.kind(), bytes.len()), (ErrorKind::UnexpectedEof, come));
            assert!(bytes.capacity() <= come + come.max(TRUSTED), "{} bytes for {come}", bytes.capacity());
        }
        let whole = Body(io::repeat(7).take(5 << 20)).bytes(5 << 20).unwrap();
        assert_eq!((whole.len(), whole.capacity()), (5 << 20, 5 << 20));
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let said = |bytes: &[u8]| Frame::read(&mut &bytes[..], LONGEST_GREETING).unwrap_err().to_string();
        assert!(said(b"HTTP/1.1 400 Bad Request").contains("bytes that no girih sends (HTTP/)"));
        let long = [&MARK[..], &[6], &u64::MAX.to_le_bytes()].concat();
        assert!(said(&long).contains("a message of 18446744073709551615 bytes, of at most 1048576"));
        assert!(said(&[&MARK[..], &[99], &0u64.to_le_bytes()].concat()).contains("kind 99"));
    }
}
