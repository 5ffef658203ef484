//! Settings that configurations hold as text.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<T: Display, S: Serializer>(setting: &T, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(setting)
}

pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    String::deserialize(input)?.parse().map_err(D::Error::custom)
}
