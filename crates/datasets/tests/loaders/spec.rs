//! Texts of SPECs, and the recipes of generators that they name.

use girih_datasets::Spec;
use girih_datasets::generate::{Planted, Recipe, Rmat};

fn planted(text: &str) -> Planted {
    match text.parse().unwrap() {
        Spec::Synth { recipe: Recipe::Planted(planted), name } => {
            assert_eq!(name, text);
            planted
        }
        other => panic!("{other:?}"),
    }
}

fn rmat(text: &str) -> Rmat {
    match text.parse().unwrap() {
        Spec::Synth { recipe: Recipe::Rmat(rmat), .. } => rmat,
        other => panic!("{other:?}"),
    }
}

fn refusal(text: &str) -> String {
    let error = text.parse::<Spec>().expect_err(text);
    assert!(error.is_spec());
    error.to_string()
}

#[test]
fn anything_else_is_a_path() {
    assert_eq!("data/cora".parse::<Spec>().unwrap(), Spec::Path("data/cora".into()));
}

#[test]
fn presets_have_the_papers_sizes() {
    for (name, nodes, edges, features, classes) in [
        ("reddit", 232_965, 114_848_856, 602, 41),
        ("proteins", 132_534, 79_255_038, 602, 8),
        ("archaea", 1_644_228, 206_436_882, 602, 10),
        ("products", 2_449_029, 126_167_180, 100, 47),
        ("papers100m", 111_059_956, 3_231_371_744, 128, 172),
        ("mag240m", 244_160_499, 1_728_364_232, 768, 153),
        ("yelp", 537_635, 7_949_402, 300, 100),
        ("friendster", 65_608_366, 3_612_134_270, 256, 64),
    ] {
        let recipe = planted(&format!("synth:{name}"));
        assert_eq!((recipe.nodes, recipe.edges), (nodes, edges), "{name}");
        assert_eq!((recipe.features, recipe.settings.classes), (features, classes), "{name}");
    }
}

#[test]
fn scale_shrinks_nodes_and_edges_and_nothing_else() {
    let (full, tenth) = (planted("synth:reddit"), planted("synth:reddit@0.1"));
    assert_eq!((tenth.nodes, tenth.features, tenth.settings.classes), (23_297, full.features, full.settings.classes));
    assert!((tenth.edges as f64 / tenth.nodes as f64 - full.edges as f64 / full.nodes as f64).abs() < 0.01);
    let degree = planted("synth:reddit,degree=98");
    assert_eq!((degree.nodes, degree.edges), (232_965, 22_830_570));
}

#[test]
fn keys_override_and_unknown_ones_are_listed() {
    let recipe = planted(
        "synth:planted,nodes=1000,degree=8,features=16,classes=4,communities=9,mix=0.5,gamma=3,signal=1,factors=5,stray=0.1,noise=0,train=0.2,val=0.3,seed=7",
    );
    assert_eq!((recipe.nodes, recipe.edges, recipe.features, recipe.settings.classes), (1000, 8000, 16, 4));
    let settings = &recipe.settings;
    assert_eq!((settings.communities, settings.seed, settings.mix), (9, 7, 0.5));
    assert_eq!((settings.factors, settings.stray), (5, 0.1));
    assert!(refusal("synth:planted,nodse=3").contains("known are nodes, degree"));
    assert!(refusal("synth:redit").contains("planted, reddit"));
    assert!(refusal("synth:planted,nodes=3,nodes=4").contains("twice"));
}

#[test]
fn the_rest_is_tested_unless_few_nodes_have_labels() {
    assert_eq!(planted("synth:reddit").settings.test, None);
    assert_eq!(planted("synth:papers100m").settings.test, Some(0.0019));
    assert_eq!(planted("synth:papers100m,train=0.5,val=0.1").settings.test, None);
    assert_eq!(planted("synth:planted,train=0.1,val=0.2,test=0.7").settings.test, Some(0.7));
}

#[test]
fn values_out_of_range_are_refused() {
    for text in [
        "",
        "synth:",
        "synth:reddit@0",
        "synth:reddit@-1",
        "synth:reddit@nan",
        "synth:reddit@1e-9",
        "synth:planted,mix=nan",
        "synth:planted,mix=2",
        "synth:planted,factors=1025",
        "synth:planted,stray=1.5",
        "synth:planted,nodes=0",
        "synth:planted,nodes=3000000000",
        "synth:planted,nodes",
        "synth:planted,train=0.8,val=0.3",
        "synth:planted,train=0.5,val=0.3,test=0.3",
        "synth:planted,test=1.5",
        "synth:planted,gamma=1",
        "synth:planted,seed=-1",
        "synth:rmat@0.1",
        "synth:rmat,scale=10,nodes=5",
        "synth:rmat,scale=31",
        "synth:rmat,features=3",
    ] {
        refusal(text);
    }
}

#[test]
fn rmat_counts_nodes_or_bits() {
    assert_eq!(rmat("synth:rmat,scale=10,degree=4"), Rmat { nodes: 1024, edges: 4096, seed: 0 });
    assert_eq!(rmat("synth:rmat,nodes=1000,degree=4,seed=3"), Rmat { nodes: 1000, edges: 4000, seed: 3 });
}
