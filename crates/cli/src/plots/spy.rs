//! Spy plots: where the non-zeros of an adjacency lie, as a picture of any graph's size.

use std::path::Path;

use girih_graph_format::Csr;
use plotters::backend::BitMapBackend;
use plotters::prelude::{Color, DrawingBackend, RGBColor};
use rayon::prelude::*;

use super::blue;
use crate::error::CliError;

/// Pixels of a side at most.
const SIDE: usize = 1024;
/// Pixels between two plots.
const GAP: usize = 16;

/// Draws adjacencies side by side, one pixel for a block of entries: white where there is none, darker for more, on a
/// logarithmic scale that the plots share.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, graphs: [(&str, &Csr); 2]) -> Result<(), CliError> {
    let side = graphs.iter().map(|(_, graph)| graph.n_rows()).max().unwrap_or(0).clamp(1, SIDE);
    let panels: Vec<Vec<f64>> = graphs.iter().map(|(_, graph)| densities(graph, side)).collect();
    let darkest = panels.iter().flatten().copied().fold(0.0, f64::max);
    let width = panels.len() * side + (panels.len() - 1) * GAP;
    let failed = |error: &dyn std::fmt::Display| CliError::Other(format!("{}: {error}", path.display()));
    let mut picture = BitMapBackend::new(path, (width as u32, side as u32));
    let white = RGBColor(255, 255, 255);
    picture.draw_rect((0, 0), (width as i32, side as i32), &white, true).map_err(|error| failed(&error))?;
    for (i, panel) in panels.iter().enumerate() {
        let left = i * (side + GAP);
        for (at, &density) in panel.iter().enumerate().filter(|(_, density)| **density > 0.0) {
            let place = ((left + at % side) as i32, (at / side) as i32);
            let colour = shade(density, darkest);
            picture.draw_pixel(place, colour.to_backend_color()).map_err(|error| failed(&error))?;
        }
    }
    picture.present().map_err(|error| failed(&error))
}

/// Entries of each pixel over the entries that it could hold.
fn densities(graph: &Csr, side: usize) -> Vec<f64> {
    let n = graph.n_rows().max(1);
    let first = |pixel: usize| (n * pixel).div_ceil(side);
    let line = |y: usize| {
        let mut counts = vec![0u32; side];
        for v in first(y)..first(y + 1) {
            graph.row(v).iter().for_each(|&u| counts[u as usize * side / n] += 1);
        }
        let rows = first(y + 1) - first(y);
        let area = |x: usize| (rows * (first(x + 1) - first(x))).max(1) as f64;
        counts.iter().enumerate().map(|(x, &count)| f64::from(count) / area(x)).collect::<Vec<_>>()
    };
    (0..side).into_par_iter().flat_map_iter(line).collect()
}

/// Light blue for the faintest pixel that holds anything to dark blue for the densest; four decades between them.
fn shade(density: f64, darkest: f64) -> RGBColor {
    let [red, green, blue] = blue(1.0 + (density / darkest).log10() / 4.0);
    RGBColor(red, green, blue)
}
