//! Targets for arrays, stores of codes, and specifications.

use std::path::Path;

use girih_compress::{CodecSpec, CompressedFeatures};
use girih_datasets::generate::Recipe;
use girih_datasets::{FeaturesFrom, Spec};
use girih_graph_format::file::{Array, NpyRows, Verify, map_bytes};
use girih_sampling::FanOut;

use crate::Input;

/// Maximum number of nodes and stored values of generated data.
const GENERATED: u64 = 1 << 16;

/// Reads an array: mapped, read, converted to all types that loaders need, and row by row.
pub(super) fn npy(path: &Path, _: &Input) -> Result<(), String> {
    let read = || Array::map(path);
    let result = read().map(drop).map_err(|error| error.to_string());
    let _ = Array::read(path);
    let _ = read().and_then(Array::into_f32);
    let _ = read().and_then(Array::into_offsets);
    let _ = read().and_then(Array::into_ids);
    let _ = read().and_then(Array::into_i64);
    let _ = read().and_then(Array::into_bools);
    let _ = read().and_then(Array::into_matrix);
    let _ = read().and_then(Array::into_text);
    if let Ok(rows) = NpyRows::open(path) {
        let mut values = vec![0.0; rows.n_rows() * rows.width()];
        let _ = rows.read(0, &mut values);
    }
    result
}

/// Opens a store of codes and decodes all rows.
pub(super) fn store(path: &Path, _: &Input) -> Result<(), String> {
    let at = |error: girih_compress::CompressError| error.to_string();
    // Without verified checksums, any code must be decodable.
    if let Ok(bytes) = map_bytes(path)
        && let Ok(features) = CompressedFeatures::from_bytes(bytes, Verify::Structure)
    {
        decode(&features);
    }
    decode(&CompressedFeatures::open(path, Verify::Full).map_err(at)?);
    Ok(())
}

fn decode(features: &CompressedFeatures) {
    // A width that no file confirms causes an allocation of the caller, who has a graph with that width.
    if features.width() > 1 << 16 {
        return;
    }
    let mut row = vec![0.0; features.width()];
    let n = if features.check_codes().is_ok() { features.n_rows().min(1 << 12) } else { 0 };
    (0..n).for_each(|i| features.decode(i, &mut row));
}

/// Parses texts of the command line: data, codecs, feature rules, fan-outs.
pub(super) fn spec(_: &Path, input: &Input) -> Result<(), String> {
    let text = text(input)?;
    if let Ok(codec) = text.parse::<CodecSpec>() {
        assert_eq!(codec.to_string().parse::<CodecSpec>().ok(), Some(codec), "a codec is written as it is read");
        let _ = codec.check();
    }
    if let Ok(rule) = text.parse::<FeaturesFrom>() {
        assert_eq!(rule.to_string().parse::<FeaturesFrom>().ok(), Some(rule), "a rule is written as it is read");
    }
    let _ = text.parse::<FanOut>();
    let spec = text.parse::<Spec>().map_err(|error| error.to_string())?;
    if let Spec::Synth { name, recipe } = spec
        && size(&recipe) <= GENERATED
    {
        let dataset = recipe.generate(&name, 1).map_err(|error| error.to_string())?;
        dataset.validate().expect("what is generated keeps the rules of a data set");
    }
    Ok(())
}

/// Number of nodes, edges, feature values and class values of a recipe.
fn size(recipe: &Recipe) -> u64 {
    let (width, settings) = match recipe {
        Recipe::Planted(planted) => (planted.features, &planted.settings),
        Recipe::Typed(typed) => {
            (typed.node_types.iter().map(|of| of.features).max().unwrap_or_default(), &typed.settings)
        }
        Recipe::Rmat(rmat) => return (rmat.nodes as u64).saturating_add(rmat.edges),
    };
    let nodes = (recipe.nodes() as u64).saturating_add(settings.classes as u64);
    let values = (width * (1 + settings.factors) + settings.classes) as u64;
    nodes.saturating_mul(1 + values).saturating_add(recipe.edges())
}

pub(super) fn text(input: &Input) -> Result<&str, String> {
    let bytes = input.files.first().map_or(&[][..], |file| &file.bytes);
    std::str::from_utf8(bytes).map_err(|error| error.to_string())
}
