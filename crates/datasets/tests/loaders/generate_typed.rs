//! Laws of generated graphs with types.

use std::collections::HashSet;

use girih_datasets::generate::{Labelled, PlantedSettings, Recipe, RelationDraws, TypeSize, Typed};
use girih_datasets::{Dataset, Features, Labels, LoadOptions, ReverseEdges, Spec, TypeFeatures, TypedData, load};
use girih_graph_format::Csr;
use proptest::prelude::*;

use crate::generate::nearest_mean_accuracy;

fn recipe(spec: &str) -> Typed {
    match spec.parse().unwrap() {
        Spec::Synth { recipe: Recipe::Typed(typed), .. } => typed,
        other => panic!("{other:?}"),
    }
}

fn generate(recipe: &Typed) -> Dataset {
    Recipe::Typed(recipe.clone()).generate("made", 2).unwrap()
}

fn on_threads(n: usize, recipe: &Typed) -> Dataset {
    rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(|| generate(recipe))
}

fn loaded(spec: &str) -> Dataset {
    load(spec, &LoadOptions::default()).unwrap()
}

fn refusal(spec: &str, options: &LoadOptions) -> String {
    load(spec, options).unwrap_err().to_string()
}

fn types(dataset: &Dataset) -> &TypedData {
    dataset.typed.as_ref().unwrap()
}

fn classes(dataset: &Dataset) -> &[u32] {
    let Some(Labels::Single { classes, .. }) = &dataset.labels else { panic!("one class per node") };
    classes
}

#[test]
fn presets_have_the_published_sizes() {
    for (name, n_nodes, n_edges) in [
        ("igbh-tiny", 549_999, 1_962_714),
        ("igbh-small", 3_131_266, 25_488_616),
        ("igbh-medium", 25_982_964, 239_492_193),
        ("igbh-large", 217_636_127, 2_004_750_425),
        ("igbh-full", 547_306_935, 5_812_005_639),
        ("igbh", 547_306_935, 5_812_005_639),
        ("mag240m-hetero", 244_160_499, 1_728_364_232),
        ("ogbn-mag", 1_939_743, 21_111_007),
        ("aifb-like", 8_285, 29_043),
    ] {
        let recipe = recipe(&format!("synth:{name}"));
        assert_eq!((recipe.nodes(), recipe.edges()), (n_nodes, n_edges), "{name}");
    }
    let widths = |name: &str| recipe(name).node_types.iter().map(|of| of.features).collect::<Vec<_>>();
    assert_eq!(widths("synth:igbh"), [1024; 4]);
    assert_eq!(widths("synth:igbh,features=64"), [64; 4]);
    assert_eq!(widths("synth:mag240m-hetero"), [768, 0, 0]);
    assert_eq!(widths("synth:ogbn-mag,features=8"), [8, 0, 0, 0]);
    let n_classes = ["igbh", "mag240m-hetero", "ogbn-mag", "aifb-like"].map(|name| {
        let settings = recipe(&format!("synth:{name}")).settings;
        assert!(settings.communities >= settings.classes, "{name}");
        settings.classes
    });
    assert_eq!(n_classes, [2983, 153, 349, 4]);
    assert_eq!(recipe("synth:aifb-like").relations.len(), 45);
}

#[test]
fn scale_multiplies_nodes_and_edges() {
    let dataset = loaded("synth:ogbn-mag@0.01");
    let (typed, schema) = (types(&dataset), types(&dataset).graph.schema());
    let nodes: Vec<(&str, usize)> = schema.node_types().iter().map(|of| (&of.name[..], of.n_nodes)).collect();
    assert_eq!(nodes, [("paper", 7364), ("author", 11346), ("institution", 87), ("field_of_study", 600)]);
    let edges: Vec<(String, usize)> =
        typed.graph.relations().iter().enumerate().map(|(i, of)| (schema.edge_name(i), of.nnz())).collect();
    let expected = [
        ("paper.cites.paper", 54_163),
        ("paper.rev_cites.paper", 54_163),
        ("author.writes.paper", 71_457),
        ("paper.rev_writes.author", 71_457),
        ("paper.has_topic.field_of_study", 75_051),
        ("field_of_study.rev_has_topic.paper", 75_051),
        ("author.affiliated_with.institution", 10_440),
        ("institution.rev_affiliated_with.author", 10_440),
    ];
    assert_eq!(edges, expected.map(|(name, n)| (name.to_owned(), n)));
    assert!(dataset.generated && typed.target == 0);
    assert!(dataset.notes.made_up[0].text.starts_with("4 reverse relations are added"));
    let widths: Vec<Option<usize>> = typed.features.iter().map(|of| of.given().map(Features::width)).collect();
    assert_eq!(widths, [Some(128), None, None, None]);
    let parts = dataset.splits[0].parts().map(|(_, nodes)| nodes.len() as f64 / 7364.0);
    for (part, expected) in parts.into_iter().zip([0.855, 0.088, 0.057]) {
        assert!((part - expected).abs() < 0.015, "{part} of {expected}");
    }
}

