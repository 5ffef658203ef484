//! [`TimeConfig`]: settings of batches that are sampled in time.

use std::fmt;
use std::str::FromStr;

use girih_graph_format::Tick;
use girih_sampling::{Admits, Bound, Strategy, TimeRule};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rules::is_default;
use super::{optional_text, text};
use crate::TrainError;

/// Edges that a seed sees at its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeConfig {
    /// Time up to which edges are seen; `None` if `before` says it.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub until: Option<Bound>,
    /// Time before which edges are seen; `None` if `until` says it.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub before: Option<Bound>,
    /// Largest age of an edge that is seen; `None`: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<TimeSpan>,
    /// Choice among the edges that are seen.
    #[serde(with = "text", skip_serializing_if = "is_default")]
    pub strategy: Strategy,
}

impl TimeConfig {
    /// Whether batches are sampled in time.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Time that bounds the edges, and whether edges at it are seen.
    ///
    /// # Errors
    /// When not exactly one bound is given.
    pub(crate) fn bound(&self) -> Result<(Bound, Admits), TrainError> {
        match (self.until, self.before) {
            (Some(bound), None) => Ok((bound, Admits::Until)),
            (None, Some(bound)) => Ok((bound, Admits::Before)),
            (Some(_), Some(_)) => {
                Err(TrainError::invalid("time.until and time.before both bound the edges; leave one out"))
            }
            (None, None) => Err(TrainError::invalid(
                "time.window and time.strategy choose among earlier edges: give the bound as well, time.before = \"seed\" or \
                 time.until = \"seed\"",
            )),
        }
    }

    /// Rule of the sampler for times of this unit.
    ///
    /// # Errors
    /// When not exactly one bound is given, or the window is no whole number of ticks.
    pub fn rule(&self, tick: Tick) -> Result<TimeRule, TrainError> {
        let (bound, admits) = self.bound()?;
        let window = self.window.map(|span| span.in_ticks(tick)).transpose()?;
        Ok(TimeRule { bound, admits, window, strategy: self.strategy })
    }
}

/// Span of time, such as `30d`, `12h`, `90m`, `2.5s`, or a number in the unit of the data.
///
/// Units of letters count seconds: they are for times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// Digits of the number, without the point.
    digits: u64,
    /// Number of digits behind the point.
    decimals: u8,
    unit: Option<char>,
}

/// Units with their seconds.
const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl TimeSpan {
    /// Number of ticks.
    ///
    /// # Errors
    /// When it is no whole number, or does not fit 64 bits.
    pub fn in_ticks(self, tick: Tick) -> Result<u64, TrainError> {
        let factor = UNITS.iter().find(|(unit, _)| Some(*unit) == self.unit).map_or(1, |unit| unit.1);
        let all = u128::from(self.digits) * u128::from(factor) * u128::from(tick.per_unit().unsigned_abs());
        let one = 10_u128.pow(u32::from(self.decimals));
        match u64::try_from(all / one) {
            Ok(ticks) if all.is_multiple_of(one) && i64::try_from(ticks).is_ok() => Ok(ticks),
            _ => Err(TrainError::invalid(format!(
                "the window {self} is no whole number of ticks of {tick} in the data's unit, or too long; give another one"
            ))),
        }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u64.pow(u32::from(self.decimals));
        write!(f, "{}", self.digits / one)?;
        if self.decimals > 0 {
            write!(f, ".{:0width$}", self.digits % one, width = usize::from(self.decimals))?;
        }
        self.unit.map_or(Ok(()), |unit| write!(f, "{unit}"))
    }
}

impl FromStr for TimeSpan {
    type Err = TrainError;

    fn from_str(text: &str) -> Result<Self, TrainError> {
        let wrong = || {
            TrainError::invalid(format!(
                "{text:?} is no span of time; expected a number with w, d, h, m or s behind it, such as 30d, or a number in \
                 the unit of the data"
            ))
        };
        let unit = text.chars().last().filter(|last| UNITS.iter().any(|(unit, _)| unit == last));
        let number = unit.map_or(text, |_| &text[..text.len() - 1]);
        let (whole, rest) = number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
        let parts = [Some(whole), rest];
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !parts.into_iter().flatten().all(is_number) || rest.is_some_and(|rest| rest.len() > 9) {
            return Err(wrong());
        }
        let digits = parts.into_iter().flatten().collect::<String>().parse().map_err(|_| wrong())?;
        Ok(Self { digits, decimals: rest.map_or(0, str::len) as u8, unit })
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        text::deserialize(input)
    }
}
