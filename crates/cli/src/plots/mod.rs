//! Pictures of graphs: as pixels ([`spy`]) and as blocks ([`heat`]).

pub mod heat;
pub mod spy;

/// Colour of a density from 0 to 1: light blue to dark blue.
fn blue(depth: f64) -> [u8; 3] {
    let mix = |light: f64, dark: f64| (light + depth.clamp(0.0, 1.0) * (dark - light)) as u8;
    [mix(198.0, 8.0), mix(219.0, 29.0), mix(239.0, 88.0)]
}
