//! Spy plots: positions of the non-zeros of an adjacency, for graphs of any size.

use girih_graph_format::Csr;
use rayon::prelude::*;

use super::blue;
use crate::error::CliError;

/// Maximum and minimum side of a panel in pixels; small graphs are enlarged.
const SIDE_MAX: usize = 1024;
const SIDE_MIN: usize = 400;
/// Gap between two panels, and width of the frame around each, in pixels.
const GAP: usize = 24;
const FRAME: usize = 2;

const WHITE: [u8; 3] = [255; 3];
const GREY: [u8; 3] = [120; 3];

/// Draws adjacencies side by side in frames, as PNG. A pixel, or a square of pixels for small graphs, stands for a
/// block of entries. Empty blocks are white; others are darker for more entries, on a shared logarithmic scale.
///
/// # Errors
/// Never in practice: the picture is made in memory.
pub fn draw(graphs: [&Csr; 2]) -> Result<Vec<u8>, CliError> {
    let cells = graphs.iter().map(|graph| graph.n_rows()).max().unwrap_or(0).clamp(1, SIDE_MAX);
    let panels = graphs.map(|graph| densities(graph, cells));
    let darkest = panels.iter().flatten().copied().fold(0.0, f64::max);
    let scale = SIDE_MIN.div_ceil(cells);
    let framed = cells * scale + 2 * FRAME;
    let mut picture = Picture::new(panels.len() * framed + (panels.len() - 1) * GAP, framed);
    for (i, panel) in panels.iter().enumerate() {
        let left = i * (framed + GAP);
        picture.fill([left, 0], framed, GREY);
        picture.fill([left + FRAME, FRAME], cells * scale, WHITE);
        for (at, &density) in panel.iter().enumerate().filter(|(_, density)| **density > 0.0) {
            let place = [left + FRAME + at % cells * scale, FRAME + at / cells * scale];
            picture.fill(place, scale, shade(density, darkest));
        }
    }
    picture.to_png().map_err(|error| CliError::Other(format!("cannot encode a picture: {error}")))
}

/// Pixels, by rows.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![WHITE; width * height] }
    }

    /// Fills a square with its corner at `[x, y]`.
    fn fill(&mut self, [x, y]: [usize; 2], side: usize, colour: [u8; 3]) {
        for row in y..y + side {
            let start = row * self.width + x;
            self.pixels[start..start + side].fill(colour);
        }
    }

    fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// Density of each pixel: its entries over the entries that it could hold.
fn densities(graph: &Csr, side: usize) -> Vec<f64> {
    let n = graph.n_rows();
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

/// Light blue for the faintest non-empty pixel to dark blue for the densest, over four decades.
fn shade(density: f64, darkest: f64) -> [u8; 3] {
    blue(1.0 + (density / darkest).log10() / 4.0)
}
