//! Targets for messages between ranks, and for messages from unknown senders.

use std::path::Path;

use girih_comm::tcp::fuzzing;

use crate::Input;

fn bytes(input: &Input) -> &[u8] {
    input.files.first().map_or(&[], |file| &file.bytes)
}

/// Consecutive frames, before the start and after it.
pub(super) fn frames(_: &Path, input: &Input) -> Result<(), String> {
    let _ = fuzzing::frames(bytes(input), true);
    fuzzing::frames(bytes(input), false).map(drop).map_err(|error| error.to_string())
}

/// Greeting and the claim that answers it: as they are, and with a valid proof.
pub(super) fn greetings(_: &Path, input: &Input) -> Result<(), String> {
    let is_believed = fuzzing::claim(bytes(input), false);
    let is_read = fuzzing::claim(bytes(input), true);
    assert!(!is_believed, "a claim is believed without a proof");
    if is_read { Ok(()) } else { Err("no greeting and claim".to_owned()) }
}
