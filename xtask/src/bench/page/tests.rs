//! Tests of the page.

use super::{PAGE, check, page};
use crate::listing::Listing;

const KERNELS: (&str, &str) = (
    "benches/peers/gpu-kernels.json",
    r#"{"device": "D", "date": "2026-01-01", "commit": "abc", "about": "Medians.", "tables": [{"title": "T", "unit": "ms",
    "better": "less", "columns": ["girih f32", "Other"], "rows": [["Reddit", [1.71, 2.85]]], "note": "N"}]}"#,
);
const RECORD: &str = r#"{"suite": "gpu-spmm", "graph": "sreddit: 9 nodes, 400 edges, 2 features", "date": "2026-01-01",
    "commit": null, "machine": {"cpu": "Any", "cores": 2}, "device": {"name": "NVIDIA H200", "copy_gb_s": 4000.0},
    "goals": [{"what": "a < b, ms", "found": 3.25, "at_most": 2.0, "is_met": false}],
    "cases": [{"name": "none/w32/f32/girih", "time": {"median_s": 0.001},
               "metrics": {"compulsory_mb": 0.5, "x_cusparse": 0.75}}]}"#;

#[test]
fn every_section_has_the_figures_of_records() {
    let listing = Listing::of(&[KERNELS, ("benches/record/gpu-spmm-abc.json", RECORD)]);
    let page = page(&listing).unwrap();
    for part in [
        "id=\"A4\"",
        "gpu-spmm-abc: x_cusparse, 1 × H200, 2026-01-01",
        "<span class=\"ours\">1.71</span>",
        "copies within memory, 4000 GB/s",
        "<th scope=\"row\">a &lt; b, ms</th><td>3.25</td><td>2.00</td>",
        "<td>0.750</td><td><code>x_cusparse</code></td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["http://", "https://", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs nothing from outside: {outside}");
    }
}

#[test]
fn the_check_compares_the_page_with_the_records() {
    let written = page(&Listing::of(&[KERNELS])).unwrap();
    assert_eq!(check(&Listing::of(&[KERNELS, (PAGE, &written)])), Ok(()));
    let other = ("benches/record/gpu-spmm-abc.json", RECORD);
    assert!(check(&Listing::of(&[KERNELS, other, (PAGE, &written)])).unwrap_err().contains("differs from the records"));
    assert!(check(&Listing::of(&[KERNELS])).unwrap_err().contains("no page"));
}

#[test]
fn a_broken_data_file_is_refused_by_name() {
    let of = |text: &str| page(&Listing::of(&[(KERNELS.0, text)])).unwrap_err();
    assert!(of("{}").starts_with("benches/peers/gpu-kernels.json: "));
    assert!(of(&KERNELS.1.replace("2.85", "2.85, 3")).contains("row 'Reddit' has 3 figures for 2 columns"));
    assert!(of(&KERNELS.1.replace("less", "least")).contains("'less' or 'more'"));
    assert!(page(&Listing::of(&[])).unwrap_err().contains("no such file"));
}

#[test]
fn the_page_of_this_tree_agrees_with_its_records() {
    assert_eq!(check(&Listing::read(&crate::workspace_root()).unwrap()), Ok(()));
}
