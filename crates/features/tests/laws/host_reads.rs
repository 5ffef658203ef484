//! Choice of how GPUs read rows of the host.

use girih_features::{HostMeans, HostReads, HostRowSizes};

#[test]
fn names_are_read_back() {
    assert!(HostReads::ALL.into_iter().all(|reads| reads.to_string().parse() == Ok(reads)));
    assert!("pinned".parse::<HostReads>().unwrap_err().to_string().contains("in-place"));
}

#[test]
fn rows_are_brought_where_that_is_sooner_or_takes_less_memory() {
    let of_gpus = |(n_rows, row_bytes, are_copied), n_gpus, n_threads, free_bytes| {
        let rows = HostRowSizes { n_rows, row_bytes, are_copied };
        HostReads::Auto.chosen(&rows, &HostMeans { n_gpus, n_threads, free_bytes })
    };
    let chosen = |rows, n_threads, free_bytes| of_gpus(rows, 1, n_threads, free_bytes);
    let (many_short, few, long) = ((111_059_956, 256, true), (27_764_989, 256, true), (24_416_050, 1536, true));
    for (rows, n_threads, reads) in [
        (many_short, 16, HostReads::Staged),
        (many_short, 4, HostReads::InPlace),
        (few, 16, HostReads::InPlace),
        (long, 16, HostReads::InPlace),
    ] {
        assert_eq!(chosen(rows, n_threads, 40 << 30), reads, "{rows:?}, {n_threads} threads");
    }
    // Host memory stages little more to four GPUs together than to one, and each GPU reads in place at its own
    // rate.
    assert_eq!(of_gpus(many_short, 4, 16, 40 << 30), HostReads::InPlace);
    // 75 GB of loaded rows are not stored twice in 128 GB, nor 7 GB in 8 GB, unless they are copied anyway.
    assert_eq!(chosen((24_416_050, 3072, false), 16, 50 << 30), HostReads::Staged);
    assert_eq!(chosen((27_764_989, 256, false), 16, 8 << 30), HostReads::Staged);
    assert_eq!(chosen((27_764_989, 256, true), 16, 8 << 30), HostReads::InPlace);
    let told = HostReads::Staged.chosen(
        &HostRowSizes { n_rows: 1, row_bytes: 1, are_copied: true },
        &HostMeans { n_gpus: 1, n_threads: 1, free_bytes: u64::MAX },
    );
    assert_eq!(told, HostReads::Staged);
}
