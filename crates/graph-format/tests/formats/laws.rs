//! Laws of graphs and permutations in memory: each is an equation that holds for every graph.

use std::collections::BTreeMap;

use crate::common::{any_coo, any_csr, any_graph, any_pattern, dense, graph_and_permutation, permutation_of};
use girih_graph_format::{
    BlockLayout, BlockMatrix, Coo, Csr, Degrees, Duplicates, Norm, Permutation, ReuseCurve, TileHistogram, TileMatrix,
};
use proptest::prelude::*;

/// Result of `work` on pools of one and of three threads.
fn on_one_and_three_threads<T: Send>(work: impl Fn() -> T + Sync) -> (T, T) {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        pool.install(&work)
    };
    (run(1), run(3))
}

proptest! {
    // Permutations are a group.
    #[test]
    fn inverse_undoes(p in (0..200usize).prop_flat_map(permutation_of)) {
        let identity = Permutation::identity(p.len());
        prop_assert_eq!(p.then(&p.inverse()), identity.clone());
        prop_assert_eq!(p.inverse().then(&p), identity.clone());
        prop_assert_eq!(p.then(&identity), p);
    }

    #[test]
    fn composition_is_associative((p, q, r) in (0..100usize).prop_flat_map(|n| (permutation_of(n), permutation_of(n), permutation_of(n)))) {
        prop_assert_eq!(p.then(&q).then(&r), p.then(&q.then(&r)));
    }

    #[test]
    fn items_travel_with_their_node(p in (0..200usize).prop_flat_map(permutation_of)) {
        let items: Vec<u32> = (0..p.len() as u32).collect();
        let moved = p.apply(&items);
        prop_assert!(items.iter().all(|&old| moved[p.map(old) as usize] == old));
        prop_assert_eq!(Permutation::from_order(moved).unwrap(), p);
    }

    // Invariants of relabelling.
    #[test]
    fn edges_and_degrees_travel_with_their_nodes((g, p) in graph_and_permutation()) {
        let h = g.permuted(&p);
        prop_assert!(h.validate().is_ok());
        let (before, after) = (dense(&g), dense(&h));
        for v in 0..g.n_rows() {
            let new = p.map(v as u32) as usize;
            prop_assert_eq!(g.degree(v), h.degree(new));
            for u in 0..g.n_cols() {
                prop_assert_eq!(before[v][u], after[new][p.map(u as u32) as usize]);
            }
        }
        let (same, positions) = g.permuted_with_positions(&p);
        for new in 0..h.n_rows() {
            for (e, &column) in same.row_range(new).zip(same.row(new)) {
                let old = positions[e] as usize;
                prop_assert!(g.row_range(p.inverse().map(new as u32) as usize).contains(&old));
                prop_assert_eq!(p.map(g.indices()[old]), column);
            }
        }
        prop_assert_eq!(&same, &h);
        prop_assert_eq!(h.permuted(&p.inverse()), g);
    }

    // Building.
    #[test]
    fn coo_to_csr_is_a_sorted_map(coo in any_coo()) {
        let mut weights: BTreeMap<(u32, u32), Vec<f32>> = BTreeMap::new();
        for e in 0..coo.len() {
            let weight = coo.values().map_or(1.0, |v| v[e]);
            weights.entry((coo.rows()[e], coo.cols()[e])).or_default().push(weight);
        }
        let has_repeats = weights.len() < coo.len();
        for rule in Duplicates::ALL {
            if rule == Duplicates::Refuse && has_repeats {
                prop_assert!(coo.to_csr(rule).is_err() && coo.to_csr_with_positions(rule).is_err());
                continue;
            }
            let csr = coo.to_csr(rule).unwrap();
            prop_assert!(csr.validate().is_ok());
            prop_assert_eq!(csr.nnz(), weights.len());
            let (same, positions) = coo.to_csr_with_positions(rule).unwrap();
            prop_assert_eq!(&same, &csr);
            for r in 0..csr.n_rows() {
                for e in csr.row_range(r) {
                    let is_pair = |&at: &usize| (coo.rows()[at], coo.cols()[at]) == (r as u32, csr.indices()[e]);
                    prop_assert_eq!((0..coo.len()).find(is_pair), Some(positions[e] as usize));
                }
            }
            let adds = matches!(rule, Duplicates::Sum | Duplicates::Keep);
            prop_assert_eq!(csr.values().is_some(), coo.values().is_some() || (adds && has_repeats));
            for ((r, c), of_pair) in &weights {
                let expected: f32 = if adds { of_pair.iter().sum() } else { of_pair[0] };
                prop_assert_eq!(csr.row_entries(*r as usize).find(|entry| entry.0 == *c), Some((*c, expected)));
            }
            prop_assert_eq!(rule.to_string().to_uppercase().parse::<Duplicates>().unwrap(), rule);
        }
        prop_assert!("twice".parse::<Duplicates>().is_err());
    }

    // Transposing.
    #[test]
    fn transposing_twice_changes_nothing(a in any_csr()) {
        let t = a.transposed_with_positions();
        prop_assert!(t.csr.validate().is_ok());
        prop_assert_eq!(t.csr.transposed(), a.clone());
        for r in 0..t.csr.n_rows() {
            for e in t.csr.row_range(r) {
                let position = t.positions[e] as usize;
                prop_assert_eq!(a.indices()[position] as usize, r);
                prop_assert!(a.row_range(t.csr.indices()[e] as usize).contains(&position));
                prop_assert_eq!(a.values().map(|v| v[position]), t.csr.values().map(|v| v[e]));
            }
        }
    }

    #[test]
    fn symmetric_means_equal_to_the_transpose(a in any_graph(), both in any::<bool>()) {
        let a = if both { a.symmetrized() } else { a };
        prop_assert_eq!(a.is_symmetric(), a == a.transposed());
    }

    #[test]
    fn symmetrised_is_the_smallest_symmetric_pattern_around(a in any_graph()) {
        let s = a.symmetrized();
        prop_assert!(s.validate().is_ok());
        prop_assert!(s.is_symmetric());
        prop_assert_eq!(s.symmetrized(), s.clone());
        let (before, after) = (dense(&a), dense(&s));
        for r in 0..a.n_rows() {
            for c in 0..a.n_cols() {
                let larger = match (before[r][c], before[c][r]) {
                    (Some(x), Some(y)) => Some(x.max(y)),
                    (x, y) => x.or(y),
                };
                prop_assert_eq!(after[r][c], larger);
            }
        }
    }

    // Loops.
    #[test]
    fn self_loops_are_added_once(a in any_graph()) {
        let with = a.with_self_loops();
        prop_assert!(with.validate().is_ok());
        prop_assert_eq!(with.with_self_loops(), with.clone());
        prop_assert_eq!(with.without_self_loops(), a.without_self_loops());
        let (before, after) = (dense(&a), dense(&with));
        for v in 0..a.n_rows() {
            prop_assert_eq!(after[v][v], before[v][v].or(Some(1.0)));
            prop_assert_eq!(a.has_self_loop(v), before[v][v].is_some());
        }
        for norm in [Norm::None, Norm::Row, Norm::Symmetric] {
            let (found, expected) = (a.scales_with_self_loops(norm), with.scales(norm));
            for (found, expected) in [(found.left, expected.left), (found.right, expected.right)] {
                let (found, expected) = (found.unwrap_or_default(), expected.unwrap_or_default());
                prop_assert_eq!(found.len(), expected.len());
                prop_assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs()), "{norm:?}");
            }
        }
    }

    // Blocks.
    #[test]
    fn blocks_cover_the_matrix((a, rows, cols) in any_csr().prop_flat_map(|a| {
        let (r, c) = (a.n_rows(), a.n_cols());
        (Just(a), 0..=r, 0..=c)
    })) {
        let whole = dense(&a);
        let mut nnz = 0;
        for block_rows in [0..rows, rows..a.n_rows()] {
            for block_cols in [0..cols, cols..a.n_cols()] {
                let block = a.block(block_rows.clone(), block_cols.clone()).unwrap();
                prop_assert!(block.validate().is_ok());
                let expected: Vec<Vec<Option<f32>>> =
                    whole[block_rows.clone()].iter().map(|row| row[block_cols.clone()].to_vec()).collect();
                prop_assert_eq!(dense(&block), expected);
                nnz += block.nnz();
            }
        }
        prop_assert_eq!(nnz, a.nnz());
        prop_assert!(a.block(0..a.n_rows() + 1, 0..0).is_err());
    }

    // Normalising.
    #[test]
    fn scales_are_powers_of_degrees(a in any_csr()) {
        let entries = dense(&a);
        let sum = |entries: &mut dyn Iterator<Item = Option<f32>>| entries.flatten().map(f64::from).sum::<f64>();
        let factor = |degree: f64, power: f64| if degree > 0.0 { degree.powf(power) as f32 } else { 0.0 };
        let row_sums: Vec<f64> = entries.iter().map(|row| sum(&mut row.iter().copied())).collect();
        let col_sums: Vec<f64> = (0..a.n_cols()).map(|c| sum(&mut entries.iter().map(|row| row[c]))).collect();
        let scaled = |sums: &[f64], power| Some(sums.iter().map(|&d| factor(d, power)).collect::<Vec<f32>>());
        prop_assert_eq!(a.scales(Norm::Row).left, scaled(&row_sums, -1.0));
        prop_assert_eq!(a.scales(Norm::Row).right, None);
        prop_assert_eq!(a.scales(Norm::Symmetric).left, scaled(&row_sums, -0.5));
        prop_assert_eq!(a.scales(Norm::Symmetric).right, scaled(&col_sums, -0.5));
        prop_assert_eq!(a.transposed().scales(Norm::Symmetric), a.scales(Norm::Symmetric).transposed());
    }

    #[test]
    fn degrees_without_an_inverse_are_refused_and_others_scale(a in any_graph(), signs in any::<u64>(), loops: bool) {
        // Weights include zeros, and some that cancel.
        let weight = |e: usize| [1.0, -1.0, 0.0, 2.5][(signs.rotate_left(e as u32) & 3) as usize];
        let weights: Vec<f32> = (0..a.nnz()).map(weight).collect();
        let a = a.with_values(Some(weights.into())).unwrap();
        let entries = dense(&if loops { a.with_self_loops() } else { a.clone() });
        let n = entries.len();
        for degrees in [Degrees::Default, Degrees::Absolute] {
            let found = if loops {
                a.checked_scales_with_self_loops(Norm::Symmetric, degrees)
            } else {
                a.checked_scales(Norm::Symmetric, degrees)
            };
            let of = |node: usize, is_column: bool| -> Vec<f64> {
                let entry = |other: usize| if is_column { entries[other][node] } else { entries[node][other] };
                (0..n).filter_map(entry).map(f64::from).collect()
            };
            let degree = |weights: &[f64]| -> f64 {
                let absolute = degrees == Degrees::Absolute;
                weights.iter().map(|w| if absolute { w.abs() } else { *w }).sum()
            };
            let undefined = |node: usize, is_column: bool| {
                let weights = of(node, is_column);
                weights.iter().any(|&w| w != 0.0) && degree(&weights) <= 0.0
            };
            let is_refused = (0..n).any(|v| undefined(v, false) || undefined(v, true));
            prop_assert_eq!(found.is_err(), is_refused);
            match found {
                Err(error) => {
                    prop_assert!(undefined(error.node, error.is_column));
                    prop_assert!((error.degree - degree(&of(error.node, error.is_column))).abs() < 1e-9);
                }
                Ok(scales) => for (factors, is_column) in [(scales.left, false), (scales.right, true)] {
                    for (v, factor) in factors.unwrap().into_iter().enumerate() {
                        let degree = degree(&of(v, is_column));
                        let expected = if degree > 0.0 { degree.powf(-0.5) } else { 0.0 };
                        prop_assert!((f64::from(factor) - expected).abs() < 1e-6, "{} for {}", factor, expected);
                    }
                },
            }
        }
    }

    // Blocks.
    #[test]
    fn every_entry_is_in_a_block_or_in_the_rest(a in any_pattern(), entries_min in 1u32..12, wide: bool) {
        let layout = if wide { BlockLayout::Fragments } else { BlockLayout::Tiles };
        let blocks = BlockMatrix::from_csr(&a, layout, entries_min).unwrap();
        let (height, width) = (layout.rows(), layout.cols());
        let mut entries: Vec<(usize, u32)> = (0..a.n_rows()).flat_map(|r| blocks.rest().row(r).iter().map(move |&c| (r, c))).collect();
        let mut dense = std::collections::BTreeSet::new();
        for (i, ends) in blocks.indptr().windows(2).enumerate() {
            let range = ends[0] as usize..ends[1] as usize;
            prop_assert!(blocks.first_cols()[range.clone()].is_sorted_by(|a, b| a < b));
            for b in range {
                let (first_col, words) = (blocks.first_cols()[b], &blocks.bits()[b * layout.n_words()..][..layout.n_words()]);
                let places = (0..height).flat_map(|r| (0..width).map(move |c| (r, c)));
                let set: Vec<_> = places.filter(|&(r, c)| {
                    let (word, bit) = layout.place(r, c);
                    words[word] >> bit & 1 == 1
                }).collect();
                // Every bit has its own place, so none is left over.
                prop_assert_eq!(set.len() as u32, words.iter().map(|word| word.count_ones()).sum::<u32>());
                prop_assert!((first_col as usize).is_multiple_of(width) && set.len() as u32 >= entries_min);
                entries.extend(set.into_iter().map(|(r, c)| (i * height + r, first_col + c as u32)));
                dense.insert((i, first_col as usize / width));
            }
        }
        for r in 0..a.n_rows() {
            prop_assert!(blocks.rest().row(r).iter().all(|&c| !dense.contains(&(r / height, c as usize / width))));
        }
        entries.sort_unstable();
        let expected: Vec<(usize, u32)> = (0..a.n_rows()).flat_map(|r| a.row(r).iter().map(move |&c| (r, c))).collect();
        prop_assert_eq!(entries, expected);
        let (indptr, first_cols, bits) = (blocks.indptr().to_vec(), blocks.first_cols().to_vec(), blocks.bits().to_vec());
        prop_assert_eq!(BlockMatrix::from_parts(layout, indptr, first_cols, bits, blocks.rest().clone()).unwrap(), blocks);
    }

    #[test]
    fn blocks_of_32_by_32_are_tiles(a in any_pattern(), more_than in 0u32..12) {
        let tiles = TileMatrix::from_csr(&a, f64::from(more_than) / 1024.0).unwrap();
        let blocks = BlockMatrix::from_csr(&a, BlockLayout::Tiles, more_than + 1).unwrap();
        prop_assert_eq!(blocks.bits(), tiles.bitmaps());
        prop_assert_eq!(blocks.rest(), tiles.rest());
        prop_assert!(blocks.indptr().iter().map(|&end| u64::from(end)).eq(tiles.tile_indptr().iter().copied()));
        prop_assert!(blocks.first_cols().iter().copied().eq(tiles.tile_cols().iter().map(|col| 32 * col)));
    }

    // Tiles.
    #[test]
    fn tiles_and_rest_are_the_matrix(a in any_csr(), threshold in prop_oneof![Just(0.0), Just(1.0), 0.0..0.1f64]) {
        let tiles = TileMatrix::from_csr(&a, threshold).unwrap();
        prop_assert!(tiles.rest().validate().is_ok());
        prop_assert_eq!(tiles.to_csr(), a.clone());
        prop_assert_eq!(tiles.nnz(), a.nnz());
        if threshold == 0.0 {
            prop_assert_eq!(tiles.rest().nnz(), 0);
        }
        if threshold == 1.0 {
            prop_assert_eq!(tiles.n_tiles(), 0);
        }
        for (t, words) in tiles.bitmaps().chunks_exact(TileMatrix::TILE).enumerate() {
            let n: u32 = words.iter().map(|w| w.count_ones()).sum();
            prop_assert!(f64::from(n) > threshold * 1024.0);
            prop_assert_eq!(u64::from(n), tiles.ranks()[t + 1] - tiles.ranks()[t]);
        }
        for i in 0..tiles.tile_indptr().len() - 1 {
            prop_assert!(tiles.tile_cols()[tiles.tiles_of_row(i)].is_sorted_by(|x, y| x < y));
        }
    }

    #[test]
    fn the_histogram_counts_every_entry_once(a in any_csr()) {
        let mut naive: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for r in 0..a.n_rows() {
            for &c in a.row(r) {
                *naive.entry((r / 32, c / 32)).or_default() += 1;
            }
        }
        let mut expected = TileHistogram::default();
        for n in naive.into_values() {
            expected.n_tiles[n.ilog2() as usize] += 1;
            expected.n_entries[n.ilog2() as usize] += n;
        }
        prop_assert_eq!(TileHistogram::of(&a), expected);
    }

    // Threads.
    #[test]
    fn results_do_not_depend_on_threads(coo in any_coo(), seed in any::<u64>()) {
        let (one, three) = on_one_and_three_threads(|| {
            let a = coo.to_csr(Duplicates::Sum).unwrap();
            let tiles = TileMatrix::from_csr(&a, 0.01 + (seed % 8) as f64 / 256.0).unwrap();
            (a.transposed_with_positions(), tiles, TileHistogram::of(&a), a)
        });
        prop_assert_eq!(one, three);
    }

    // Locality.
    #[test]
    fn a_cache_serves_what_was_read_last(csr in any_csr(), held in 0..12usize) {
        let (mut recent, mut hits): (Vec<u32>, usize) = (Vec::new(), 0);
        for &row in csr.indices() {
            if let Some(at) = recent.iter().position(|&other| other == row) {
                hits += usize::from(at < held);
                recent.remove(at);
            }
            recent.insert(0, row);
        }
        let expected = if csr.nnz() == 0 { 0.0 } else { hits as f64 / csr.nnz() as f64 };
        prop_assert_eq!(ReuseCurve::of(&csr, csr.nnz()).hit_rate(held), expected);
    }

    #[test]
    fn a_larger_cache_serves_no_less(csr in any_csr(), n_reads in 0..64usize, held in 0..64usize) {
        let curve = ReuseCurve::of(&csr, n_reads);
        let (smaller, larger) = (curve.hit_rate(held), curve.hit_rate(held + 1));
        prop_assert!(0.0 <= smaller && smaller <= larger && larger <= 1.0, "{smaller} {larger}");
    }
}

