//! Laws of generated graphs.

use girih_datasets::{Dataset, Features, Labels, LoadOptions, Spec, Split, load};
use girih_graph_format::Csr;
use proptest::prelude::*;

fn generate(spec: &str) -> Dataset {
    match spec.parse().unwrap() {
        Spec::Synth { name, recipe } => recipe.generate(&name, 2).unwrap(),
        Spec::Path(path) => panic!("{} is no generator", path.display()),
    }
}

fn on_threads(n: usize, spec: &str) -> Dataset {
    rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(|| generate(spec))
}

/// SPEC with its numbers of nodes and stored edges.
fn any_spec() -> impl Strategy<Value = (String, usize, u64)> {
    let planted = (2usize..400, 0.0..0.45, 1usize..6, 0.0..1.0, 1.2..5.0, any::<u64>()).prop_map(
        |(nodes, density, classes, mix, gamma, seed)| {
            let degree = density * (nodes - 1) as f64;
            (format!("synth:planted,nodes={nodes},degree={degree},classes={classes},mix={mix},gamma={gamma},features=3,seed={seed}"), nodes, degree)
        },
    );
    let rmat = (2usize..400, 0.0..0.45, any::<u64>()).prop_map(|(nodes, density, seed)| {
        let degree = density * (nodes - 1) as f64;
        (format!("synth:rmat,nodes={nodes},degree={degree},seed={seed}"), nodes, degree)
    });
    prop_oneof![planted, rmat].prop_map(|(spec, nodes, degree): (String, usize, f64)| {
        let edges = (nodes as f64 * degree).round() as u64 & !1;
        (spec, nodes, edges)
    })
}

proptest! {
    #[test]
    fn graphs_are_symmetric_without_loops_and_have_exactly_the_edges((spec, nodes, edges) in any_spec()) {
        let dataset = generate(&spec);
        dataset.validate().unwrap();
        prop_assert!(dataset.generated);
        prop_assert_eq!(dataset.n_nodes(), nodes);
        prop_assert_eq!(dataset.n_edges() as u64, edges);
        prop_assert!(dataset.graph.is_symmetric());
        for v in 0..nodes {
            prop_assert!(dataset.graph.row(v).binary_search(&(v as u32)).is_err(), "self loop at {}", v);
        }
    }

    #[test]
    fn threads_do_not_matter((spec, _, _) in any_spec()) {
        prop_assert_eq!(on_threads(1, &spec), on_threads(3, &spec));
    }
}

#[test]
fn threads_do_not_matter_where_tasks_are_split() {
    for spec in ["synth:planted,nodes=30000,degree=30,features=8", "synth:rmat,scale=14", "synth:yelp@0.01"] {
        assert_eq!(on_threads(1, spec), on_threads(3, spec), "{spec}");
    }
}

#[test]
fn seeds_matter() {
    assert_ne!(generate("synth:planted,seed=1").graph, generate("synth:planted,seed=2").graph);
    assert_ne!(generate("synth:rmat,seed=1").graph, generate("synth:rmat,seed=2").graph);
}

#[test]
fn degrees_have_a_heavy_tail() {
    for spec in ["synth:planted,nodes=50000,degree=20", "synth:rmat,scale=15,degree=20"] {
        let graph = generate(spec).graph;
        let mut degrees: Vec<usize> = (0..graph.n_rows()).map(|v| graph.degree(v)).collect();
        degrees.sort_unstable();
        let (median, max) = (degrees[degrees.len() / 2], degrees[degrees.len() - 1]);
        assert!(max > 20 * median && median < 20, "{spec}: median {median}, maximum {max}");
    }
}

#[test]
fn ids_say_nothing_about_communities_but_edges_do() {
    let dataset = generate("synth:planted,nodes=20000,degree=20,noise=0,mix=0.2");
    let Some(Labels::Single { classes, n_classes }) = &dataset.labels else { panic!("single labels") };
    let same = |pairs: &mut dyn Iterator<Item = (usize, usize)>| {
        let (mut n_same, mut n) = (0.0, 0.0);
        for (u, v) in pairs {
            n_same += f64::from(u8::from(classes[u] == classes[v]));
            n += 1.0;
        }
        n_same / n
    };
    let graph = &dataset.graph;
    let edges = same(&mut (0..graph.n_rows()).flat_map(|v| graph.row(v).iter().map(move |&u| (v, u as usize))));
    let ids = same(&mut (1..graph.n_rows()).map(|v| (v - 1, v)));
    assert!(edges > 0.6, "share of edges within a class: {edges}");
    assert!(ids < 2.0 / *n_classes as f64, "share of neighboring ids within a class: {ids}");
}

