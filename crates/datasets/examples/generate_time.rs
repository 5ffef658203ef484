//! Seconds that a SPEC takes to load or generate, and its sizes:
//! `cargo run --release -p girih-datasets --example generate_time -- synth:reddit,degree=98`

use std::time::Instant;

use girih_datasets::{LoadOptions, load};

fn main() -> Result<(), girih_datasets::DatasetError> {
    for spec in std::env::args().skip(1) {
        let start = Instant::now();
        let dataset = load(&spec, &LoadOptions::default())?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{spec}: {seconds:.3} s, {} nodes, {} edges, {} features, {} classes",
            dataset.n_nodes(),
            dataset.n_edges(),
            dataset.n_features(),
            dataset.n_classes()
        );
    }
    Ok(())
}