/// Recipe of some types and relations, by numbers of nodes and by ends and densities.
fn small(nodes: &[usize], relations: &[([usize; 2], f64)], (mix, gamma, seed): (f64, f64, u64)) -> Typed {
    let type_size = |(i, &nodes): (usize, &usize)| TypeSize { name: format!("t{i}"), nodes, features: 3 * (i % 2) };
    let relation = |(i, &([source, destination], density)): (usize, &([usize; 2], f64))| {
        let [source, destination] = [source, destination].map(|end| end % nodes.len());
        let n_loops = if source == destination { nodes[source] } else { 0 };
        let edges = (density * (nodes[source] * nodes[destination] - n_loops) as f64) as u64;
        RelationDraws { name: format!("r{i}"), source, destination, edges }
    };

    let settings = PlantedSettings { mix, gamma, seed, communities: 5, ..recipe("synth:aifb-like").settings };
    Typed {
        node_types: nodes.iter().enumerate().map(type_size).collect(),
        relations: relations.iter().enumerate().map(relation).collect(),
        target: 0,
        labelled: Labelled::Share(0.5),
        reverse: ReverseEdges::No,
        settings,
    }
}

fn any_recipe() -> impl Strategy<Value = Typed> {
    let nodes = prop::collection::vec(1usize..60, 1..4);
    let relations = prop::collection::vec(([0usize..4, 0usize..4], 0.0..0.5), 0..4);
    (nodes, relations, (0.0..1.0, 1.2..5.0, any::<u64>()))
        .prop_map(|(nodes, relations, settings)| small(&nodes, &relations, settings))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn relations_have_exactly_the_edges_and_no_loops(recipe in any_recipe()) {
        let dataset = generate(&recipe);
        dataset.validate().unwrap();
        for (of, relation) in recipe.relations.iter().zip(types(&dataset).graph.relations()) {
            prop_assert_eq!(relation.nnz() as u64, of.edges);
            let is_loop = |v: &usize| relation.row(*v).contains(&(*v as u32));
            prop_assert!(of.source != of.destination || !(0..relation.n_rows()).any(|v| is_loop(&v)));
        }
    }

    #[test]
    fn threads_change_nothing(recipe in any_recipe()) {
        prop_assert_eq!(on_threads(1, &recipe), on_threads(3, &recipe));
    }

    #[test]
    fn types_and_relations_at_the_end_change_no_others(
        recipe in any_recipe(),
        nodes in 1usize..60,
        end in 0usize..4,
        density in 0.0..0.5,
    ) {
        let mut more = recipe.clone();
        let (added, end) = (more.node_types.len(), end % recipe.node_types.len());
        more.node_types.push(TypeSize { name: "added".to_owned(), nodes, features: 2 });
        let edges = (density * (nodes * recipe.node_types[end].nodes) as f64) as u64;
        more.relations.push(RelationDraws { name: "more".to_owned(), source: added, destination: end, edges });
        let (few, many) = (generate(&recipe), generate(&more));
        let n_relations = recipe.relations.len();
        prop_assert_eq!(types(&few).graph.relations(), &types(&many).graph.relations()[..n_relations]);
        prop_assert_eq!(classes(&few), &classes(&many)[..few.n_nodes()]);
        prop_assert_eq!(&few.splits, &many.splits);
        if added > 1 {
            prop_assert_eq!(&types(&few).features[..], &types(&many).features[..added]);
        }
    }
}

#[test]
fn threads_change_nothing_where_tasks_are_split() {
    for spec in ["synth:igbh-tiny@0.05,features=16", "synth:mag240m-hetero@0.0005", "synth:aifb-like"] {
        let recipe = recipe(spec);
        assert_eq!(on_threads(1, &recipe), on_threads(3, &recipe), "{spec}");
    }
}

#[test]
fn seeds_make_other_graphs() {
    let [one, two] = [1, 2].map(|seed| loaded(&format!("synth:aifb-like,seed={seed}")));
    assert_ne!(types(&one).graph, types(&two).graph);
    assert_ne!(one.labels, two.labels);
}

