//! Writes, loads and samples a graph of more than 2³² entries. Runs only with `GIRIH_LARGE`, because it takes 17 GB
//! of disk.

use std::path::Path;

use girih_graph_format::file::{Folder, FolderWriter, Verify};
use girih_graph_format::{Csr, Norm, ReuseCurve};
use girih_partition::{BlockPlan, Cuts, ProcessGrid, Scheme};
use girih_reorder::{Degree, Reorder};
use girih_sampling::{
    DrawKey, Draws, FanOut, NeighborOptions, NeighborSampler, Neighbors, NodeId, RandomWalks, Sampler, Subgraph,
    WalkOptions,
};

/// Environment variable with a folder that has space for the graph.
pub const LARGE: &str = "GIRIH_LARGE";
/// Number of nodes.
const NODES: usize = 70_000;
/// Number of entries of a row: row `v` lists this many nodes from `v mod 8` on.
const DEGREE: usize = 62_000;

fn row(v: usize) -> impl Iterator<Item = NodeId> {
    (v % 8..v % 8 + DEGREE).map(|u| u as NodeId)
}

/// Writes the folder one row after the other, as an external program would.
fn write(path: &Path) {
    #[derive(serde::Serialize)]
    struct Sizes {
        n_rows: usize,
        n_cols: usize,
        nnz: usize,
        weighted: bool,
    }
    let mut folder = FolderWriter::create(path).unwrap();
    let offsets: Vec<i64> = (0..=NODES).map(|v| (v * DEGREE) as i64).collect();
    folder.array::<i64>("indptr", &[NODES + 1], &offsets).unwrap();
    let mut indices = folder.stream::<i32>("indices", &[NODES * DEGREE]).unwrap();
    for v in 0..NODES {
        indices.write(&row(v).map(|u| u as i32).collect::<Vec<_>>()).unwrap();
    }
    indices.finish().unwrap();
    let sizes = Sizes { n_rows: NODES, n_cols: NODES, nnz: NODES * DEGREE, weighted: false };
    folder.section("graph", &sizes).unwrap();
    folder.finish().unwrap();
}

#[test]
fn a_graph_of_more_than_2_to_the_32_entries_is_loaded_and_sampled() {
    let Some(large) = std::env::var_os(LARGE) else {
        println!("skipped: set {LARGE} to a folder with 17 GB of room");
        return;
    };
    let home = tempfile::tempdir_in(large).unwrap();
    let path = home.path().join("large");
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        work();
        println!("{what}: {:.1} s", start.elapsed().as_secs_f64());
    };
    timed("written", &mut || write(&path));
    timed("checksums compared", &mut || _ = Folder::open(&path, Verify::Full).unwrap());
    let mut graph = None;
    timed("every invariant checked", &mut || {
        graph = Some(Folder::open(&path, Verify::Structure).unwrap().graph().unwrap());
    });
    let graph = graph.unwrap();
    assert!(graph.is_mapped() && graph.nnz() > 1 << 32);
    timed("rows", &mut || check_rows(&graph, &path));
    timed("degrees, orders and figures", &mut || check_figures(&graph));
    timed("samples", &mut || check_samples(&graph));
    timed("cut", &mut || {
        let plan = BlockPlan::of_graph(&ProcessGrid::new(Scheme::OneD, 7, 1).unwrap(), graph.indptr(), Cuts::Weighted);
        assert!(plan.unwrap().panels.iter().all(|panel| panel.len() == NODES / 7));
    });
}

fn check_rows(graph: &Csr, path: &Path) {
    let expected = |v: usize| row(v).collect::<Vec<_>>();
    for v in [0, (1 << 31) / DEGREE, (1 << 31) / DEGREE + 1, (1usize << 32) / DEGREE + 1, NODES - 1] {
        assert_eq!((graph.degree(v), graph.row_range(v).start), (DEGREE, v * DEGREE));
        assert_eq!(graph.row(v), expected(v));
        assert_eq!(graph.row_slice(v..v + 1).row(0), expected(v));
        let block = graph.block(v..v + 1, 1000..70_000).unwrap();
        assert!(block.row(0).iter().map(|&c| c + 1000).eq(row(v).filter(|&u| u >= 1000)));
        let folder = Folder::open(path, Verify::Structure).unwrap();
        assert_eq!(folder.graph_rows(v..v + 1).unwrap().row(0), expected(v));
    }
}

fn check_figures(graph: &Csr) {
    let scales = graph.scales(Norm::Symmetric);
    let of_row = (DEGREE as f64).powf(-0.5) as f32;
    assert!(scales.left.unwrap().iter().all(|&factor| factor == of_row));
    // All rows list the columns from 7 to 61 999.
    let of_column = (NODES as f64).powf(-0.5) as f32;
    let right = scales.right.unwrap();
    assert!(right[7..DEGREE].iter().all(|&factor| factor == of_column));
    assert!(right[DEGREE + 8..].iter().all(|&factor| factor == 0.0));
    assert_eq!(Degree.order(graph).unwrap().len(), NODES);
    let curve = ReuseCurve::of(graph, 1 << 16);
    assert!(curve.hit_rate(NODES) > 0.99);
}

fn check_samples(graph: &Csr) {
    let seeds: Vec<NodeId> = vec![NODES as NodeId - 1, 0, 35_000, 69_274, 69_999 - 5];
    let key = DrawKey::new(3, 1, 4);
    let hops = |neighbors| FanOut::new(vec![neighbors; 2]).unwrap();
    for draws in [Draws::PerNode, Draws::PerLayer, Draws::Labor] {
        let options = NeighborOptions { edge_ids: true, draws, ..NeighborOptions::default() };
        let sampler = NeighborSampler::new(hops(Neighbors::Count(12)), options).unwrap();
        for block in &sampler.sample(graph, &seeds, key).unwrap().blocks {
            assert!(block.edge_ids.iter().any(|&edge| edge > 1 << 31));
            for (v, &node) in block.destinations().iter().enumerate() {
                for e in block.indptr[v] as usize..block.indptr[v + 1] as usize {
                    let edge = block.edge_ids[e] as usize;
                    assert!(graph.row_range(node as usize).contains(&edge));
                    assert_eq!(graph.indices()[edge], block.node_of_column(block.indices[e]));
                }
            }
        }
    }
    let walks = RandomWalks::new(WalkOptions::new(8)).unwrap().walk(graph, &seeds, key).unwrap();
    for i in 0..seeds.len() {
        assert_eq!(walks.walk(i).len(), 9);
        assert!(walks.walk(i).windows(2).all(|pair| graph.row(pair[0] as usize).binary_search(&pair[1]).is_ok()));
    }
    let subgraph = Subgraph::induced(graph, &seeds).unwrap();
    let last = &subgraph.block.edge_ids[..subgraph.block.indptr[1] as usize];
    assert!(last.iter().all(|&edge| edge >= ((NODES - 1) * DEGREE) as u64));
}
