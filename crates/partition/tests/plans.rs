//! Laws of plans: every block is multiplied once, bytes match the closed forms, and no rank needs to run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use girih_graph_format::{Coo, Csr, Duplicates};
use girih_partition::{
    BlockPlan, Cuts, Estimate, Exchange, Halo, LinkRates, Machine, Ownership, Patches, ProcessGrid, Receivers, Reduce,
    Schedule, Scheme, Stages, StepExchange, Volume, block_nnz, imbalance, place_in,
};
use proptest::prelude::*;

fn stages() -> impl Strategy<Value = Stages> {
    prop_oneof![Just(Stages::Steps), Just(Stages::Turns), (1..12usize).prop_map(Stages::Parts)]
}

fn grids() -> impl Strategy<Value = ProcessGrid> {
    prop_oneof![
        (1..9usize).prop_map(|p| ProcessGrid::new(Scheme::OneD, p, 1).unwrap()),
        (1..5usize, 1..4usize).prop_map(|(groups, r)| ProcessGrid::new(Scheme::OneAndHalfD, groups * r, r).unwrap()),
        (1..4usize).prop_map(|q| ProcessGrid::new(Scheme::TwoD, q * q, 1).unwrap()),
        (1..3usize).prop_map(|q| ProcessGrid::new(Scheme::ThreeD, q * q * q, 1).unwrap()),
    ]
}

