//! Timed edges: times of lists are read exactly, and rows are those of the definition.

use girih_graph_format::file::{EdgeList, EdgeListOptions, ReadTimes, parse_edge_list};
use girih_graph_format::{FormatError, NodeId, Permutation, Tick, TimeWindow, TimedRows, Times};
use proptest::prelude::*;

fn read(text: &str, columns: Option<&str>, times: ReadTimes) -> Result<EdgeList, FormatError> {
    let columns = columns.map(|columns| columns.parse().unwrap());
    parse_edge_list(text.as_bytes(), &EdgeListOptions { columns, times, ..EdgeListOptions::default() })
}

fn times(text: &str, columns: Option<&str>) -> Times {
    read(text, columns, ReadTimes::Required).unwrap().times.unwrap()
}

fn refused(text: &str, columns: Option<&str>) -> String {
    read(text, columns, ReadTimes::Required).unwrap_err().to_string()
}

#[test]
fn the_most_decimals_decide_the_tick() {
    let found = times("from,to,feature,time\n6,2,4,1289241911.72836\n1,15,1,7\n4,3,7,1289245277.5\n", None);
    assert_eq!(found.values, [128_924_191_172_836, 700_000, 128_924_527_750_000]);
    assert_eq!(found.tick, Tick::of_decimals(5).unwrap());
    assert_eq!(found.values.map_shown(found.tick), ["1289241911.72836", "7.00000", "1289245277.50000"]);
    let plain = times("0 1 1082040961\n1 2 0\n", Some("source,target,time"));
    assert_eq!((plain.values, plain.tick.decimals()), (vec![1_082_040_961, 0], 0));
    assert_eq!(times("source,target,ts\n0,1,9223372036854775807\n", None).values, [i64::MAX]);
}

/// Times as files write them.
trait Shown {
    fn map_shown(&self, tick: Tick) -> Vec<String>;
}

impl Shown for Vec<i64> {
    fn map_shown(&self, tick: Tick) -> Vec<String> {
        self.iter().map(|&time| tick.show(time)).collect()
    }
}

#[test]
fn bad_times_name_line_and_remedy() {
    let list = |time: &str| refused(&format!("source,target,time\n0,1,5\n1,2,{time}\n"), None);
    for (time, told) in [
        ("-5", "negative"),
        ("-0.5", "negative"),
        ("nan", "missing"),
        ("1e9", "without an exponent"),
        ("inf", "without an exponent"),
        ("9223372036854775808", "below 2^63"),
        ("1.0123456789", "10 decimals; at most 9"),
        ("2014-03-02", "is no time"),
        ("", "is no time"),
        (".5", "without an exponent"),
        ("5.", "without an exponent"),
    ] {
        let message = list(time);
        assert!(message.contains("line 3") && message.contains(told), "{time:?}: {message}");
    }
    let message = list("0.123456789\n2,0,9223372036854775807");
    assert!(message.contains("does not fit 64 bits"), "{message}");
    let message = refused("0 1\n1 2\n", None);
    assert!(message.contains("no column of times") && message.contains("--columns source,target,time"), "{message}");
    let message = refused("source,target,time,year\n0,1,5,2004\n", None);
    assert!(message.contains("columns 3 and 4"), "{message}");
}

#[test]
fn times_that_are_not_asked_for_are_left_out_by_name() {
    let text = "source,target,time\n0,1,5\n";
    let list = read(text, None, ReadTimes::No).unwrap();
    assert!(list.times.is_none());
    assert_eq!(list.notes.not_used_line().unwrap(), "not used: column 3 (time): times of edges");
    let list = read(text, None, ReadTimes::IfThere).unwrap();
    assert!(list.times.is_some() && list.notes.not_used.is_empty());
    // Dates are no numbers, and nothing is lost that was read before.
    for text in ["source,target,date\n0,1,2014-03-02\n", "source,target,time,year\n0,1,5,2004\n", "0 1\n"] {
        assert!(read(text, None, ReadTimes::IfThere).unwrap().times.is_none(), "{text}");
    }
}

