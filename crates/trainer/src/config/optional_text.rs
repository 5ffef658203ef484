//! Settings that configurations hold as text, and that may be left out.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserializer, Serializer};

use super::text;

#[allow(clippy::ref_option)]
pub(super) fn serialize<T: Display, S: Serializer>(setting: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
    match setting {
        None => out.serialize_none(),
        Some(setting) => out.collect_str(setting),
    }
}

pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    text::deserialize(input).map(Some)
}