fn graph(n: usize, seed: u64) -> Csr {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % n as u32
    };
    let (rows, cols): (Vec<u32>, Vec<u32>) = (0..4 * n).map(|_| (next(), next())).unzip();
    Coo::new(n, n, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

proptest! {
    #[test]
    fn every_rank_number_holds_every_node_once(grid in grids(), extra in 0..50usize) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        for replica in 0..grid.replication() {
            let mut next = 0;
            for rank in plan.peers(replica) {
                prop_assert_eq!(plan.ranks[rank].own.start, next, "peers hold ascending ranges");
                next = plan.ranks[rank].own.end;
            }
            prop_assert_eq!(next, plan.n_nodes);
        }
    }

    #[test]
    fn weighted_panels_share_nodes_and_edges(grid in grids(), degrees in prop::collection::vec(0..40u64, 30..120)) {
        let indptr: Vec<u64> = std::iter::once(0).chain(degrees.iter().scan(0, |sum, degree| {
            *sum += degree;
            Some(*sum)
        })).collect();
        let plan = BlockPlan::of_graph(&grid, &indptr, Cuts::Weighted).unwrap();
        let (n, nnz) = (degrees.len() as f64, indptr[degrees.len()].max(1) as f64);
        prop_assert_eq!((plan.panels[0].start, plan.panels.last().unwrap().end), (0, degrees.len()));
        prop_assert!(plan.panels.windows(2).all(|pair| pair[0].end == pair[1].start));
        let share = |v: usize| 0.5 * (v as f64 / n + indptr[v] as f64 / nnz);
        let heaviest = 0.5 / n + 0.5 * 40.0 / nnz;
        let least = grid.ranks() / plan.panels.len();
        for (i, panel) in plan.panels.iter().enumerate() {
            prop_assert!(panel.len() >= least);
            // A cut is at most a node away from its share, if neither end is short of nodes.
            let is_free = panel.start > i * least && degrees.len() - panel.start > (plan.panels.len() - i) * least;
            if is_free && plan.panels[..i].iter().all(|panel| panel.len() > least) {
                prop_assert!((share(panel.start) - i as f64 / plan.panels.len() as f64).abs() <= heaviest + 1e-9);
            }
        }
        prop_assert!(plan.ranks.iter().all(|rank| !rank.own.is_empty()));
    }

    /// Panels arrive in the order of the group, and blocks have their columns in the order of panels.
    #[test]
    fn roots_are_in_the_order_of_their_panels(grid in grids(), extra in 0..50usize) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        for rank in &plan.ranks {
            let place = |root| place_in(&rank.group, root);
            prop_assert!(rank.steps.windows(2).all(|pair| place(pair[0].root) < place(pair[1].root)));
            prop_assert!(rank.steps.windows(2).all(|pair| pair[0].panel < pair[1].panel));
        }
    }

    /// Every panel arrives once, in the exchange in which its root sends it. In steps, at most one panel travels at a
    /// time.
    #[test]
    fn panels_come_once_when_they_are_sent(grid in grids(), extra in 0..50usize, stages in stages()) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap().in_stages(stages);
        for (number, rank) in plan.ranks.iter().enumerate() {
            let together = plan.together(number);
            let n_exchanges = match stages {
                Stages::Steps => rank.steps.len(),
                Stages::Turns => rank.group.len() - 1,
                Stages::Parts(_) => 1,
            };
            prop_assert_eq!(together.len(), n_exchanges.max(1));
            let mut came = vec![0; rank.steps.len()];
            for (turn, some) in together.iter().enumerate() {
                let coming = || some.steps.iter().filter(|&&i| rank.steps[i].root != number);
                prop_assert!(matches!(stages, Stages::Parts(_)) || coming().count() <= 1);
                for &i in coming() {
                    came[i] += 1;
                    let root = rank.steps[i].root;
                    let sent = &plan.together(root)[turn];
                    prop_assert!(sent.receivers.contains(place_in(&rank.group, number)));
                    prop_assert!(sent.steps.iter().any(|&i| plan.ranks[root].steps[i].root == root));
                }
                let to_all = stages != Stages::Turns || rank.group.len() == 1;
                prop_assert_eq!(some.receivers == Receivers::All, to_all);
            }
            let once: Vec<usize> = rank.steps.iter().map(|step| usize::from(step.root != number)).collect();
            prop_assert_eq!(came, once);
        }
    }

    /// In each exchange, a member receives exactly the payload that the other sends to it.
    #[test]
    fn sent_panels_are_received_panels(grid in grids(), extra in 0..50usize, stages in stages()) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap().in_stages(stages);
        let exchanges = |rank: usize| -> Vec<_> {
            let panel_for = |i: usize, member: usize| Some((plan.ranks[rank].steps[i].panel, member));
            plan.together(rank).iter().map(|some| plan.sent_and_received(rank, some, panel_for)).collect()
        };
        for rank in 0..grid.ranks() {
            let group = &plan.ranks[rank].group;
            let place = place_in(group, rank);
            for (other, &member) in group.iter().enumerate() {
                for ((sent, received), (_, of_member)) in exchanges(rank).into_iter().zip(exchanges(member)) {
                    prop_assert_eq!(sent[other], of_member[place], "to {} from {}", member, rank);
                    let own = plan.ranks[member].panel;
                    prop_assert!(received[other].is_none_or(|found| found == (own, place)));
                    prop_assert!(member != rank || (sent[other], received[other]) == (None, None));
                }
            }
        }
    }

    /// Parts have each column once and begin at cache lines. Each is half of the rest, as long as that is more than a
    /// line.
    #[test]
    fn parts_have_every_column_once(cols in 0..600usize, n in 1..12usize, of_f32: bool) {
        let (n_bytes, line) = if of_f32 { (4, 32) } else { (2, 64) };
        prop_assert!(matches!(&Stages::Steps.columns(cols, n_bytes)[..], [all] if *all == (0..cols)));
        let parts = Stages::Parts(n).columns(cols, n_bytes);
        let half = |part: &Range<usize>| (cols - part.start).div_ceil(2).next_multiple_of(line);
        let (last, before) = parts.split_last().unwrap();
        prop_assert!(before.iter().all(|part| part.len() == half(part)), "{:?}", parts);
        let is_cut_as_often_as_it_may = parts.len() == n || last.len() < half(last) + line / 4;
        prop_assert!(parts.len() <= n && is_cut_as_often_as_it_may, "{:?}", parts);
        prop_assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..cols).collect::<Vec<_>>());
        prop_assert!(parts.iter().all(|part| part.start % line == 0));
        prop_assert!(parts.is_sorted_by(|before, after| before.len() >= after.len()), "{:?}", parts);
        let least = |part: &Range<usize>| part.len() >= line / 4 || parts.len() == 1;
        prop_assert!(parts.iter().all(least), "{:?}", parts);
    }

    #[test]
    fn stages_are_read_as_they_are_written(n in 1..100usize) {
        for stages in [Stages::Steps, Stages::Turns, Stages::Parts(n)] {
            prop_assert_eq!(stages.to_string().parse::<Stages>().unwrap(), stages);
        }
        for text in ["0", "-1", "step", "", "1.5"] {
            prop_assert!(text.parse::<Stages>().is_err());
        }
    }

    /// Chunks have each row of a rank's products once, and an equal part of the own rows of every contributing rank.
    #[test]
    fn chunks_have_every_row_once(grid in grids(), extra in 0..50usize, n_chunks in 1..6usize) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap().in_chunks(n_chunks);
        let least = plan.ranks.iter().map(|rank| rank.own.len()).min().unwrap();
        let is_followed = match grid.scheme() {
            Scheme::OneD => false,
            Scheme::OneAndHalfD => grid.replication() > 1,
            Scheme::TwoD | Scheme::ThreeD => grid.ranks() > 1,
        };
        prop_assert_eq!(plan.n_chunks, if is_followed { n_chunks.min(least) } else { 1 });
        for (rank, mine) in plan.ranks.iter().enumerate() {
            let rows = |chunk| mine.rows.iter().flat_map(|&panel| plan.chunk_of(panel, chunk)).collect();
            let chunks: Vec<Vec<Range<usize>>> = (0..plan.n_chunks).map(rows).collect();
            for (i, ranges) in chunks.iter().enumerate() {
                prop_assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), plan.n_chunk_rows(rank, i));
                prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            }
            let mut nodes: Vec<usize> = chunks.into_iter().flatten().flatten().collect();
            nodes.sort_unstable();
            let mut all: Vec<usize> = mine.rows.iter().flat_map(|&panel| plan.panels[panel].clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(nodes, all);
            let own: Vec<usize> = (0..plan.n_chunks).flat_map(|i| plan.own_of(&mine.own, i)).collect();
            prop_assert_eq!(own, mine.own.clone().collect::<Vec<_>>());
        }
    }

    /// Row panel × column panel × slice of the operand's columns, summed over the ranks of the reduction.
    #[test]
    fn every_block_is_multiplied_once(grid in grids(), extra in 0..50usize) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        let mut times: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        for rank in &plan.ranks {
            let slice = rank.slice.as_ref().map_or(0, |slicing| slicing.place);
            for step in &rank.steps {
                for &row in &rank.rows {
                    *times.entry((row, step.panel, slice)).or_default() += 1;
                }
            }
        }
        let n_slices = plan.ranks[0].slice.as_ref().map_or(1, |slicing| slicing.group.len());
        prop_assert_eq!(times.len(), plan.panels.len().pow(2) * n_slices);
        prop_assert!(times.values().all(|&n| n == 1));
    }

    #[test]
    fn roots_hold_what_they_send_and_groups_agree(grid in grids(), extra in 0..50usize) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        for (number, rank) in plan.ranks.iter().enumerate() {
            prop_assert!(rank.group.contains(&number));
            for step in &rank.steps {
                prop_assert_eq!(plan.ranks[step.root].panel, step.panel);
                prop_assert!(rank.group.contains(&step.root));
            }
            for &member in &rank.group {
                prop_assert_eq!(&plan.ranks[member].group, &rank.group);
                prop_assert_eq!(&plan.ranks[member].steps, &rank.steps);
            }
            if let Some(slicing) = &rank.slice {
                let pieces: usize = slicing.group.iter().map(|&member| plan.ranks[member].own.len()).sum();
                prop_assert_eq!(pieces, plan.panels[rank.panel].len());
                prop_assert_eq!(slicing.group[slicing.place], number);
            }
            if let Reduce::Scatter { group } = &rank.reduce {
                let place = group.iter().position(|&member| member == number).unwrap();
                prop_assert_eq!(rank.rows[place], rank.panel, "a result lies where the operand was");
            }
        }
    }

    #[test]
    fn sent_bytes_are_received_and_rows_are_never_more_than_panels(
        grid in grids(), extra in 0..50usize, seed in any::<u64>(), cols in 1..40usize,
    ) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        let csr = graph(plan.n_nodes, seed);
        let total = |exchange| {
            let volumes = plan.volumes(Some(&Schedule::new(&plan, &csr, exchange)), cols, 4);
            let sum = |of: fn(&Volume) -> u64| volumes.iter().map(of).sum::<u64>();
            (sum(|v| v.sent), sum(|v| v.received))
        };
        let [dense, rows, auto] = [Exchange::Dense, Exchange::Rows, Exchange::Auto].map(total);
        for (sent, received) in [dense, rows, auto] {
            prop_assert_eq!(sent, received);
        }
        // Panels are chosen if lists are less than a sixth shorter.
        prop_assert!(rows.0 <= auto.0 && auto.0 <= dense.0 && 5 * auto.0 <= 6 * rows.0, "{rows:?}, {auto:?}, {dense:?}");
    }

    #[test]
    fn steps_send_lists_where_these_are_a_sixth_shorter(grid in grids(), extra in 0..50usize, seed in any::<u64>()) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        let csr = graph(plan.n_nodes, seed);
        let [rows, auto] = [Exchange::Rows, Exchange::Auto].map(|exchange| Schedule::new(&plan, &csr, exchange));
        for (number, rank) in plan.ranks.iter().enumerate() {
            for ((step, listed), chosen) in rank.steps.iter().zip(rows.steps(number)).zip(auto.steps(number)) {
                let others = rank.group.iter().zip(listed.n_rows().expect("rows were asked for"));
                let sent: usize = others.filter(|(member, _)| **member != step.root).map(|(_, n)| n).sum();
                let whole = plan.panels[step.panel].len() * (rank.group.len() - 1);
                prop_assert_eq!(chosen.n_rows().is_some(), 6 * sent < 5 * whole);
            }
        }
    }

    #[test]
    fn lists_are_the_columns_that_blocks_touch(grid in grids(), extra in 0..50usize, seed in any::<u64>()) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        let csr = graph(plan.n_nodes, seed);
        let schedule = Schedule::new(&plan, &csr, Exchange::Rows);
        for (number, rank) in plan.ranks.iter().enumerate() {
            let place = rank.group.iter().position(|&member| member == number).unwrap();
            for (step, exchange) in rank.steps.iter().zip(schedule.steps(number)) {
                let StepExchange::Rows { lists } = exchange else { panic!("rows were asked for") };
                let columns = plan.panels[step.panel].clone();
                let rows = rank.rows.iter().flat_map(|&panel| plan.panels[panel].clone());
                let mut expected: Vec<u32> = rows.flat_map(|row| csr.row(row)).copied().collect();
                expected.retain(|&id| columns.contains(&(id as usize)));
                expected.sort_unstable();
                expected.dedup();
                let expected: Vec<u32> = expected.into_iter().map(|id| id - columns.start as u32).collect();
                prop_assert_eq!(&lists[place], &expected);
            }
        }
    }

    #[test]
    fn a_halo_is_what_own_rows_name(grid in grids(), extra in 0..50usize, seed in any::<u64>()) {
        let plan = BlockPlan::new(&grid, grid.ranks() + extra).unwrap();
        let csr = graph(plan.n_nodes, seed);
        let halo = Halo::new(&plan, &csr);
        for (number, rank) in plan.ranks.iter().enumerate() {
            let mut expected: Vec<u32> = rank.own.clone().flat_map(|row| csr.row(row)).copied().collect();
            expected.sort_unstable();
            expected.dedup();
            let mine = halo.of(number);
            prop_assert_eq!(&mine.rows, &expected);
            // The rows that peers send equal the received rows, in order.
            let place = plan.peers(rank.replica).position(|peer| peer == number).unwrap();
            let mut sent = Vec::new();
            for (peer, &n) in plan.peers(rank.replica).zip(&mine.received) {
                let list = &halo.of(peer).sent[place];
                prop_assert_eq!(list.len(), n);
                sent.extend(list.iter().map(|&row| row + plan.ranks[peer].own.start as u32));
            }
            prop_assert_eq!(sent, expected);
        }
    }

    #[test]
    fn parts_become_ranges(parts in prop::collection::vec(0..5u32, 1..80), seed in any::<u64>()) {
        let ownership = Ownership::new(&parts, 5).unwrap();
        let patches = ownership.patches();
        prop_assert_eq!((patches.len(), patches.n_nodes()), (5, parts.len()));
        for (old, &part) in parts.iter().enumerate() {
            let new = ownership.permutation().map(old as u32);
            prop_assert_eq!(patches.owner(new), part as usize);
            prop_assert!(patches.range(part as usize).contains(&new));
        }
        let csr = graph(parts.len(), seed).permuted(ownership.permutation());
        for part in 0..5 {
            let own = patches.range(part);
            for v in patches.halo(&csr, part) {
                prop_assert!(!own.contains(&v) && own.clone().any(|row| csr.row(row as usize).contains(&v)));
            }
        }
        let nodes: Vec<u32> = (0..parts.len() as u32).collect();
        prop_assert_eq!(patches.subset_imbalance(&nodes), patches.node_imbalance());
        prop_assert!(patches.edge_imbalance(&csr) >= 1.0 - 1e-12);
        let is_inner = |row: usize, v: u32| patches.owner(row as u32) == patches.owner(v);
        let inner = (0..csr.n_rows()).flat_map(|row| csr.row(row).iter().filter(move |&&v| is_inner(row, v))).count();
        prop_assert_eq!(patches.inner_edges(&csr), inner as u64);
        for n_ranks in 1..=5 {
            let of_ranks = patches.of_ranks(n_ranks).unwrap();
            prop_assert_eq!((of_ranks.len(), of_ranks.n_nodes()), (n_ranks, parts.len()));
            // Each patch is whole on one rank, and ranks hold patches in order.
            let owners: Vec<usize> = (0..parts.len() as u32).map(|v| of_ranks.owner(v)).collect();
            prop_assert!(owners.is_sorted());
            let of_patch = |part: usize| patches.range(part).map(|v| of_ranks.owner(v)).collect::<BTreeSet<_>>().len();
            prop_assert!((0..5).all(|part| of_patch(part) <= 1));
        }
    }
}