#[test]
fn two_units_in_one_list_are_doubtful() {
    let warned = |text: &str| read(text, None, ReadTimes::Required).unwrap().notes.warnings.concat();
    let mixed = warned("source,target,time\n0,1,1082040961\n1,0,1082040962000\n");
    assert!(mixed.contains("seconds and others in milliseconds"), "{mixed}");
    assert_eq!(warned("source,target,time\n0,1,1\n1,0,1082040962\n"), "");
    assert_eq!(warned("source,target,time\n0,1,1082040961\n1,0,1782040962\n"), "");
}

#[test]
fn edges_that_do_not_fit_are_refused() {
    let of = |sources: &[NodeId], times: usize| {
        let times = Times { values: vec![0; times], ..Times::default() };
        TimedRows::new(3, sources, &[0, 1], &times, false).unwrap_err().to_string()
    };
    assert!(of(&[0, 1], 3).contains("2 sources, 2 destinations and 3 times"));
    assert!(of(&[0], 2).contains("1 sources"));
    assert!(of(&[0, 3], 2).contains("edge 1 names node 3"));
}

/// Source, destination and time of some edges among eight nodes.
fn lists() -> impl Strategy<Value = Vec<(NodeId, NodeId, i64)>> {
    prop::collection::vec((0..8u32, 0..8u32, -3..6i64), 0..60)
}

fn rows_of(list: &[(NodeId, NodeId, i64)], both_ways: bool) -> TimedRows {
    let column = |at: fn(&(NodeId, NodeId, i64)) -> NodeId| list.iter().map(at).collect::<Vec<_>>();
    let times = Times { values: list.iter().map(|edge| edge.2).collect(), ..Times::default() };
    TimedRows::new(8, &column(|edge| edge.0), &column(|edge| edge.1), &times, both_ways).unwrap()
}

/// Time, source and number of the edges into a node, by the definition.
fn row_of(list: &[(NodeId, NodeId, i64)], both_ways: bool, v: NodeId) -> Vec<(i64, NodeId, u32)> {
    let mut row = Vec::new();
    for (&(source, destination, time), edge) in list.iter().zip(0..) {
        if destination == v {
            row.push((time, source, edge));
        } else if both_ways && source == v {
            row.push((time, destination, edge));
        }
    }
    row.sort_unstable();
    row
}

fn found(rows: &TimedRows, v: NodeId) -> Vec<(i64, NodeId, u32)> {
    let row = rows.row(v as usize);
    row.times.iter().zip(row.sources).zip(row.edges).map(|((&time, &source), &edge)| (time, source, edge)).collect()
}

proptest! {
    #[test]
    fn rows_are_those_of_the_list(list in lists(), both_ways: bool, first in -5..8i64, last in -5..8i64) {
        let rows = rows_of(&list, both_ways);
        prop_assert_eq!((rows.n_nodes(), rows.n_edges()), (8, list.len()));
        for v in 0..8 {
            let row = row_of(&list, both_ways, v);
            prop_assert_eq!(&found(&rows, v), &row);
            let within = rows.within(v as usize, &TimeWindow { first, last });
            let expected = row.iter().filter(|entry| (first..=last).contains(&entry.0)).count();
            prop_assert_eq!(within.len(), expected);
            prop_assert!(rows.entries(within).times.iter().all(|time| (first..=last).contains(time)));
        }
        let times = || list.iter().map(|edge| edge.2);
        prop_assert_eq!(rows.span(), times().min().zip(times().max()));
    }

    #[test]
    fn edges_come_in_the_order_of_time_as_they_were_listed(list in lists(), both_ways: bool) {
        let mut expected: Vec<(i64, u32, NodeId, NodeId)> =
            list.iter().zip(0..).map(|(edge, number)| (edge.2, number, edge.0, edge.1)).collect();
        expected.sort_unstable();
        let all = rows_of(&list, both_ways).edges_in_time();
        let found: Vec<_> = all.iter().map(|edge| (edge.time, edge.edge, edge.source, edge.destination)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn another_order_of_nodes_renames_both_ends(
        list in lists(), both_ways: bool, order in Just((0..8).collect::<Vec<NodeId>>()).prop_shuffle(),
    ) {
        let order = Permutation::from_new_of_old(order).unwrap();
        let renamed: Vec<_> = list.iter().map(|&(u, v, time)| (order.map(u), order.map(v), time)).collect();
        prop_assert_eq!(rows_of(&list, both_ways).permuted(&order), rows_of(&renamed, both_ways));
    }
}
