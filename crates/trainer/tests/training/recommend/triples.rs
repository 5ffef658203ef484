//! Triples of an epoch, and the share of them that each rank has.

use girih_datasets::Interactions;
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use girih_random::{Key, purpose};
use girih_trainer::testing::{Triples, nodes_of_share};

#[test]
fn shares_are_whole_triples_and_all_of_them() {
    for n_triples in [1, 3, 7, 20] {
        let nodes: Vec<NodeId> = (0..3 * n_triples).collect();
        for n_peers in [1, 2, 5, 9] {
            let mut found = Vec::new();
            for peer in 0..n_peers {
                let share: Vec<NodeId> = nodes_of_share(&nodes, peer, n_peers).collect();
                let n = share.len() / 3;
                assert!(n <= (n_triples as usize).div_ceil(n_peers), "shares are equal");
                for t in 0..n {
                    assert_eq!([share[t] + n_triples, share[t] + 2 * n_triples], [share[n + t], share[2 * n + t]]);
                    found.push(share[t]);
                }
            }
            assert_eq!(found, nodes[..n_triples as usize]);
        }
    }
}

/// User 0 lacks only item 4, user 1 has only item 2, user 2 has items 0 and 3.
fn interactions() -> Interactions {
    let (users, items) = (vec![0, 0, 0, 0, 1, 2, 2], vec![0, 1, 2, 3, 2, 0, 3]);
    let train = Coo::new(3, 5, users, items, None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    Interactions::new(train, Csr::empty(3, 5).unwrap()).unwrap()
}

fn key(epoch: u64) -> Key {
    Key::new(1, purpose::TRIPLES).child(0).child(epoch)
}

#[test]
fn an_epoch_has_as_many_triples_as_interactions() {
    let interactions = interactions();
    for (batch_size, sizes) in [(None, vec![7]), (Some(3), vec![3, 3, 1]), (Some(100), vec![7])] {
        let triples = Triples::new(&interactions, key(0), batch_size);
        let found: Vec<usize> = (0..triples.n_batches()).map(|batch| triples.batch(batch).len()).collect();
        assert_eq!(found, sizes.iter().map(|n| 3 * n).collect::<Vec<_>>(), "{batch_size:?}");
    }
}

#[test]
fn users_meet_their_items_and_not_the_others() {
    let interactions = interactions();
    let mut n_of_user = [0u32; 3];
    let mut n_of_item = [0u32; 5];
    for epoch in 0..2000 {
        let nodes = Triples::new(&interactions, key(epoch), None).batch(0);
        let (users, items) = nodes.split_at(7);
        let (met, others) = items.split_at(7);
        for t in 0..7 {
            let row = interactions.train().row(users[t] as usize);
            assert!(row.contains(&(met[t] - 3)) && !row.contains(&(others[t] - 3)));
            n_of_user[users[t] as usize] += 1;
            n_of_item[others[t] as usize - 3] += u32::from(users[t] == 1);
        }
    }
    // Six standard deviations around the means of 14,000 draws of three, and of a third of these of four.
    assert!(n_of_user.iter().all(|&n| n.abs_diff(4667) < 335), "users are drawn evenly: {n_of_user:?}");
    assert_eq!(n_of_item[2], 0);
    let others = [0, 1, 3, 4].map(|item: usize| n_of_item[item]);
    assert!(others.iter().all(|&n| n.abs_diff(1167) < 190), "so are the others: {others:?}");
}

#[test]
fn draws_depend_on_their_names_only() {
    let interactions = interactions();
    let draw = |epoch, batch| Triples::new(&interactions, key(epoch), Some(3)).batch(batch);
    assert_eq!(draw(4, 1), draw(4, 1));
    assert_ne!(draw(4, 1), draw(4, 0));
    assert_ne!(draw(4, 1), draw(5, 1));
}