/// Bytes of one product if all divides evenly (Miao et al., section 4; Tripathy et al., section IV): `n·f` elements.
#[test]
fn volumes_are_the_closed_forms() {
    let (n, f, element) = (720u64, 12usize, 4u64);
    let volumes = |scheme, p, r| {
        let plan = BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), n as usize).unwrap();
        plan.volumes(None, f, element as usize)
    };
    let matrix = n * f as u64 * element;
    for p in [2, 4, 8] {
        let expected = matrix / p * (p - 1);
        assert!(
            volumes(Scheme::OneD, p as usize, 1).iter().all(|v| *v == Volume { sent: expected, received: expected })
        );
    }
    for (p, r) in [(4u64, 2u64), (8, 2), (16, 4)] {
        // Each rank is root of the step of its own panel if its share has that panel, and receives the rest of the
        // share. The group of r adds up n·r/p rows.
        let (groups, panel) = (p / r, matrix * r / p);
        let reduce = 2 * (r - 1) * panel / r;
        for (rank, volume) in volumes(Scheme::OneAndHalfD, p as usize, r as usize).iter().enumerate() {
            let (group, member) = (rank as u64 / r, rank as u64 % r);
            let roots = u64::from(group % r == member);
            let share = groups / r + u64::from(member < groups % r);
            let expected =
                Volume { sent: roots * (groups - 1) * panel + reduce, received: (share - roots) * panel + reduce };
            assert_eq!(*volume, expected, "p {p}, r {r}, rank {rank}");
        }
    }
    for q in [2u64, 3] {
        // Slices there and back, and q - 1 slices of panels.
        let expected = (q - 1) * (2 * matrix / q.pow(3) + matrix / q.pow(2));
        let found = volumes(Scheme::TwoD, q.pow(2) as usize, 1);
        assert!(
            found.iter().all(|v| *v == Volume { sent: expected, received: expected }),
            "{found:?}, expected {expected}"
        );
    }
}

