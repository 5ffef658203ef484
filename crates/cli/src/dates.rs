//! Times of the calendar.

use std::time::{SystemTime, UNIX_EPOCH};

/// Current time in seconds since 1970-01-01 UTC, to the millisecond.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1e3
}

/// Date and time of day of seconds since 1970-01-01, as `2026-03-01 17:05 UTC`.
pub fn utc(seconds: f64) -> String {
    let minutes = seconds.max(0.0) as u64 / 60;
    let (days, minute) = (minutes / (24 * 60), minutes % (24 * 60));
    let (year, month, day) = date(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar. Years are counted from March,
/// so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days of 400, 100 and 4 years, and of one.
    const ERA: u64 = 146_097;
    const CENTURY: u64 = 36_524;
    const OLYMPIAD: u64 = 1461;
    const YEAR: u64 = 365;
    // Days since 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let century = (day / CENTURY).min(3);
    let day = day - century * CENTURY;
    let (olympiad, day) = (day / OLYMPIAD, day % OLYMPIAD);
    let year = (day / YEAR).min(3);
    let day = day - year * YEAR;
    // Months from March have 31, 30, 31, 30, 31 days, and again: 153 days in five months.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = 400 * era + 100 * century + 4 * olympiad + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}
