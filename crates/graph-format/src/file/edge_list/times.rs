//! Times of edges: from decimal numbers to ticks.

use super::columns::Role;
use crate::file::number::{decimal, float};
use crate::file::text::shown;
use crate::{FormatError, MAX_DECIMALS, Notes, Tick, Times};

/// Reason for leaving out a column of times.
pub(super) const LEFT_OUT: &str = "times of edges";
/// Memory of an edge's time in bytes: as it is written, and as an entry of both its ends.
pub(super) const EDGE_BYTES: u64 = 64;
/// Smallest number that may be a time in seconds since the epoch.
const FIRST_SECOND: i64 = 100_000_000;
/// Ratio of the latest to the earliest time above which they may have two units.
const MAX_RATIO: i64 = 500;

/// Checks that one column has times.
///
/// # Errors
/// When none has, or several have.
pub(super) fn check_columns(roles: &[Role]) -> Result<(), String> {
    let of_time: Vec<usize> = (0..roles.len()).filter(|&at| roles[at] == Role::Time).collect();
    match of_time[..] {
        [_] => Ok(()),
        [] => {
            Err("no column of times is named, and edges are to be read by time; say which one has them by --columns \
                   source,target,time or the like"
                .to_owned())
        }
        [first, second, ..] => Err(format!(
            "the columns {} and {} both have times; say by --columns which one counts, with - for the other",
            first + 1,
            second + 1
        )),
    }
}

/// Whether one column has times, and the field of a first line in it is one.
pub(super) fn are_there<'a>(roles: &[Role], first: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut fields = roles.iter().zip(first).filter(|(role, _)| **role == Role::Time);
    check_columns(roles).is_ok() && fields.all(|(_, field)| parse(field).is_ok())
}

/// Parses a time as its digits and the number of those behind the point.
///
/// # Errors
/// When it is no time.
pub(super) fn parse(field: &[u8]) -> Result<(i64, u8), String> {
    match decimal(field) {
        Some((digits, decimals)) if decimals <= MAX_DECIMALS => Ok((digits, decimals)),
        Some((_, decimals)) => {
            Err(format!("the time {:?} has {decimals} decimals; at most {MAX_DECIMALS} are read", shown(field)))
        }
        None => Err(problem(field)),
    }
}

/// Description of the error in a time.
#[cold]
fn problem(field: &[u8]) -> String {
    let time = shown(field);
    match float(field) {
        Some(value) if value.is_nan() => format!("the time {time:?} is missing; every edge needs one"),
        Some(value) if value < 0.0 => {
            format!("the time {time:?} is negative; count times from an earlier moment, by adding a constant to all")
        }
        Some(_) => format!("the time {time:?} is no plain decimal number below 2^63; write it without an exponent"),
        None => format!("{time:?} is no time; expected a number, such as seconds since 1970, or - in --columns"),
    }
}

/// Times in ticks of the most decimals that one of them has.
///
/// # Errors
/// When a time does not fit 64 bits in these ticks.
pub(super) fn in_ticks(written: &[(i64, u8)], notes: &mut Notes) -> Result<Times, FormatError> {
    let decimals = written.iter().map(|&(_, decimals)| decimals).max().unwrap_or(0);
    let in_ticks = |&(digits, of): &(i64, u8)| digits.checked_mul(10_i64.pow(u32::from(decimals - of)));
    let values: Option<Vec<i64>> = written.iter().map(in_ticks).collect();
    let values = values.ok_or_else(|| {
        FormatError::invalid(format!(
            "some times have {decimals} decimals, and in these units another one does not fit 64 bits; write fewer decimals"
        ))
    })?;
    let tick = Tick::of_decimals(decimals)?;
    note_units(&values, tick, notes);
    Ok(Times { values, tick })
}

/// Warns when some times look like seconds since 1970 and others like milliseconds.
fn note_units(values: &[i64], tick: Tick, notes: &mut Notes) {
    let Some((&least, &most)) = values.iter().min().zip(values.iter().max()) else { return };
    if least / tick.per_unit() >= FIRST_SECOND && most / MAX_RATIO > least {
        notes.warn(format!(
            "times range from {} to {}: some may be in seconds and others in milliseconds",
            tick.show(least),
            tick.show(most)
        ));
    }
}