#[test]
fn features_point_to_the_class() {
    let dataset = generate("synth:planted,nodes=5000,noise=0,signal=4");
    let (Some(Features::Dense(features)), Some(Labels::Single { classes, n_classes })) =
        (&dataset.features, &dataset.labels)
    else {
        panic!("dense features, single labels");
    };
    let mut means = vec![vec![0.0f64; features.n_cols()]; *n_classes];
    let mut counts = vec![0.0; *n_classes];
    for (v, &class) in classes.iter().enumerate() {
        counts[class as usize] += 1.0;
        means[class as usize].iter_mut().zip(features.row(v)).for_each(|(m, &x)| *m += f64::from(x));
    }
    for (mean, count) in means.iter().zip(counts) {
        let norm = mean.iter().map(|m| (m / count).powi(2)).sum::<f64>().sqrt();
        assert!((2.8..5.2).contains(&norm), "a centre of norm {norm}, drawn with mean square 16");
    }
}

/// A stray node has the centre of a random class, which is its own class once in `n_classes` times.
#[test]
fn some_nodes_stray() {
    for (stray, expected) in [(0.0, 0.0), (0.4, 0.4 * 4.0 / 5.0)] {
        let dataset =
            generate(&format!("synth:planted,nodes=4000,features=40,classes=5,signal=40,noise=0,stray={stray}"));
        let Some(Features::Dense(features)) = &dataset.features else { panic!("dense features") };
        let Some(Labels::Single { classes, .. }) = &dataset.labels else { panic!("one label each") };
        // Centres are far apart, so the first node of a class that is not stray shows where most others are.
        let distance = |u: usize, v: usize| -> f32 {
            features.row(u).iter().zip(features.row(v)).map(|(a, b)| (a - b).powi(2)).sum()
        };
        let mut n_away = 0;
        for class in 0..5 {
            let members: Vec<usize> = (0..4000).filter(|&v| classes[v] == class).collect();
            let near = |u: usize| members.iter().filter(|&&v| distance(u, v) < 400.0).count();
            n_away += members.len() - members.iter().take(9).map(|&u| near(u)).max().unwrap();
        }
        let share = f64::from(n_away as u32) / 4000.0;
        assert!((share - expected).abs() < 0.03, "{share} of {expected}");
    }
}

/// Half of the variance within a class lies in as many directions as there are factors.
#[test]
fn factors_correlate_features() {
    for (factors, expected) in [("", 4.0 / 60.0), (",factors=4", 0.5 + 0.5 * 4.0 / 60.0)] {
        let dataset = generate(&format!("synth:planted,nodes=4000,features=60,signal=0{factors}"));
        let Some(Features::Dense(features)) = &dataset.features else { panic!("dense features") };
        let mut covariance = vec![0.0f64; 60 * 60];
        for v in 0..features.n_rows() {
            let row = features.row(v);
            for (i, sums) in covariance.chunks_mut(60).enumerate() {
                sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(row[i]) * f64::from(x));
            }
        }
        let variance: f64 = (0..60).map(|i| covariance[i * 61]).sum();
        assert!((variance / 4000.0 / 60.0 - 1.0).abs() < 0.2, "variance {variance}");
        let share = leading_eigenvalues(&mut covariance, 60, 4) / variance;
        assert!((expected - 0.02..expected + 0.08).contains(&share), "share {share}, expected {expected}{factors}");
    }
}

/// Sum of the `n` largest eigenvalues of a symmetric matrix, by the power method with deflation.
fn leading_eigenvalues(matrix: &mut [f64], width: usize, n: usize) -> f64 {
    let mut found = 0.0;
    for at in 0..n {
        let mut vector: Vec<f64> = (0..width).map(|i| 1.0 + ((i * 7 + at) % 5) as f64).collect();
        let mut value = 0.0;
        for _ in 0..200 {
            let product: Vec<f64> =
                matrix.chunks(width).map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum()).collect();
            value = product.iter().map(|x| x * x).sum::<f64>().sqrt();
            vector = product.iter().map(|x| x / value).collect();
        }
        for (i, row) in matrix.chunks_mut(width).enumerate() {
            row.iter_mut().zip(&vector).for_each(|(x, b)| *x -= value * vector[i] * b);
        }
        found += value;
    }
    found
}

