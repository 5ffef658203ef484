//! Spy plots: positions of the non-zeros of an adjacency, for graphs of any size, as PNGs of sixteen colours.

use girih_graph_format::Csr;
use rayon::prelude::*;

/// Maximum side of a panel of its own file, and of a panel on a page, in pixels.
pub const FILE_SIDE: usize = 1024;
/// As [`FILE_SIDE`], on a page.
pub const PAGE_SIDE: usize = 512;
/// Minimum side of a panel of its own file in pixels; small graphs are enlarged.
const SIDE_MIN: usize = 400;
/// Gap between two panels, and width of the frame around each, in pixels.
const GAP: usize = 24;
const FRAME: usize = 2;
/// Maximum number of panels in a row of a picture.
const IN_ROW: usize = 3;

/// Colours by index: white, grey, and shades of blue.
const WHITE: u8 = 0;
const GREY: u8 = 1;
const SHADES: u8 = 14;

/// Density of each cell of an adjacency: its entries over those that it could hold.
pub struct Spy {
    /// Cells along a side.
    side: usize,
    densities: Vec<f32>,
}

impl Spy {
    /// Densities of at most `side_max` × `side_max` cells, a cell for each entry of a small graph.
    ///
    /// # Panics
    /// When the graph is not square.
    #[must_use]
    pub fn of(graph: &Csr, side_max: usize) -> Self {
        assert!(graph.is_square(), "a picture of an adjacency");
        let (n, side) = (graph.n_rows(), graph.n_rows().clamp(1, side_max));
        let first = |cell: usize| (n * cell).div_ceil(side);
        let line = |y: usize| {
            let mut counts = vec![0u32; side];
            for v in first(y)..first(y + 1) {
                graph.row(v).iter().for_each(|&u| counts[u as usize * side / n] += 1);
            }
            let rows = first(y + 1) - first(y);
            let area = |x: usize| (rows * (first(x + 1) - first(x))).max(1) as f64;
            counts.iter().enumerate().map(|(x, &count)| (f64::from(count) / area(x)) as f32).collect::<Vec<_>>()
        };
        Self { side, densities: (0..side).into_par_iter().flat_map_iter(line).collect() }
    }

    /// Colours of the cells, where `darkest` is the highest density of all pictures.
    fn colours(&self, darkest: f32) -> impl Iterator<Item = u8> {
        // Light blue for the faintest non-empty cell to dark blue for the densest, over four decades.
        let shade = move |density: f32| 1.0 + (density / darkest).log10() / 4.0;
        let top = f32::from(SHADES - 1);
        let colour =
            move |&density: &f32| if density > 0.0 { 2 + (shade(density).max(0.0) * top) as u8 } else { WHITE };
        self.densities.iter().map(colour)
    }
}

/// Picture of panels in frames, three in a row, as PNG: as many pixels a cell as make a panel large enough to see. Empty
/// cells are white; others are darker for more entries, on a shared logarithmic scale.
#[must_use]
pub fn side_by_side(panels: &[Spy]) -> Vec<u8> {
    let side = panels.iter().map(|panel| panel.side).max().unwrap_or(1);
    let scale = SIDE_MIN.div_ceil(side);
    let framed = side * scale + 2 * FRAME;
    let (columns, rows) = (panels.len().min(IN_ROW), panels.len().div_ceil(IN_ROW));
    let spaced = |n: usize| n * framed + n.saturating_sub(1) * GAP;
    let mut picture = Picture::new(spaced(columns), spaced(rows));
    for (i, panel) in panels.iter().enumerate() {
        let [left, top] = [i % IN_ROW, i / IN_ROW].map(|place| place * (framed + GAP));
        picture.fill([left, top], framed, GREY);
        picture.fill([left + FRAME, top + FRAME], side * scale, WHITE);
        picture.draw([left + FRAME, top + FRAME], scale, panel, darkest(panels));
    }
    picture.to_png()
}

/// Pictures of panels, one each and a pixel a cell, in the colours of [`side_by_side`].
#[must_use]
pub fn each(panels: &[Spy]) -> Vec<Vec<u8>> {
    let picture = |panel: &Spy| {
        let mut picture = Picture::new(panel.side, panel.side);
        picture.draw([0, 0], 1, panel, darkest(panels));
        picture.to_png()
    };
    panels.iter().map(picture).collect()
}

fn darkest(panels: &[Spy]) -> f32 {
    panels.iter().flat_map(|panel| &panel.densities).copied().fold(0.0, f32::max)
}

/// Indices of colours, by rows.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![WHITE; width * height] }
    }

    /// Fills a square with its corner at `[x, y]`.
    fn fill(&mut self, [x, y]: [usize; 2], side: usize, colour: u8) {
        for row in y..y + side {
            let start = row * self.width + x;
            self.pixels[start..start + side].fill(colour);
        }
    }

    /// Draws the non-empty cells of a panel as squares of `scale` pixels.
    fn draw(&mut self, [left, top]: [usize; 2], scale: usize, panel: &Spy, darkest: f32) {
        for (at, colour) in panel.colours(darkest).enumerate().filter(|(_, colour)| *colour != WHITE) {
            self.fill([left + at % panel.side * scale, top + at / panel.side * scale], scale, colour);
        }
    }

    fn to_png(&self) -> Vec<u8> {
        self.encoded().expect("memory takes all bytes, and pictures have a pixel at least")
    }

    fn encoded(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Four);
        encoder.set_palette(palette());
        let two = |pair: &[u8]| (pair[0] << 4) | pair.get(1).copied().unwrap_or(WHITE);
        let packed: Vec<u8> = self.pixels.chunks(self.width).flat_map(|row| row.chunks(2).map(two)).collect();
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&packed)?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// Colour of a density from 0 to 1, as red, green and blue: light blue to dark blue.
#[must_use]
pub fn blue(depth: f64) -> [u8; 3] {
    let mix = |light: f64, dark: f64| (light + depth.clamp(0.0, 1.0) * (dark - light)) as u8;
    [mix(198.0, 8.0), mix(219.0, 29.0), mix(239.0, 88.0)]
}

/// Red, green and blue of each colour.
fn palette() -> Vec<u8> {
    let shades = (0..SHADES).map(|shade| blue(f64::from(shade) / f64::from(SHADES - 1)));
    [[255; 3], [120; 3]].into_iter().chain(shades).flatten().collect()
}