#[test]
fn one_rank_waits_for_nobody() {
    let machine =
        Machine { sums_per_second: 1e9, link: LinkRates { latency: 1e-3, bytes_per_second: 1e9 }, overlap: false };
    for scheme in Scheme::ALL {
        let plan = BlockPlan::new(&ProcessGrid::new(scheme, 1, 1).unwrap(), 10).unwrap();
        let estimate = plan.estimate(&machine, &plan.even_step_nnz(50), None, 8);
        assert_eq!(estimate.exchange_seconds, [0.0], "{scheme}");
    }
}

#[test]
fn estimates_know_in_which_stages_panels_travel() {
    let link = LinkRates { latency: 0.0, bytes_per_second: 1e9 };
    let machine = Machine { sums_per_second: 1e9, link, overlap: true };
    let whole = BlockPlan::new(&ProcessGrid::new(Scheme::OneD, 4, 1).unwrap(), 400).unwrap();
    let estimate = |stages| {
        let plan = whole.clone().in_stages(stages);
        plan.estimate(&machine, &plan.even_step_nnz(4000), None, 256)
    };
    let [one, two, four] = [1, 2, 4].map(|n| estimate(Stages::Parts(n)));
    let [steps, turns] = [Stages::Steps, Stages::Turns].map(estimate);
    let sum = |estimate: &Estimate| estimate.compute_seconds[0] + estimate.exchange_seconds[0];
    assert!((one.seconds - sum(&one)).abs() < 1e-12, "a single exchange has nothing to run under");
    let seconds = [&one, &two, &turns, &steps, &four].map(|estimate| estimate.seconds);
    assert!(
        seconds.is_sorted_by(|more, less| more > less),
        "a half, a third, a quarter, an eighth comes last: {seconds:?}"
    );
    // All rows in flight at once, in one part or in more; two panels at a time in steps and turns.
    assert_eq!((&one.memory, &one.memory), (&two.memory, &four.memory));
    assert_eq!(one.memory[0] - steps.memory[0], 100 * 256 * 4);
    assert_eq!(turns.memory, steps.memory);
}