/// Mean of each row's own features and those of its neighbors.
fn aggregated(graph: &Csr, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mean = |v: usize| {
        let mut sum = rows[v].clone();
        for &u in graph.row(v) {
            sum.iter_mut().zip(&rows[u as usize]).for_each(|(s, x)| *s += x);
        }
        sum.iter().map(|s| s / (graph.degree(v) + 1) as f64).collect()
    };
    (0..rows.len()).map(mean).collect()
}

/// Test accuracy of the nearest mean of the training rows of each class.
pub fn nearest_mean_accuracy(rows: &[Vec<f64>], classes: &[u32], n_classes: usize, split: &Split) -> f64 {
    let mut means = vec![vec![0.0; rows[0].len()]; n_classes];
    let mut counts = vec![0.0; n_classes];
    for &v in &split.train {
        let class = classes[v as usize] as usize;
        counts[class] += 1.0;
        means[class].iter_mut().zip(&rows[v as usize]).for_each(|(m, x)| *m += x);
    }
    means.iter_mut().zip(counts).for_each(|(mean, n)| mean.iter_mut().for_each(|m| *m /= n));
    let distance = |row: &[f64], mean: &[f64]| row.iter().zip(mean).map(|(x, m)| (x - m).powi(2)).sum::<f64>();
    let nearest = |row: &[f64]| {
        (0..n_classes).min_by(|&a, &b| distance(row, &means[a]).total_cmp(&distance(row, &means[b]))).unwrap_or(0)
    };
    let hits = split.test.iter().filter(|&&v| nearest(&rows[v as usize]) == classes[v as usize] as usize).count();
    hits as f64 / split.test.len() as f64
}

#[test]
fn neighbors_tell_more_than_own_features() {
    let dataset = generate("synth:planted");
    let (Some(Features::Dense(features)), Some(Labels::Single { classes, n_classes })) =
        (&dataset.features, &dataset.labels)
    else {
        panic!("dense features, single labels");
    };
    let own: Vec<Vec<f64>> =
        (0..dataset.n_nodes()).map(|v| features.row(v).iter().map(|&x| f64::from(x)).collect()).collect();
    let two_hops = aggregated(&dataset.graph, &aggregated(&dataset.graph, &own));
    let accuracy = |rows: &[Vec<f64>]| nearest_mean_accuracy(rows, classes, *n_classes, &dataset.splits[0]);
    let (alone, together) = (accuracy(&own), accuracy(&two_hops));
    println!("nearest mean: own features {alone:.3}, two hops {together:.3}");
    assert!((0.4..0.8).contains(&alone), "own features alone: {alone}");
    assert!((0.85..0.96).contains(&together), "two hops: {together}");
}

#[test]
fn yelp_has_several_classes_per_node() {
    let dataset = generate("synth:yelp@0.01");
    let Some(Labels::Multi { n_classes, targets }) = &dataset.labels else { panic!("multi-label") };
    let mean = targets.data().iter().sum::<f32>() / dataset.n_nodes() as f32;
    assert_eq!(*n_classes, 100);
    assert!((5.0..16.0).contains(&mean), "{mean} classes a node");
}

#[test]
fn the_smallest_graphs() {
    let one = generate("synth:planted,nodes=1,degree=0");
    assert_eq!((one.n_nodes(), one.n_edges()), (1, 0));
    assert_eq!(generate("synth:rmat,nodes=1,degree=0").n_nodes(), 1);
    assert_eq!(generate("synth:rmat,nodes=3,degree=0.7").n_edges(), 2);
}

#[test]
fn an_impossible_density_is_refused_up_front() {
    let Spec::Synth { recipe, name } = "synth:planted,nodes=10,degree=6".parse().unwrap() else { unreachable!() };
    assert!(recipe.generate(&name, 1).unwrap_err().to_string().contains("half of all pairs"));
}

#[test]
fn a_graph_that_is_too_dense_names_a_degree_that_is_not() {
    for nodes in [1, 2, 9, 10, 41] {
        let load_of =
            |degree: usize| load(&format!("synth:planted,nodes={nodes},degree={degree}"), &LoadOptions::default());
        let message = load_of(nodes + 50).unwrap_err().to_string();
        let most: usize = message.split("degree= to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(load_of(most).is_ok(), "{nodes} nodes: {message}");
    }
}
