//! Pictures of graphs.

use girih_cli::internals::plots::heat;
use girih_graph_format::{Coo, Csr, Duplicates};
use girih_reorder::spy::{self, FILE_SIDE, PAGE_SIDE, Spy};

fn path(n: usize) -> Csr {
    let from: Vec<u32> = (1..n as u32).collect();
    let to = from.iter().map(|v| v - 1).collect();
    Coo::new(n, n, from, to, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Size of a picture, and its pixels as colours.
fn decoded(bytes: &[u8]) -> ((u32, u32), Vec<[u8; 3]>) {
    let mut decoder = png::Decoder::new(bytes);
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut pixels).unwrap();
    pixels.truncate(info.buffer_size());
    ((info.width, info.height), pixels.as_chunks().0.to_vec())
}

#[test]
fn graphs_of_any_size_have_a_picture_that_can_be_seen() {
    let size = |n: usize, panels: usize| {
        let panels: Vec<Spy> = (0..panels).map(|_| Spy::of(&path(n), FILE_SIDE)).collect();
        decoded(&spy::side_by_side(&panels)).0
    };
    assert_eq!(size(0, 2), (2 * 404 + 24, 404));
    assert_eq!(size(1, 2), (2 * 404 + 24, 404));
    assert_eq!(size(300, 2), (2 * 604 + 24, 604), "enlarged by whole numbers");
    assert_eq!(size(5000, 2), (2 * 1028 + 24, 1028));
    assert_eq!(size(300, 4), (3 * 604 + 2 * 24, 2 * 604 + 24), "three in a row");
}

/// Entries of a path lie below the diagonal. A picture of a few colours is small.
#[test]
fn pictures_have_a_pixel_for_each_cell_and_few_bytes() {
    let picture = spy::each(&[Spy::of(&path(300), PAGE_SIDE)]).remove(0);
    let (size, pixels) = decoded(&picture);
    assert_eq!(size, (300, 300));
    for (at, pixel) in pixels.iter().enumerate() {
        let is_entry = at / 300 == at % 300 + 1;
        assert_eq!(*pixel == [8, 29, 88], is_entry, "pixel {at}: {pixel:?}");
        assert_eq!(*pixel == [255; 3], !is_entry, "pixel {at}: {pixel:?}");
    }
    let large = spy::each(&[Spy::of(&path(100_000), PAGE_SIDE)]).remove(0);
    assert!(large.len() < 8 << 10, "{} bytes", large.len());
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
fn panels_of_a_page_are_pictures_of_their_own() {
    let all = heat::draw_each(&[panel("before", vec![vec![1, 2]; 2]), panel("after", vec![vec![4, 4]; 2])]);
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|svg| svg.matches("<svg").count() == 1 && svg.matches("<rect").count() == 4));
    assert!(all[0].contains("before") && all[1].contains("after"));
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