#[test]
fn degrees_of_both_ends_have_a_heavy_tail() {
    let dataset = loaded("synth:ogbn-mag@0.05");
    for (number, relation) in types(&dataset).graph.relations().iter().enumerate() {
        let mut degrees: Vec<usize> = (0..relation.n_rows()).map(|v| relation.degree(v)).collect();
        degrees.sort_unstable();
        let (median, max) = (degrees[degrees.len() / 2], degrees[degrees.len() - 1]);
        let name = types(&dataset).graph.schema().edge_name(number);
        assert!(max > 8 * median.max(1), "{name}: median {median}, maximum {max}");
    }
}

/// Share of pairs with the same class among pairs of rows, and the share that chance would give.
fn same_class(pairs: impl Iterator<Item = (usize, usize)>, classes: &[u32]) -> f64 {
    let (mut n_same, mut n) = (0.0, 0.0);
    for (u, v) in pairs {
        n_same += f64::from(u8::from(classes[u] == classes[v]));
        n += 1.0;
    }
    n_same / n
}

/// Pairs of neighboring columns of each row, which are two steps apart.
fn siblings(relation: &Csr) -> impl Iterator<Item = (usize, usize)> {
    let of_row = |v: usize| {
        // Columns ascend, and ids are random: neighbors in a row are a random pair.
        relation.row(v).windows(2).map(|pair| (pair[0] as usize, pair[1] as usize))
    };
    (0..relation.n_rows()).flat_map(of_row)
}

#[test]
fn labels_go_with_those_of_neighbors_over_every_relation() {
    let dataset = loaded("synth:ogbn-mag@0.05,noise=0");
    let (classes, relations) = (classes(&dataset), types(&dataset).graph.relations());
    let cites = &relations[0];
    let direct = (0..cites.n_rows()).flat_map(|v| cites.row(v).iter().map(move |&u| (u as usize, v)));
    let direct = same_class(direct, classes);
    let [by_author, by_field] = [&relations[3], &relations[4]].map(|relation| same_class(siblings(relation), classes));
    let chance = same_class((1..cites.n_rows()).map(|v| (v - 1, v)), classes);
    println!(
        "same class: cited {direct:.3}, of one author {by_author:.3}, of one field {by_field:.3}, chance {chance:.4}"
    );
    assert!(direct > 0.5 && by_author > 0.3 && by_field > 0.05 && chance < 0.01);
}

/// Mean of each paper's own features and those of the papers that it cites or that cite it.
fn with_citations(dataset: &Dataset, own: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let relations = &types(dataset).graph.relations()[..2];
    let mean = |v: usize| {
        let (mut sum, mut n) = (own[v].clone(), 1.0);
        for &u in relations.iter().flat_map(|relation| relation.row(v)) {
            sum.iter_mut().zip(&own[u as usize]).for_each(|(s, x)| *s += x);
            n += 1.0;
        }
        sum.iter().map(|s| s / n).collect()
    };
    (0..own.len()).map(mean).collect()
}

#[test]
fn citations_tell_more_than_features_alone_and_not_everything() {
    for spec in ["synth:ogbn-mag@0.02,classes=40", "synth:igbh-tiny@0.1,classes=19,features=128"] {
        let dataset = loaded(spec);
        let TypeFeatures::Given(Features::Dense(features)) = &types(&dataset).features[0] else { panic!("dense") };
        let own: Vec<Vec<f64>> =
            (0..features.n_rows()).map(|v| features.row(v).iter().map(|&x| f64::from(x)).collect()).collect();
        let accuracy =
            |rows: &[Vec<f64>]| nearest_mean_accuracy(rows, classes(&dataset), dataset.n_classes(), &dataset.splits[0]);
        let (alone, once) = (accuracy(&own), accuracy(&with_citations(&dataset, &own)));
        println!("{spec}: nearest mean: own features {alone:.3}, with citations {once:.3}");
        assert!((0.3..0.7).contains(&alone), "{spec}: own features alone: {alone}");
        assert!((alone + 0.1..0.97).contains(&once), "{spec}: with citations: {once}");
    }
}

#[test]
fn few_nodes_have_labels_where_the_published_data_has_few() {
    let dataset = loaded("synth:mag240m-hetero@0.0005");
    let n_labelled = classes(&dataset).iter().filter(|&&class| class < 153).count() as f64;
    assert!((n_labelled / 60_876.0 - 0.011).abs() < 0.002, "{n_labelled} papers have labels");
    let dataset = loaded("synth:aifb-like");
    let labelled: HashSet<usize> = (0..8285).filter(|&v| classes(&dataset)[v] < 4).collect();
    assert_eq!(labelled.len(), 176);
    let degree = |v: usize| types(&dataset).graph.relations().iter().map(|of| of.degree(v)).sum::<usize>() as f64;
    let mean = labelled.iter().map(|&v| degree(v)).sum::<f64>() / 176.0;
    assert!(mean > 20.0, "labelled nodes have {mean} edges, and all nodes 7");
}

