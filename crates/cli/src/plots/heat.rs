//! Heat maps: the non-zeros of the blocks of a partition, with numbers, as SVG (paper A, figure 5).

use std::fmt::Write as _;

use girih_partition::imbalance;
use girih_reorder::spy::blue;

/// Pixels: side of a panel, left margin for row numbers, and gap between panels.
const SIDE: f64 = 300.0;
const MARGIN: f64 = 34.0;
const GAP: f64 = 24.0;
/// Pixels above a panel for lines of text, and the baseline of column numbers.
const HEAD: f64 = 78.0;
const COLUMNS_AT: f64 = HEAD - 6.0;
/// Maximum number of cells a side; more blocks are merged with their neighbors.
const CELLS_MAX: usize = 64;
/// Maximum number of blocks a side for which counts are printed.
const COUNTED: usize = 8;
/// Maximum number of rows and columns that are numbered.
const NUMBERED: usize = 8;

/// Partition: its title, and the non-zeros of its blocks.
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// Non-zeros of the blocks, by rows.
    pub blocks: Vec<Vec<u64>>,
}

/// Draws panels side by side. Darker blocks have more non-zeros, on one scale for all; empty ones are white. The
/// imbalance of blocks (max/mean) stands below each title.
pub fn draw(panels: &[Panel]) -> String {
    let (cells, most) = cells_of(panels);
    let step = MARGIN + SIDE + GAP;
    let mut svg = opening(panels.len() as f64 * step - GAP);
    for (i, (panel, cells)) in panels.iter().zip(&cells).enumerate() {
        draw_panel(&mut svg, panel, cells, (i as f64 * step + MARGIN, most));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws each panel by itself, as [`draw`] does.
pub fn draw_each(panels: &[Panel]) -> Vec<String> {
    let (cells, most) = cells_of(panels);
    let one = |(panel, cells): (&Panel, &Cells)| {
        let mut svg = opening(MARGIN + SIDE);
        draw_panel(&mut svg, panel, cells, (MARGIN, most));
        svg + "</svg>"
    };
    panels.iter().zip(&cells).map(one).collect()
}

/// Cells of all panels, and the largest count.
fn cells_of(panels: &[Panel]) -> (Vec<Cells>, u64) {
    let cells: Vec<Cells> = panels.iter().map(|panel| Cells::of(&panel.blocks)).collect();
    let most = cells.iter().flat_map(|cells| cells.counts.iter().flatten()).copied().max().unwrap_or(0).max(1);
    (cells, most)
}

fn opening(width: f64) -> String {
    let (width, height) = (width + 1.0, HEAD + SIDE + 1.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui,sans-serif\">"
    )
}

fn draw_panel(svg: &mut String, panel: &Panel, cells: &Cells, (left, most): (f64, u64)) {
    draw_head(svg, panel, cells, left);
    cells.draw(svg, left, most);
    cells.draw_numbers(svg, left);
}

fn draw_head(svg: &mut String, panel: &Panel, cells: &Cells, left: f64) {
    let all: Vec<u64> = panel.blocks.iter().flatten().copied().collect();
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"16\" font-size=\"15\" font-weight=\"600\">{}</text>\
         <text x=\"{left}\" y=\"34\" font-size=\"13\" fill=\"#555\">imbalance of blocks (max/mean): {:.3}</text>",
        panel.title,
        imbalance(&all)
    );
    let (n, per_cell) = (panel.blocks.len(), cells.blocks_each);
    if per_cell > 1 {
        let _ = write!(
            svg,
            "<text x=\"{left}\" y=\"51\" font-size=\"13\" fill=\"#555\">{n} × {n} blocks, {per_cell} × {per_cell} a cell</text>"
        );
    }
}

/// Cells of a drawn partition: blocks, or sums of neighboring blocks.
struct Cells {
    counts: Vec<Vec<u64>>,
    /// Blocks along a side of a cell.
    blocks_each: usize,
}

impl Cells {
    fn of(blocks: &[Vec<u64>]) -> Self {
        let blocks_each = blocks.len().div_ceil(CELLS_MAX).max(1);
        let n = blocks.len().div_ceil(blocks_each);
        let mut counts = vec![vec![0; n]; n];
        for (row, of_row) in blocks.iter().enumerate() {
            for (col, nnz) in of_row.iter().enumerate() {
                counts[row / blocks_each][col / blocks_each] += nnz;
            }
        }
        Self { counts, blocks_each }
    }

    fn size(&self) -> f64 {
        SIDE / self.counts.len().max(1) as f64
    }

    /// Draws the non-empty cells, in a frame.
    fn draw(&self, svg: &mut String, left: f64, most: u64) {
        let size = self.size();
        for (row, counts) in self.counts.iter().enumerate() {
            for (col, &nnz) in counts.iter().enumerate() {
                let at = (left + col as f64 * size, HEAD + row as f64 * size);
                draw_cell(svg, at, size, nnz, nnz as f64 / most as f64);
                if self.counts.len() <= COUNTED {
                    draw_count(svg, at, size, nnz, nnz as f64 / most as f64);
                }
            }
        }
        let _ = write!(
            svg,
            "<path d=\"M{left} {HEAD}h{SIDE}v{SIDE}h-{SIDE}z\" fill=\"none\" stroke=\"#888\" stroke-width=\"1\"/>"
        );
    }

    /// Draws the first block number of rows and of columns, as many as fit.
    fn draw_numbers(&self, svg: &mut String, left: f64) {
        let (n, size) = (self.counts.len(), self.size());
        let mut write = |x: f64, y: f64, anchor: &str, cell: usize| {
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"11\" fill=\"#555\" text-anchor=\"{anchor}\">{}</text>",
                cell * self.blocks_each
            );
        };
        for cell in (0..n).step_by(n.div_ceil(NUMBERED).max(1)) {
            let middle = (cell as f64 + 0.5) * size;
            write(left + middle, COLUMNS_AT, "middle", cell);
            write(left - 6.0, HEAD + middle + 4.0, "end", cell);
        }
    }
}