#[test]
fn a_thousand_ranks_are_simulated_in_seconds() {
    let start = std::time::Instant::now();
    let machine =
        Machine { sums_per_second: 1e12, link: LinkRates { latency: 1e-5, bytes_per_second: 5e10 }, overlap: true };
    for (scheme, p, r) in
        [(Scheme::OneD, 1024, 1), (Scheme::OneAndHalfD, 1024, 8), (Scheme::TwoD, 1024, 1), (Scheme::ThreeD, 1000, 1)]
    {
        let plan = BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), 111_059_956).unwrap();
        let nnz = plan.even_step_nnz(3_231_371_744);
        let total: u64 = nnz.iter().flatten().sum();
        assert!(
            (total as f64 / 3_231_371_744.0 - 1.0).abs() < 0.01 || scheme == Scheme::TwoD || scheme == Scheme::ThreeD
        );
        let estimate = plan.estimate(&machine, &nnz, None, 128);
        assert!(estimate.seconds > 0.0 && estimate.seconds.is_finite());
        let slowest = estimate.compute_seconds.iter().chain(&estimate.exchange_seconds).copied().fold(0.0, f64::max);
        assert!(estimate.seconds >= slowest);
    }
    assert!(start.elapsed().as_secs() < 10, "it took {:?}", start.elapsed());
}