/// The graph is so large that every operation is split among threads.
#[test]
fn large_results_do_not_depend_on_threads() {
    let mut stream = girih_random::Key::new(11, 3).stream(0, 0);
    let n = 20_000;
    let mut ids = |count| (0..count).map(|_| stream.below(n) as u32).collect::<Vec<u32>>();
    let (rows, cols) = (ids(300_000), ids(300_000));
    let weights = cols.iter().map(|&c| (c as f32).sqrt()).collect();
    let coo = Coo::new(n as usize, n as usize, rows, cols, Some(weights)).unwrap();
    let (one, three) = on_one_and_three_threads(|| {
        let a = coo.to_csr(Duplicates::Sum).unwrap();
        let tiles = TileMatrix::from_csr(&a, 0.001).unwrap();
        assert_eq!(tiles.to_csr(), a);
        (a.symmetrized(), a.with_self_loops(), tiles, a)
    });
    assert!(one.2.coverage() > 0.1, "the threshold must split this graph");
    assert_eq!(one, three);
}

#[test]
fn blocks_of_weights_and_of_other_matrices_are_refused() {
    let weighted = Coo::new(1, 1, vec![0], vec![0], Some(vec![2.0])).unwrap().to_csr(Duplicates::Refuse).unwrap();
    assert!(BlockMatrix::from_csr(&weighted, BlockLayout::Tiles, 1).unwrap_err().to_string().contains("weights"));
    let parts = |indptr, words: usize| {
        BlockMatrix::from_parts(BlockLayout::Tiles, indptr, vec![0], vec![0; words], weighted.clone())
    };
    assert!(parts(vec![0, 1], 32).is_ok());
    for (indptr, words) in [(vec![0, 1], 31), (vec![0, 1, 1], 32), (vec![0, 2], 32), (vec![1, 1], 32)] {
        assert!(parts(indptr, words).unwrap_err().to_string().contains("expected"));
    }
}

