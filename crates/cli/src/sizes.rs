//! Sizes of memory with units.

/// Parses bytes as a number with a unit: `80GB`, `79.6 GiB`, `1000000`.
pub fn parse(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("TiB", (1u64 << 40) as f64),
        ("GiB", (1 << 30) as f64),
        ("MiB", (1 << 20) as f64),
        ("KiB", (1 << 10) as f64),
        ("TB", 1e12),
        ("GB", 1e9),
        ("MB", 1e6),
        ("KB", 1e3),
        ("B", 1.0),
    ];
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((strip_unit(text, name)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number * bytes < u64::MAX as f64 => Ok((number * bytes) as u64),
        _ => Err("expected a size like 80GB, 24GiB or a number of bytes".to_owned()),
    }
}

fn strip_unit<'a>(text: &'a str, unit: &str) -> Option<&'a str> {
    let (number, end) = text.split_at_checked(text.len().checked_sub(unit.len())?)?;
    end.eq_ignore_ascii_case(unit).then_some(number)
}
