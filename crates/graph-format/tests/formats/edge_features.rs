//! Features of edges: columns of lists are read as they were written, in the order asked for, and doubtful choices are
//! refused.

use girih_graph_format::file::{EdgeList, EdgeListOptions, ReadTimes, parse_edge_list};
use girih_graph_format::{EdgeFeatures, FormatError};
use proptest::prelude::*;

const JODIE: &str = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features";

fn options(asked: &[&str]) -> EdgeListOptions {
    let features = asked.iter().map(|&name| name.to_owned()).collect();
    EdgeListOptions { features, times: ReadTimes::IfThere, ..EdgeListOptions::default() }
}

fn read(text: &str, asked: &[&str]) -> Result<EdgeList, FormatError> {
    parse_edge_list(text.as_bytes(), &options(asked))
}

fn features(text: &str, asked: &[&str]) -> EdgeFeatures {
    read(text, asked).unwrap_or_else(|error| panic!("{text:?}: {error}")).features.unwrap()
}

fn refused(text: &str, asked: &[&str]) -> String {
    read(text, asked).expect_err(text).to_string()
}

fn not_used(text: &str, asked: &[&str]) -> String {
    read(text, asked).unwrap().notes.not_used_line().unwrap_or_default()
}

fn with_columns(text: &str, columns: &str, asked: &[&str]) -> Result<EdgeList, FormatError> {
    let columns = Some(columns.parse().unwrap());
    parse_edge_list(text.as_bytes(), &EdgeListOptions { columns, ..options(asked) })
}

#[test]
fn columns_are_read_by_names_numbers_or_all() {
    let text = "from,to,Rating,time,note\n6,2,4,1289241911.5,-1\n1,3,5,1289241912,0.25\n0,0,-1e3,7,8\n";
    let found = features(text, &["rating"]);
    assert_eq!((found.names(), found.width(), found.n_edges()), (&["Rating".to_owned()][..], 1, 3));
    assert_eq!(found.values(), [4.0, 5.0, -1000.0]);
    let found = features(text, &["5", " RATING "]);
    assert_eq!((found.row(0), found.row(1), found.row(2)), (&[-1.0, 4.0][..], &[0.25, 5.0][..], &[8.0, -1000.0][..]));
    assert_eq!((found.column("note"), found.column("Rating"), found.column("time")), (Some(0), Some(1), None));
    assert_eq!(features(text, &["All"]).names(), ["Rating", "note"]);
    assert!(read(text, &[]).unwrap().features.is_none());
    // Columns that are read are not left out.
    assert_eq!(not_used(text, &["all"]), "");
    assert!(not_used(text, &["rating"]).starts_with("not used: column 5 (note)"));
    // Without names, numbers are the names.
    let list = with_columns("0 1 7 0.5\n", "source,target,time,-", &["4"]).unwrap();
    assert_eq!(list.features.unwrap(), EdgeFeatures::new(vec!["4".to_owned()], vec![0.5]).unwrap());
    // A column of weights is one of features, too.
    let list = read("source target weight\n0 1 0.5\n", &["weight"]).unwrap();
    assert_eq!((list.edges.values(), list.features.unwrap().values()), (Some(&[0.5][..]), &[0.5][..]));
    assert_eq!(features("% asym weighted\n1 2 0.5\n", &["weight"]).values(), [0.5]);
}

#[test]
fn names_come_from_a_header_under_columns() {
    let text = "x,y,score,when\n0,1,3,5\n1,0,4,6\n";
    let list = with_columns(text, "source,target,-,time", &["score"]).unwrap();
    assert_eq!((list.features.unwrap().values(), list.times.unwrap().values), (&[3.0, 4.0][..], vec![5, 6]));
    let shorter = text.replace(",when", "");
    assert!(with_columns(&shorter, "source,target,-,time", &["3"]).is_ok());
    let message = with_columns(&shorter, "source,target,-,time", &["score"]).unwrap_err().to_string();
    assert!(message.contains("--edge-features score") && message.contains("numbers from 1 to 4"), "{message}");
}

#[test]
fn a_name_that_is_a_number_wins_over_the_number() {
    // Pandas numbers columns without names.
    let text = ",source,target,5,4\n0,0,1,0.5,0.25\n";
    assert_eq!(features(text, &["4"]).values(), [0.25]);
    assert_eq!(features(text, &["5", "4"]).values(), [0.5, 0.25]);
}

#[test]
fn names_that_are_not_their_own_become_numbers() {
    let text = "source,target,x,X,\n0,1,2,3,4\n";
    let found = features(text, &["all"]);
    assert_eq!((found.names(), found.values()), (&["3", "4", "5"].map(String::from)[..], &[2.0, 3.0, 4.0][..]));
    assert_eq!(features(text, &["4"]).values(), [3.0]);
}