#[test]
fn a_folder_gives_back_what_was_generated() {
    let home = tempfile::tempdir().unwrap();
    for (i, spec) in ["synth:igbh-tiny@0.01,features=8,classes=19", "synth:aifb-like"].into_iter().enumerate() {
        let (dataset, path) = (loaded(spec), home.path().join(i.to_string()));
        dataset.save(&path).unwrap();
        let read = loaded(path.to_str().unwrap());
        assert_eq!(read.fingerprints(), dataset.fingerprints());
        assert_eq!(read, dataset);
    }
}

#[test]
fn options_of_typed_data_have_their_meaning() {
    let spec = "synth:igbh-tiny@0.01,features=8,classes=19";
    let with = |options: LoadOptions| load(spec, &options).unwrap();
    let default = LoadOptions::default;
    let forward = with(LoadOptions { reverse: Some(ReverseEdges::No), ..default() });
    let both = with(LoadOptions { target: Some("paper".to_owned()), ..default() });
    assert_eq!((types(&forward).graph.relations().len(), types(&both).graph.relations().len()), (4, 8));
    assert!(forward.notes.is_empty());
    let encoded = with(LoadOptions { codec: Some("int8".parse().unwrap()), ..default() });
    let are_codes = |of: &TypeFeatures| matches!(of, TypeFeatures::Given(Features::Compressed(_)));
    assert!(types(&encoded).features.iter().all(are_codes));
    let told = refusal(spec, &LoadOptions { target: Some("author".to_owned()), ..default() });
    assert_eq!(told, "--target author: labels and splits are those of paper; leave --target out");
    let told = refusal(spec, &LoadOptions { target: Some("autor".to_owned()), ..default() });
    assert!(told.contains("known are paper, author, institute, fos"), "{told}");
    let told =
        refusal("synth:planted,nodes=10,degree=2", &LoadOptions { reverse: Some(ReverseEdges::No), ..default() });
    assert!(told.contains("--reverse is for data with types"), "{told}");
}

#[test]
fn types_without_features_take_means_of_papers() {
    let rules = [("author", "mean:rev_writes"), ("institution", "mean:affiliated_with")];
    let type_rules = rules.map(|(name, rule)| (name.to_owned(), rule.parse().unwrap())).into();
    let options = LoadOptions { type_rules, ..LoadOptions::default() };
    let dataset = load("synth:mag240m-hetero@0.0005,features=8", &options).unwrap();
    let widths = types(&dataset).features.iter().map(|of| of.given().map(Features::width));
    assert_eq!(widths.collect::<Vec<_>>(), [Some(8); 3]);
}

#[test]
fn specs_that_cannot_be_generated_are_refused_with_a_remedy() {
    for (spec, expected) in [
        ("synth:igbh-huge", "known are planted,"),
        ("synth:igbh-huge", "igbh-tiny, igbh-small, igbh-medium, igbh-large, igbh-full, mag240m-hetero"),
        ("synth:ogbn-mag@0", "SCALE \"0\" is not a positive number"),
        ("synth:ogbn-mag@-1", "SCALE \"-1\" is not a positive number"),
        ("synth:ogbn-mag@1e-5", "leaves no institution; take 1.1e-4 or more"),
        ("synth:ogbn-mag@2000", "3879486000 nodes exceed the limit of 2147483647; lower SCALE"),
        ("synth:ogbn-mag@1e300", "exceed the limit of 2147483647"),
        ("synth:ogbn-mag@2e-4", "paper.has_topic.field_of_study: 147 sources and 12 destinations hold at most 882"),
        ("synth:ogbn-mag@2e-4", "take a larger SCALE"),
        ("synth:ogbn-mag,nodes=5", "no key \"nodes\"; known are features, signal"),
        ("synth:aifb-like,features=4", "no key \"features\"; known are classes"),
        ("synth:igbh-tiny,train=0.9,val=0.2", "add up to more than one"),
    ] {
        let told = refusal(spec, &LoadOptions::default());
        assert!(told.contains(expected), "{spec}: {told}");
    }
}

#[test]
fn a_large_graph_is_refused_before_memory_is_allocated() {
    let peak = Recipe::Typed(recipe("synth:igbh")).peak_bytes();
    assert!(peak > 2_200_000_000_000, "features alone are 2.2 TB, and the peak is {peak} bytes");
}