fn draw_cell(svg: &mut String, (x, y): (f64, f64), size: f64, nnz: u64, share: f64) {
    if nnz == 0 {
        return;
    }
    let [red, green, blue] = blue(share);
    let _ = write!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{size:.2}\" height=\"{size:.2}\" \
         fill=\"rgb({red},{green},{blue})\" stroke=\"white\" stroke-width=\"{:.2}\"><title>{nnz}</title></rect>",
        (size / 40.0).min(1.0)
    );
}

fn draw_count(svg: &mut String, (x, y): (f64, f64), size: f64, nnz: u64, share: f64) {
    // The class lets pages set the colour of all other text.
    let (ink, class) = if share > 0.45 {
        ("white", "dark")
    } else if nnz > 0 {
        ("#222", "light")
    } else {
        ("#222", "")
    };
    let _ = write!(
        svg,
        "<text x=\"{:.2}\" y=\"{:.2}\" font-size=\"{:.1}\" fill=\"{ink}\" class=\"{class}\" text-anchor=\"middle\">{}</text>",
        x + size / 2.0,
        y + size / 2.0 + 5.0,
        (size / 4.0).min(15.0),
        short(nnz)
    );
}

/// Count with three digits, in thousands, millions or billions.
pub fn short(nnz: u64) -> String {
    /// Value that rounds to the next unit, the unit, and its name.
    const UNITS: [(f64, f64, &str); 3] = [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "k")];
    let count = nnz as f64;
    let Some((_, unit, name)) = UNITS.into_iter().find(|(from, ..)| count >= *from) else { return nnz.to_string() };
    let value = count / unit;
    let decimals = [9.995, 99.95].into_iter().filter(|limit| value < *limit).count();
    format!("{value:.decimals$}{name}")
}
