//! Items ranked first are those of a full sort.

use std::ops::Range;

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, NO_COLUMN};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix};
use girih_random::Key;
use girih_trainer::testing::{BLOCK_BYTES, top_items};
use girih_trainer::{Pool, TOP_K};
use proptest::prelude::*;

/// Random embeddings of small whole numbers, whose products are exact and often equal, and random training items.
fn case(n_users: usize, n_items: usize, width: usize, seed: u64) -> (Matrix, Csr) {
    let mut stream = Key::new(seed, u32::MAX).stream(0, 0);
    let values: Vec<f32> = (0..(n_users + n_items) * width).map(|_| stream.below(5) as f32 - 2.0).collect();
    let n_met = n_users * n_items / 3;
    let users = (0..n_met).map(|_| stream.below(n_users as u64) as u32).collect();
    let items = (0..n_met).map(|_| stream.below(n_items as u64) as u32).collect();
    let met = Coo::new(n_users, n_items, users, items, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    (Matrix::new(n_users + n_items, width, values).unwrap(), met)
}

/// Items of a user outside of the training items, from a full sort.
fn sorted(embeddings: &Matrix, met: &Csr, user: usize) -> Vec<u32> {
    let score = |item: u32| -> f32 {
        let row = embeddings.row(met.n_rows() + item as usize);
        embeddings.row(user).iter().zip(row).map(|(u, i)| u * i).sum()
    };
    let mut items: Vec<u32> = (0..met.n_cols() as u32).filter(|item| !met.row(user).contains(item)).collect();
    items.sort_by(|&a, &b| score(b).partial_cmp(&score(a)).unwrap().then(a.cmp(&b)));
    items.resize(items.len().max(TOP_K), NO_COLUMN);
    items.truncate(TOP_K);
    items
}

proptest! {
    #[test]
    fn the_first_items_are_those_of_a_full_sort(
        (n_users, n_items, width, seed) in (1..60usize, 1..90usize, 1..12usize, any::<u64>()),
    ) {
        let (embeddings, met) = case(n_users, n_items, width, seed);
        let cpu = Cpu::new();
        let on_device = cpu.upload(&embeddings, Dtype::F32).unwrap();
        let of_block = |users: Range<usize>| met.block(users, 0..n_items);
        let (mut pool, middle) = (Pool::default(), n_users / 3);
        let mut of_users = |users| {
            top_items(&cpu, &mut pool, &on_device, (n_users, n_items), users, of_block).unwrap()
        };
        let top = of_users(0..n_users);
        prop_assert_eq!(&[of_users(0..middle), of_users(middle..n_users)].concat(), &top);
        prop_assert_eq!(top.len(), n_users * TOP_K);
        for (user, found) in top.chunks_exact(TOP_K).enumerate() {
            prop_assert_eq!(found, &sorted(&embeddings, &met, user)[..], "user {}", user);
        }
    }
}

#[test]
fn users_of_several_blocks_are_all_ranked() {
    let n_items = BLOCK_BYTES / size_of::<f32>() / 2;
    let values: Vec<f32> = (0..5 + n_items).map(|row| if row < 5 { 1.0 } else { -(row as f32) }).collect();
    let cpu = Cpu::new();
    let embeddings = cpu.upload(&Matrix::new(5 + n_items, 1, values).unwrap(), Dtype::F32).unwrap();
    let nothing_met = |users: Range<usize>| Csr::empty(users.len(), n_items);
    let top = top_items(&cpu, &mut Pool::default(), &embeddings, (5, n_items), 0..5, nothing_met).unwrap();
    assert_eq!(top.len(), 5 * TOP_K);
    for found in top.chunks_exact(TOP_K) {
        assert_eq!(found, (0..TOP_K as u32).collect::<Vec<_>>());
    }
}