#[test]
fn blocks_are_counted_and_plans_are_data() {
    let csr = graph(100, 3);
    let plan = BlockPlan::new(&ProcessGrid::new(Scheme::OneAndHalfD, 8, 2).unwrap(), 100).unwrap();
    let blocks = block_nnz(&csr, &plan.panels);
    for (i, row) in blocks.iter().enumerate() {
        for (j, &count) in row.iter().enumerate() {
            let block = csr.block(plan.panels[i].clone(), plan.panels[j].clone()).unwrap();
            assert_eq!(count, block.nnz() as u64);
        }
    }
    assert_eq!(blocks.iter().flatten().sum::<u64>(), csr.nnz() as u64);
    let steps: u64 = plan.step_nnz(&csr).iter().flatten().sum();
    assert_eq!(steps, csr.nnz() as u64);
    assert_eq!(imbalance(&[1, 1, 4]), 2.0);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<BlockPlan>(&text).unwrap(), plan);
}

#[test]
fn parts_that_there_are_not_are_refused() {
    let message = Ownership::new(&[0, 1, 7], 3).unwrap_err().to_string();
    assert_eq!(message, "node 2 is in part 7, but there are 3");
    for bounds in [vec![], vec![0], vec![1, 4]] {
        assert!(Patches::new(bounds).unwrap_err().to_string().contains("the first is 0"));
    }
    assert!(Patches::new(vec![0, 4, 3]).unwrap_err().to_string().contains("patch 1 begins at node 4"));
    let patches = Patches::equal(10, 3).unwrap();
    assert_eq!([0, 1, 2].map(|patch| patches.range(patch)), [0..3, 3..6, 6..10]);
    assert!(Patches::equal(10, 0).is_err());
    assert!(patches.of_ranks(4).unwrap_err().to_string().contains("3 patches cannot be dealt to 4 ranks"));
    let grid = ProcessGrid::new(Scheme::OneD, 4, 1).unwrap();
    assert!(BlockPlan::new(&grid, 3).unwrap_err().to_string().contains("3 nodes cannot be cut over 4 ranks"));
}

#[test]
fn evenly_spread_entries_touch_as_many_columns_as_draws_do() {
    for (columns, nnz) in [(1, 3), (100, 10), (1000, 1000), (1000, 5000)] {
        // Draws of a multiplicative generator, whose high bits are spread evenly.
        let mut state = 12_345u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize * columns) >> 31
        };
        let drawn: BTreeSet<usize> = (0..nnz).map(|_| draw()).collect();
        let (found, expected) = (girih_partition::evenly_touched(columns, nnz) as f64, drawn.len() as f64);
        assert!((found / expected - 1.0).abs() < 0.1, "{nnz} in {columns}: {found}, drawn {expected}");
    }
    assert_eq!(girih_partition::evenly_touched(0, 0), 0);
    assert_eq!(girih_partition::evenly_touched(10, 0), 0);
}
