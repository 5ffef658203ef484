//! Laws of orders and of their metrics.

use girih_graph_format::{Coo, Csr, Duplicates, Permutation, ReuseCurve};
use girih_machine::{Cache, Hierarchy};
use girih_reorder::quality::{Block, Gaps, coverage, coverage_of, window_reuse};
use girih_reorder::testing::{check_order, graphs};
use girih_reorder::{
    Auto, Blockwise, Community, Degree, MetisClusters, OrderKind, Reorder, ReverseCuthillMckee, SlashBurn, clusters,
    streaming_clusters,
};
use proptest::prelude::*;

/// Graph of `n_blocks` communities of `size` nodes, with scattered ids and some edges between communities.
fn communities(n_blocks: usize, size: usize) -> Csr {
    let n = n_blocks * size;
    let id = |block: usize, i: usize| ((block * size + i) * 7 % n) as u32;
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for block in 0..n_blocks {
        for i in 0..size {
            for j in 1..=size / 3 {
                rows.push(id(block, i));
                cols.push(id(block, (i * i + j * 5) % size));
            }
            rows.push(id(block, i));
            cols.push(id((block + i) % n_blocks, i));
        }
    }
    Coo::new(n, n, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap().symmetrized()
}

fn all_orders(blocks: usize) -> Vec<Box<dyn Reorder>> {
    OrderKind::ALL.into_iter().map(|kind| kind.order(blocks, 3)).collect()
}

#[test]
fn every_order_renames_and_nothing_else() {
    for blocks in [1, 3, 4] {
        all_orders(blocks).iter().for_each(|order| check_order(&**order));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn blocks_keep_their_non_zeros(csr in graphs(false), blocks in 1..6usize) {
        let n = csr.n_rows();
        let range = |i: usize| n * i / blocks..n * (i + 1) / blocks;
        for kind in OrderKind::ALL.into_iter().filter(|&kind| kind != OrderKind::Parts) {
            let order = kind.order(blocks, 3).order(&csr).unwrap();
            let renamed = csr.permuted(&order);
            for i in 0..blocks {
                for j in 0..blocks {
                    let nnz = |csr: &Csr| csr.block(range(i), range(j)).unwrap().nnz();
                    prop_assert_eq!(nnz(&csr), nnz(&renamed), "{}", kind);
                }
            }
        }
    }

    #[test]
    fn degrees_fall(csr in graphs(false)) {
        let renamed = csr.permuted(&Degree.order(&csr).unwrap());
        let degrees: Vec<usize> = (0..csr.n_rows()).map(|v| renamed.degree(v)).collect();
        prop_assert!(degrees.is_sorted_by(|a, b| a >= b));
    }

    /// The rest after a number of rounds equals the rest after removing as many hubs. The first hubs have the highest
    /// degrees.
    #[test]
    fn slashburn_takes_the_same_number_of_hubs_each_round(csr in graphs(true), share in 0.02..0.3f64) {
        let k = ((share * csr.n_rows() as f64).ceil() as usize).max(1);
        let order = SlashBurn { share }.order(&csr).unwrap().inverse();
        if csr.n_rows() > k {
            let first: Vec<usize> = order.new_of_old()[..k].iter().map(|&v| csr.degree(v as usize)).collect();
            let mut degrees: Vec<usize> = (0..csr.n_rows()).map(|v| csr.degree(v)).collect();
            degrees.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(&first[..], &degrees[..k]);
        }
    }

    #[test]
    fn figures_are_their_definitions(csr in graphs(false), rows in 1..9usize, cols in 1..9usize, density in 0.0..0.9f64) {
        let n = csr.n_rows();
        let block = Block { rows, cols };
        let mut counts = std::collections::BTreeMap::new();
        let (mut bandwidth, mut bits) = (0, 0.0);
        for v in 0..n {
            let mut before = v as i64;
            for &u in csr.row(v) {
                *counts.entry((v / rows, u as usize / cols)).or_insert(0usize) += 1;
                bandwidth = bandwidth.max((v as i64 - i64::from(u)).unsigned_abs() as usize);
                bits += (1.0 + (i64::from(u) - before).abs() as f64).log2();
                before = i64::from(u);
            }
        }
        let enough = |nnz: &&usize| **nnz as f64 >= density * (rows * cols) as f64;
        let covered: usize = counts.values().filter(enough).sum();
        let expected = covered as f64 / csr.nnz().max(1) as f64;
        prop_assert_eq!(coverage(&csr, block, density), expected);
        prop_assert_eq!(coverage_of(&csr, &Permutation::identity(n), block, density), expected);
        let reversed = Permutation::from_new_of_old((0..n as u32).rev().collect()).unwrap();
        prop_assert_eq!(coverage_of(&csr, &reversed, block, density), coverage(&csr.permuted(&reversed), block, density));
        let gaps = Gaps::of(&csr);
        prop_assert_eq!(gaps.bandwidth, bandwidth);
        prop_assert!((gaps.mean_log2 - bits / csr.nnz().max(1) as f64).abs() < 1e-9);
        let distinct: usize = (0..n.div_ceil(rows)).map(|window| {
            let columns: std::collections::BTreeSet<u32> =
                (window * rows..((window + 1) * rows).min(n)).flat_map(|v| csr.row(v)).copied().collect();
            columns.len()
        }).sum();
        prop_assert!((window_reuse(&csr, rows) - csr.nnz() as f64 / distinct.max(1) as f64).abs() < 1e-12);
    }

    #[test]
    fn clusters_are_even(csr in graphs(true), n_clusters in 1..8usize) {
        let parts = streaming_clusters(&csr, n_clusters);
        let capacity = (1.05 * csr.n_rows() as f64 / n_clusters as f64).ceil() as usize;
        for cluster in 0..n_clusters as u32 {
            prop_assert!(parts.iter().filter(|&&part| part == cluster).count() <= capacity);
        }
        prop_assert!(clusters(&csr, n_clusters).unwrap().iter().all(|&part| (part as usize) < n_clusters));
    }
}

#[test]
fn few_edges_leave_parts() {
    let csr = communities(12, 50);
    let n = csr.n_rows();
    for n_parts in [2, 3, 4] {
        let inside = |csr: &Csr| -> f64 {
            let range = |i: usize| n * i / n_parts..n * (i + 1) / n_parts;
            let nnz = |i: usize| csr.block(range(i), range(i)).unwrap().nnz();
            (0..n_parts).map(nnz).sum::<usize>() as f64 / csr.nnz() as f64
        };
        let order = |kind: OrderKind| csr.permuted(&kind.order(n_parts, 3).order(&csr).unwrap());
        let (scattered, parts) = (inside(&order(OrderKind::Random)), inside(&order(OrderKind::Parts)));
        let parts_of = order(OrderKind::Parts);
        let edges = |i: usize| (parts_of.indptr()[n * (i + 1) / n_parts] - parts_of.indptr()[n * i / n_parts]) as usize;
        let most = (0..n_parts).map(edges).max().unwrap() as f64 * n_parts as f64 / csr.nnz() as f64;
        assert!(most < 1.15, "{n_parts} parts: {most} times the mean of edges on one");
        assert!(
            scattered < 0.65 && parts > 0.85,
            "{n_parts} parts: {scattered}, then {parts} of the edges stay inside"
        );
    }
}

#[test]
fn rcm_is_at_least_as_narrow_as_that_of_sprs() {
    let grid = |w: usize, h: usize| {
        let at = |x: usize, y: usize| (y * w + x) * 11 % (w * h);
        let right = (0..h).flat_map(|y| (1..w).map(move |x| (x - 1, y, x, y)));
        let down = (1..h).flat_map(|y| (0..w).map(move |x| (x, y - 1, x, y)));
        let pairs = right.chain(down).map(|(a, b, c, d)| (at(a, b) as u32, at(c, d) as u32));
        let (rows, cols) = pairs.unzip();
        Coo::new(w * h, w * h, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap().symmetrized()
    };
    for (name, csr) in [("grid 9 × 20", grid(9, 20)), ("grid 30 × 7", grid(30, 7)), ("communities", communities(5, 30))]
    {
        let ours = Gaps::of(&csr.permuted(&ReverseCuthillMckee.order(&csr).unwrap())).bandwidth;
        let offsets: Vec<usize> = csr.indptr().iter().map(|&offset| offset as usize).collect();
        let indices: Vec<usize> = csr.indices().iter().map(|&u| u as usize).collect();
        let n = csr.n_rows();
        let matrix = sprs::CsMat::new((n, n), offsets, indices, vec![1.0; csr.nnz()]);
        let order: Vec<u32> =
            sprs::linalg::reverse_cuthill_mckee(matrix.view()).perm.vec().iter().map(|&v: &usize| v as u32).collect();
        let theirs = Gaps::of(&csr.permuted(&Permutation::from_order(order).unwrap())).bandwidth;
        assert!(ours <= theirs, "{name}: {ours}, sprs {theirs}");
    }
}

#[test]
fn orders_do_not_depend_on_threads() {
    let csr = communities(40, 60);
    let on = |threads: usize, order: &dyn Reorder| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| order.order(&csr).unwrap())
    };
    for blocks in [1, 3] {
        for order in all_orders(blocks) {
            assert_eq!(on(1, &*order), on(2, &*order), "{}", order.name());
        }
    }
}

#[test]
fn communities_become_consecutive() {
    let csr = communities(24, 64);
    let density = 0.1;
    let found = |order: &dyn Reorder| coverage_of(&csr, &order.order(&csr).unwrap(), Block::SMALL, density);
    let (scattered, degree) = (coverage(&csr, Block::SMALL, density), found(&Degree));
    for order in [&Community::default() as &dyn Reorder, &MetisClusters { size: 64 }] {
        let covered = found(order);
        assert!(covered > 0.7 && covered > scattered + 0.4 && covered > degree + 0.4, "{}: {covered}", order.name());
    }
    let blockwise = Blockwise { blocks: 2, inner: Community::default() };
    assert!(found(&blockwise) > scattered + 0.2, "a community is consecutive in each block");
    let hit_rate = |csr: &Csr| ReuseCurve::of(csr, csr.nnz()).hit_rate(128);
    assert!(hit_rate(&csr.permuted(&Community::default().order(&csr).unwrap())) > hit_rate(&csr) + 0.2);
}

/// Device whose cache holds 128 rows of an operand of 32 columns, with `n_products` products to compute.
fn small_device(n_products: f64) -> Auto {
    let caches = vec![Cache { bytes: 128 * 128, gb_s: 1.0 }];
    let device = Hierarchy { caches, memory_gb_s: 0.01, entry_ns: 0.0, row_ns: 0.0 };
    Auto { device, row_bytes: 128, n_products, blocks: 1 }
}

#[test]
fn the_order_that_is_predicted_to_be_quickest_is_chosen() {
    let csr = communities(24, 64);
    let auto = small_device(1000.0);
    let choice = auto.choose(&csr, &|_| ()).unwrap();
    assert_eq!(choice.order, choice.kind.order(1, 0).order(&csr).unwrap());
    assert_eq!(choice.seconds_before, auto.product_seconds(&csr));
    assert_eq!(choice.seconds_after, auto.product_seconds(&csr.permuted(&choice.order)));
    assert!(choice.seconds_after < 0.7 * choice.seconds_before, "{choice:?}");
    assert!(choice.tried.iter().all(|tried| tried.product_seconds >= 0.97 * choice.seconds_after), "{choice:?}");
    let saved = choice.break_even().unwrap() * (choice.seconds_before - choice.seconds_after);
    assert!((saved / choice.seconds_spent - 1.0).abs() < 1e-9);
}

#[test]
fn an_order_that_cannot_pay_is_not_looked_for() {
    let csr = communities(24, 64);
    let choice = small_device(0.0).choose(&csr, &|_| ()).unwrap();
    assert_eq!((choice.kind, choice.tried.len(), choice.break_even()), (OrderKind::None, 0, None));
    assert_eq!(choice.order, Permutation::identity(csr.n_rows()));
    // No order gains anything if all rows fit into the cache.
    let large = Auto { row_bytes: 1, ..small_device(1e6) };
    assert_eq!(large.choose(&csr, &|_| ()).unwrap().kind, OrderKind::None);
}

#[test]
fn progress_rises_to_one_at_most() {
    let csr = communities(40, 60);
    for blocks in [1, 3] {
        for order in all_orders(blocks) {
            let last = std::sync::Mutex::new(0.0);
            let told = |share: f64| {
                let before = std::mem::replace(&mut *last.lock().unwrap(), share);
                assert!(before <= share && share <= 1.0, "{}: {before} {share}", order.name());
            };
            assert_eq!(order.order_with(&csr, &told).unwrap(), order.order(&csr).unwrap());
        }
    }
}

#[test]
fn graphs_without_an_order_are_refused() {
    let oblong = Csr::empty(3, 4).unwrap();
    for order in all_orders(1) {
        assert!(order.order(&oblong).unwrap_err().to_string().contains("3 × 4"), "{}", order.name());
        assert_eq!(order.order(&Csr::empty(0, 0).unwrap()).unwrap().len(), 0, "{}", order.name());
        assert_eq!(order.order(&Csr::empty(1, 1).unwrap()).unwrap().len(), 1, "{}", order.name());
    }
    let graph = Csr::empty(3, 3).unwrap();
    assert!(SlashBurn { share: 0.0 }.order(&graph).is_err());
    assert!(MetisClusters { size: 0 }.order(&graph).is_err());
    assert!(Blockwise { blocks: 0, inner: Degree }.order(&graph).is_err());
    assert!(Community { resolution: f64::NAN, ..Community::default() }.order(&graph).is_err());
    assert!("louvain".parse::<OrderKind>().unwrap_err().to_string().contains("community"));
}
