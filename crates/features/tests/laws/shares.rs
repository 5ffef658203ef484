//! Shares of nodes that GPUs cache.

use girih_features::CacheShares;

#[test]
fn shares_are_written_as_they_are_read() {
    for text in ["0.2", "0", "1", "0.25,0.5", "0,1"] {
        assert_eq!(text.parse::<CacheShares>().unwrap().to_string(), text);
    }
    for text in ["", "1.5", "-0.1", "0.6,0.6", "0.2,x", "nan", "0.1,0.2,0.3"] {
        assert!(text.parse::<CacheShares>().is_err(), "{text}");
    }
}

#[test]
fn shares_of_nodes_are_no_more_than_there_are() {
    let shares = |every_gpu, one_gpu| CacheShares { every_gpu, one_gpu };
    assert_eq!(shares(0.5, 0.5).of_nodes(3), (2, 1));
    assert_eq!(shares(1.0, 0.0).of_nodes(7), (7, 0));
    assert_eq!(shares(0.1, 0.2).of_nodes(10), (1, 2));
}

#[test]
fn shares_of_counts_find_the_counts_again() {
    for n in [1, 3, 7, 10, 49, 1000, 111_059_956, u32::MAX as usize] {
        for (a, b) in [(0, 1), (1, 3), (1, 2), (2, 3), (48, 49), (1, 1)] {
            let (on_every, k) = (n / b * a, n / 3);
            for on_one in [0, k.min(n - on_every), n - on_every] {
                let shares = CacheShares::of_counts(on_every, on_one, n);
                assert!(shares.are_shares(), "{on_every} and {on_one} of {n}: {shares}");
                assert_eq!(shares.of_nodes(n), (on_every, on_one), "of {n}: {shares}");
                assert_eq!(shares.to_string().parse(), Ok(shares));
            }
        }
    }
    assert_eq!(CacheShares::of_counts(0, 0, 0), CacheShares::default());
}
