//! Notes of what loaders leave out.

use girih_graph_format::Notes;

#[test]
fn everything_not_used_is_in_one_line() {
    let mut notes = Notes::default();
    assert!(notes.is_empty() && notes.not_used_line().is_none());
    notes.leave_out("edge_attr.npy", "edge features");
    notes.leave_out("edge_type.npy", "");
    assert_eq!(notes.not_used_line().unwrap(), "not used: edge_attr.npy: edge features; edge_type.npy");
}