#[test]
fn a_full_tile_is_dense_at_any_threshold_below_one() {
    let rows: Vec<u32> = (0..32 * 32).map(|e| e / 32).collect();
    let cols: Vec<u32> = (0..32 * 32).map(|e| e % 32).collect();
    let csr = Coo::new(32, 32, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    let tiles = TileMatrix::from_csr(&csr, 0.99).unwrap();
    assert_eq!((tiles.n_tiles(), tiles.bitmaps()), (1, &[u32::MAX; 32][..]));
    assert_eq!(TileMatrix::from_csr(&csr, 1.0).unwrap().n_tiles(), 0);
    assert!(TileMatrix::from_csr(&csr, f64::NAN).is_err());
    assert!(TileMatrix::from_csr(&csr, 1.5).is_err());
}

#[test]
fn broken_invariants_are_refused_with_their_place() {
    let refused = |indptr: Vec<u64>, indices: Vec<u32>| {
        Csr::new(2, 3, indptr, indices, None).expect_err("this matrix is broken").to_string()
    };
    assert!(refused(vec![0, 1], vec![0]).contains("2 rows need 3"));
    assert!(refused(vec![1, 1, 1], vec![0]).contains("must start at 0"));
    assert!(refused(vec![0, 2, 1], vec![0]).contains("at row 1"));
    assert!(refused(vec![0, 1, 3], vec![0, 1]).contains("ends at 3"));
    assert!(refused(vec![0, 1, 2], vec![0, 3]).contains("column 3"));
    assert!(refused(vec![0, 2, 2], vec![1, 1]).contains("without repeats"));
    let infinite = Csr::new(1, 1, vec![0, 1], vec![0], Some(vec![f32::INFINITY].into()));
    assert!(infinite.unwrap_err().to_string().contains("weight of entry 0"));
}

#[cfg(feature = "sprs")]
proptest! {
    #[test]
    fn sprs_agrees(a in any_csr()) {
        let theirs = sprs::CsMatI::<f32, u32, u64>::from(&a);
        prop_assert_eq!(dense(&Csr::try_from(&theirs).unwrap()), dense(&a));
        let transposed = theirs.clone().transpose_into();
        prop_assert_eq!(dense(&Csr::try_from(&transposed).unwrap()), dense(&a.transposed()));
        prop_assert_eq!(dense(&Csr::try_from(&theirs.to_csc()).unwrap()), dense(&a));
    }
}

#[cfg(feature = "petgraph")]
proptest! {
    #[test]
    fn petgraph_agrees(a in any_graph()) {
        use petgraph::graph::{DiGraph, NodeIndex};
        let theirs = DiGraph::<(), f32, u32>::from(&a);
        for v in 0..a.n_rows() {
            let mut sources: Vec<u32> = theirs
                .neighbors_directed(NodeIndex::new(v), petgraph::Direction::Incoming)
                .map(|u| u.index() as u32)
                .collect();
            sources.sort_unstable();
            prop_assert_eq!(&sources[..], a.row(v));
        }
        prop_assert_eq!(dense(&Csr::try_from(&theirs).unwrap()), dense(&a));
    }
}

#[test]
fn a_share_of_the_columns_tells_the_locality_of_all() {
    let (n, degree) = (20_000usize, 20);
    let mut stream = girih_random::Key::new(1, 2).stream(0, 0);
    // Two of three neighbors are near, the rest anywhere.
    let mut neighbors = |v: usize| {
        let mut row: Vec<u32> =
            (0..degree)
                .map(|i| {
                    if i % 3 == 0 {
                        stream.below(n as u64) as u32
                    } else {
                        ((v + stream.below(300) as usize) % n) as u32
                    }
                })
                .collect();
        row.sort_unstable();
        row.dedup();
        row
    };
    let rows: Vec<Vec<u32>> = (0..n).map(&mut neighbors).collect();
    let mut indptr = vec![0u64];
    indptr.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let csr = Csr::new(n, n, indptr, rows.concat(), None).unwrap();
    let (exact, estimate) = (ReuseCurve::of(&csr, csr.nnz()), ReuseCurve::of(&csr, csr.nnz() / 16));
    for held in [200, 1000, 5000, 15_000, n] {
        let (exact, estimate) = (exact.hit_rate(held), estimate.hit_rate(held));
        assert!((exact - estimate).abs() < 0.03, "{held} rows: {exact} {estimate}");
    }
    assert!(exact.hit_rate(1000) > 0.6 && exact.hit_rate(200) < 0.4);
}