#[test]
fn doubtful_choices_are_refused_with_the_columns_that_there_are() {
    let text = "from,to,score,time,score,id\n0,1,2,3,4,0\n";
    let listed = "the columns are 1 (from), 2 (to), 3 (score), 4 (time), 5 (score), 6 (id)";
    for (asked, told) in [
        (&["rating"][..], &["rating: no column has this name", listed][..]),
        (&[""], &["no column has this name", listed]),
        (&["7"], &["--edge-features 7: there are 6 columns, counted from 1", listed]),
        (&["0"], &["--edge-features 0: there are 6 columns", listed]),
        (&["From"], &["column 1 (from) has the sources", listed, "leave this one out"]),
        (&["2"], &["column 2 (to) has the targets", listed]),
        (&["time"], &["column 4 (time) has the times", "--time-encoding reads", listed]),
        (&["score"], &["columns 3 and 5 both have this name; give the number of one"]),
        (&["3", "5", "3"], &["asks twice for column 3 (score); name it once"]),
        (&["3", "all"], &["all already stands for every column"]),
    ] {
        let message = refused(text, asked);
        assert!(message.starts_with("line 1: "), "{message}");
        told.iter().for_each(|told| assert!(message.contains(told), "{asked:?}: {message}"));
    }
    assert_eq!(features(text, &["6"]).values(), [0.0], "numbers of lines are read by name alone");
    let message = refused("from,to,time\n0,1,2\n", &["all"]);
    assert!(message.contains("every column has nodes, times or numbers") && message.contains("3 (time)"), "{message}");
    let message = refused("0 1 {'weight': 3.0}\n", &["weight"]);
    assert!(
        message.contains("line 1: lines that end in {…}") && message.contains("leave --edge-features"),
        "{message}"
    );
    let message = refused("# girih: nodes 5\n", &["all"]);
    assert!(message.contains("has no edges, and so no columns"), "{message}");
    let wide = format!(
        "source,target,{}\n0,1{}\n",
        (0..40).map(|i| format!("c{i}")).collect::<Vec<_>>().join(","),
        ",0".repeat(40)
    );
    assert!(refused(&wide, &["x"]).contains("16 (c13) and 26 more; give one"), "{}", refused(&wide, &["x"]));
}

#[test]
fn a_value_that_is_no_finite_number_is_named_by_line_and_column() {
    for (value, told) in
        [("red", "\"red\" is not a feature"), ("", "the value is missing"), ("nan", "\"nan\""), ("1e39", "\"1e39\"")]
    {
        let message = refused(&format!("from,to,score\n0,1,2\n\n1,2,{value}\n"), &["score"]);
        assert!(message.starts_with("line 4: column 3 (score): ") && message.contains(told), "{message}");
        assert!(message.contains("expected a finite number"), "{message}");
    }
    let message = refused("from,to,score\n0,1,2\n1,2\n", &["score"]);
    assert!(message.contains("line 3: 2 fields, but earlier lines have 3"), "{message}");
}

#[test]
fn the_last_name_of_jodie_stands_for_all_further_columns() {
    for n_features in [1, 3, 172] {
        let row = |edge: usize| (0..n_features).map(|i| (edge * 1000 + i) as f32 / 8.0).collect::<Vec<_>>();
        let line = |edge: usize| {
            let row: Vec<String> = row(edge).iter().map(ToString::to_string).collect();
            format!("{edge},0,{edge}.0,1,{}\n", row.join(","))
        };
        let text = format!("{JODIE}\n{}{}", line(0), line(1));
        let found = features(&text, &["all"]);
        assert_eq!(found.width(), n_features + 1, "state_label comes first");
        assert_eq!(found.row(1), [vec![1.0], row(1)].concat());
        let last = format!("feature_{}", n_features - 1);
        let found = features(&text, &[&last]);
        assert_eq!((&found.names()[0], found.row(1)), (&last, &row(1)[n_features - 1..]));

        let list = read(&text, &[]).unwrap();
        assert_eq!((list.sides, list.times.unwrap().values.len()), (Some((2, 1)), 2));
        let unused: Vec<&str> = list.notes.not_used.iter().map(|item| item.what.as_str()).collect();
        let all = format!("columns 5 to {} (feature_0 to {last})", n_features + 4);
        let expected = if n_features == 1 { "column 5 (feature_0)" } else { &all };
        assert_eq!(unused, ["column 4 (state_label)", expected]);
        let why = "numbers that --edge-features, --edge-label or --columns can read";
        assert!(list.notes.not_used.iter().all(|item| item.why == why), "{:?}", list.notes.not_used);
        let but_first = not_used(&text, &["state_label", "feature_0"]);
        let others = format!("{} of the {all}", n_features - 1);
        assert!(but_first.contains(&others) == (n_features > 1) && !but_first.contains("state"), "{but_first}");
    }
    assert!(refused(&format!("{JODIE}\n0,0,0.0,1\n"), &[]).contains("names 5 columns"));
}

