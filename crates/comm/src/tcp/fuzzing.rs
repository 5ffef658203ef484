//! Entry points for fuzzing: they pass bytes to the code that reads from a socket of an unknown client.

use std::io;
use std::time::Duration;

use super::Options;
use super::frame::{Admission, Frame, LONGEST, LONGEST_GREETING};
use super::proof::{CLAIM, GREETING, Meeting, Purpose, check_prefix};
use crate::Secret;

/// Number of frames in `bytes`. If `greets`, they are read as before the start of the job, otherwise as after it.
/// Each frame is encoded again and must give the same bytes.
///
/// # Errors
/// At the first malformed frame.
///
/// # Panics
/// When the encoding of a frame differs from the bytes that were read.
pub fn frames(bytes: &[u8], greets: bool) -> io::Result<usize> {
    let (mut rest, mut n) = (bytes, 0);
    while !rest.is_empty() {
        let before = rest;
        let frame = match greets {
            true => Frame::read(&mut rest, LONGEST_GREETING)?,
            false => match Frame::read_admitted(&mut rest, LONGEST, |_| Ok(Admission::Keep))? {
                Some(frame) => frame,
                None => unreachable!("every parcel is kept"),
            },
        };
        let mut written = Vec::new();
        frame.write(&mut written)?;
        // Every frame has one encoding, except for addresses, some of which have two.
        let is_list = matches!(frame, Frame::Welcome(_));
        assert!(is_list || written == before[..before.len() - rest.len()], "{frame:?} is written in another way");
        n += 1;
    }
    Ok(n)
}

/// Whether the bytes are a greeting and a valid claim for it, as a listener checks them. If `proves`, the claim first
/// gets a valid proof, so that its fields are parsed too.
#[must_use]
pub fn claim(bytes: &[u8], proves: bool) -> bool {
    let Some((greeting, rest)) = bytes.split_first_chunk::<GREETING>() else { return false };
    let Some((claim, _)) = rest.split_first_chunk::<CLAIM>() else { return false };
    let secret = Secret::detect(None, |name| (name == Secret::VARIABLE).then(|| "5a".repeat(32)));
    let Ok(secret) = secret else { return false };
    let options = Options {
        rank: 0,
        size: 2,
        rendezvous: String::new(),
        job: "fuzz".to_owned(),
        secret,
        start_deadline: Duration::ZERO,
        deadline: Duration::ZERO,
    };
    let meeting = Meeting { options: &options, purpose: Purpose::Rendezvous, listener: 0 };
    let claim = if proves { meeting.with_proof(greeting, claim) } else { *claim };
    let is_ours = check_prefix(greeting).is_ok() && check_prefix(&claim).is_ok();
    let known = meeting.check_claim(greeting, &claim);
    assert!(!proves || known.is_some(), "a claim with its proof is not believed");
    is_ours && known.is_some()
}
