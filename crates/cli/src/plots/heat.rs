//! Heat maps: the non-zeros of the blocks of a partition, with numbers, as SVG (paper A, figure 5).

use std::fmt::Write as _;

use girih_partition::imbalance;

use super::blue;

/// Pixels of a panel's side, and between panels.
const SIDE: f64 = 300.0;
const GAP: f64 = 24.0;
/// Lines of text above a panel.
const HEAD: f64 = 44.0;
/// Blocks a side that still get their numbers.
const NUMBERED: usize = 8;

/// A partition: what it is called, and the non-zeros of its blocks.
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Row after row.
    pub blocks: Vec<Vec<u64>>,
}

/// Panels side by side: darker blocks hold more, on one scale for all; below each title the largest block over the mean.
pub fn draw(panels: &[Panel]) -> String {
    let most = panels.iter().flat_map(|panel| panel.blocks.iter().flatten()).copied().max().unwrap_or(0).max(1);
    let width = panels.len() as f64 * (SIDE + GAP) - GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"system-ui,sans-serif\">",
        HEAD + SIDE
    );
    for (i, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, panel, i as f64 * (SIDE + GAP), most);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, Panel { title, blocks }: &Panel, left: f64, most: u64) {
    let all: Vec<u64> = blocks.iter().flatten().copied().collect();
    let cell = SIDE / blocks.len().max(1) as f64;
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"16\" font-size=\"15\" font-weight=\"600\">{title}</text>\
         <text x=\"{left}\" y=\"34\" font-size=\"13\" fill=\"#555\">largest block over the mean: {:.3}</text>",
        imbalance(&all)
    );
    for (row, counts) in blocks.iter().enumerate() {
        for (col, &nnz) in counts.iter().enumerate() {
            let (x, y) = (left + col as f64 * cell, HEAD + row as f64 * cell);
            let share = nnz as f64 / most as f64;
            let [red, green, blue] = blue(share);
            let _ = write!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{cell:.2}\" height=\"{cell:.2}\" \
                 fill=\"rgb({red},{green},{blue})\" stroke=\"white\"><title>{nnz}</title></rect>"
            );
            if blocks.len() <= NUMBERED {
                let ink = if share > 0.45 { "white" } else { "#222" };
                let _ = write!(
                    svg,
                    "<text x=\"{:.2}\" y=\"{:.2}\" font-size=\"{:.1}\" fill=\"{ink}\" text-anchor=\"middle\">{}</text>",
                    x + cell / 2.0,
                    y + cell / 2.0 + 5.0,
                    (cell / 5.0).min(15.0),
                    short(nnz)
                );
            }
        }
    }
}

/// A count in thousands or millions.
pub fn short(nnz: u64) -> String {
    match nnz {
        0..10_000 => nnz.to_string(),
        10_000..10_000_000 => format!("{:.1}k", nnz as f64 / 1e3),
        _ => format!("{:.1}M", nnz as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_drawn_and_numbered() {
        let panel = |title: &str| Panel { title: title.to_owned(), blocks: vec![vec![1, 2_000_000], vec![30_000, 0]] };
        let svg = draw(&[panel("before"), panel("after")]);
        assert_eq!(svg.matches("<rect").count(), 8);
        for text in ["before", "after", "2000.0k", "30.0k", "largest block over the mean"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
