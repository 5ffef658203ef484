//! Laws of drawn splits.

use girih_datasets::{Labels, SplitRule, UNLABELLED};

fn labels(n: usize, n_classes: usize) -> Labels {
    let classes = (0..n).map(|v| if v % 10 == 9 { UNLABELLED } else { (v % n_classes) as u32 }).collect();
    Labels::Single { n_classes, classes }
}

#[test]
fn every_class_gets_its_share_and_every_labelled_node_a_part() {
    let labels = labels(3000, 7);
    let split = SplitRule::GNN_BENCHMARK.draw(&labels, 5, 0).unwrap();
    let Labels::Single { classes, .. } = &labels else { unreachable!() };
    for class in 0..7 {
        assert_eq!(split.train.iter().filter(|&&v| classes[v as usize] == class).count(), 20);
        assert_eq!(split.val.iter().filter(|&&v| classes[v as usize] == class).count(), 30);
    }
    assert_eq!(split.train.len() + split.val.len() + split.test.len(), 2700);
    for (_, part) in split.parts() {
        assert!(part.is_sorted() && part.iter().all(|&v| labels.is_labelled(v)));
    }
}

#[test]
fn seeds_and_runs_give_different_splits_and_repeat_themselves() {
    let labels = labels(3000, 7);
    for rule in [SplitRule::GNN_BENCHMARK, SplitRule::Fractions { train: 0.5, val: 0.1, test: None }] {
        let draw = |seed, run| rule.draw(&labels, seed, run).unwrap();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_eq!(rule.draw_many(&labels, 1, 3).unwrap()[2], draw(1, 2));
    }
}

#[test]
fn fractions_are_kept_on_average() {
    let split = SplitRule::Fractions { train: 0.5, val: 0.1, test: None }.draw(&labels(100_000, 4), 1, 0).unwrap();
    // 90 000 labelled nodes; four standard deviations of a half are 600.
    assert!(split.train.len().abs_diff(45_000) < 600, "{}", split.train.len());
    assert!(split.val.len().abs_diff(9_000) < 360, "{}", split.val.len());
    assert_eq!(split.nodes().len(), 90_000);
    let few = SplitRule::Fractions { train: 0.5, val: 0.1, test: Some(0.05) }.draw(&labels(100_000, 4), 1, 0).unwrap();
    assert_eq!((&few.train, &few.val), (&split.train, &split.val));
    assert!(few.test.len().abs_diff(4_500) < 270 && few.nodes().len() < 60_000, "{}", few.test.len());
}

#[test]
fn a_small_class_is_named() {
    let message = SplitRule::GNN_BENCHMARK.draw(&labels(100, 7), 0, 0).unwrap_err().to_string();
    assert!(message.contains("class 0 has 14 labelled nodes"), "{message}");
}