#[test]
fn features_that_break_a_rule_are_refused() {
    let of = |names: &[&str], values: &[f32]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        EdgeFeatures::new(names, values.to_vec()).unwrap_err().to_string()
    };
    assert!(of(&[], &[]).contains("without a name"));
    assert!(of(&["a", "b", "a"], &[]).contains("two features of edges are named \"a\""));
    assert!(of(&["a", "b"], &[1.0, 2.0, 3.0]).contains("3 values for 2 features"));
    assert!(of(&["a", "b"], &[1.0, 2.0, 3.0, f32::INFINITY]).contains("edge 1, feature \"b\": inf is not finite"));
    assert_eq!(EdgeFeatures::default().n_edges(), 0);
}

/// List with features in random columns, and a choice of them.
#[derive(Debug)]
struct Case {
    /// Source, target and time.
    edges: Vec<[u32; 3]>,
    /// One row for each edge.
    rows: Vec<Vec<f32>>,
    /// Order of the columns in the file: source, target, time, then features.
    order: Vec<usize>,
    /// Number of a feature, and whether it is asked for by name.
    asked: Vec<(usize, bool)>,
    /// Lengths of comments between the lines, which decide where chunks end.
    comments: Vec<usize>,
    bipartite: bool,
}

impl Case {
    fn name(column: usize) -> String {
        ["source", "target", "time"].get(column).map_or_else(|| format!("f{column}"), |&name| name.to_owned())
    }

    fn text(&self) -> String {
        let joined = |field: &dyn Fn(usize) -> String| {
            self.order.iter().map(|&column| field(column)).collect::<Vec<_>>().join(",") + "\n"
        };
        let mut text = joined(&Self::name);
        for (edge, (ends, row)) in self.edges.iter().zip(&self.rows).enumerate() {
            let field = |column: usize| match column {
                0..3 => ends[column].to_string(),
                _ => row[column - 3].to_string(),
            };
            let comment = "x".repeat(self.comments[edge % self.comments.len()]);
            text += &format!("#{comment}\n{}", joined(&field));
        }
        text
    }

    fn asked(&self) -> Vec<String> {
        let one = |&(feature, by_name): &(usize, bool)| match by_name {
            true => Self::name(feature + 3).to_uppercase(),
            false => (self.order.iter().position(|&column| column == feature + 3).unwrap() + 1).to_string(),
        };
        self.asked.iter().map(one).collect()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (1..7usize, 1..40usize).prop_flat_map(|(n_features, n_edges)| {
        let value = prop_oneof![-1e3f32..1e3, any::<f32>().prop_filter("finite", |value| value.is_finite())];
        let numbers: Vec<usize> = (0..n_features).collect();
        let asked = prop::sample::subsequence(numbers, 1..=n_features).prop_shuffle();
        (
            prop::collection::vec(prop::array::uniform3(0..9u32), n_edges),
            prop::collection::vec(prop::collection::vec(value, n_features), n_edges),
            Just((0..n_features + 3).collect::<Vec<_>>()).prop_shuffle(),
            (asked, prop::collection::vec(any::<bool>(), n_features)),
            prop::collection::vec(0..400_000usize, 1..6),
            any::<bool>(),
        )
            .prop_map(|(edges, rows, order, (asked, by_name), comments, bipartite)| {
                let asked = asked.into_iter().zip(by_name).collect();
                Case { edges, rows, order, asked, comments, bipartite }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Self loops, repeated edges and ends of chunks keep rows beside their edges and times.
    #[test]
    fn features_read_back_exactly_beside_their_edges(case in cases()) {
        let options = EdgeListOptions {
            features: case.asked(),
            times: ReadTimes::Required,
            bipartite: Some(case.bipartite),
            ..EdgeListOptions::default()
        };
        let list = parse_edge_list(case.text().as_bytes(), &options).unwrap();
        let found = list.features.unwrap();
        prop_assert_eq!(found.n_edges(), case.edges.len());
        let names: Vec<String> = case.asked.iter().map(|asked| Case::name(asked.0 + 3)).collect();
        prop_assert_eq!(found.names(), names);
        let left = list.sides.map_or(0, |(left, _)| left as u32);
        let times = list.times.unwrap();
        for (edge, (&[source, target, time], row)) in case.edges.iter().zip(&case.rows).enumerate() {
            let expected: Vec<u32> = case.asked.iter().map(|asked| row[asked.0].to_bits()).collect();
            let bits: Vec<u32> = found.row(edge).iter().map(|value| value.to_bits()).collect();
            prop_assert_eq!(bits, expected);
            prop_assert_eq!((list.edges.cols()[edge], list.edges.rows()[edge]), (source, left + target));
            prop_assert_eq!(times.values[edge], i64::from(time));
        }
    }

    /// No choice of columns makes the reader panic.
    #[test]
    fn any_choice_is_no_panic(text in "[fromtidex01,;# \n.{}']{0,80}", asked in prop::collection::vec("[a-z0-9 ]{0,3}|all", 0..3)) {
        let options = EdgeListOptions { features: asked, ..EdgeListOptions::default() };
        if let Ok(list) = parse_edge_list(text.as_bytes(), &options) {
            prop_assert_eq!(list.features.is_some(), !options.features.is_empty());
            prop_assert!(list.features.is_none_or(|features| features.n_edges() == list.edges.len()));
        }
    }
}
