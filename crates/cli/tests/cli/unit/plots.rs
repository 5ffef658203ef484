//! Pictures of graphs.

use girih_cli::internals::plots::{heat, spy};
use girih_graph_format::{Coo, Csr, Duplicates};

fn size(graph: &Csr) -> (u32, u32) {
    let bytes = spy::draw([graph, graph]).unwrap();
    let info = png::Decoder::new(&bytes[..]).read_info().unwrap().info().clone();
    (info.width, info.height)
}

#[test]
fn graphs_of_any_size_have_a_picture_that_can_be_seen() {
    let path = |n: usize| {
        let from: Vec<u32> = (1..n as u32).collect();
        let to = from.iter().map(|v| v - 1).collect();
        Coo::new(n, n, from, to, None).unwrap().to_csr(Duplicates::Merge).unwrap()
    };
    assert_eq!(size(&path(0)), (2 * 404 + 24, 404));
    assert_eq!(size(&path(1)), (2 * 404 + 24, 404));
    assert_eq!(size(&path(300)), (2 * 604 + 24, 604), "enlarged by whole numbers");
    assert_eq!(size(&path(5000)), (2 * 1028 + 24, 1028));
}

fn panel(title: &str, blocks: Vec<Vec<u64>>) -> heat::Panel {
    heat::Panel { title: title.to_owned(), blocks }
}

#[test]
fn blocks_are_drawn_and_numbered_and_empty_ones_stay_white() {
    let blocks = || vec![vec![1, 2_000_000], vec![30_000, 0]];
    let svg = heat::draw(&[panel("before", blocks()), panel("after", blocks())]);
    assert_eq!(svg.matches("<rect").count(), 2 * 3);
    for text in ["before", "after", ">2.00M<", ">30.0k<", ">0<", "imbalance of blocks (max/mean)"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn many_blocks_are_drawn_as_few_cells() {
    let svg = heat::draw(&[panel("many", vec![vec![1; 100]; 100])]);
    assert_eq!(svg.matches("<rect").count(), 50 * 50);
    assert!(svg.contains("100 × 100 blocks, 2 × 2 a cell") && svg.contains("<title>4</title>"), "{}", &svg[..600]);
}

#[test]
fn counts_have_three_digits() {
    let shown = [999, 9_999, 10_000, 139_020, 999_499, 999_500, 1_390_200, 25_000_000, 999_500_000];
    assert_eq!(shown.map(heat::short), ["999", "9999", "10.0k", "139k", "999k", "1.00M", "1.39M", "25.0M", "1.00G"]);
}
