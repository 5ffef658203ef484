//! [`Spec`]: argument of `--data`.
//!
//! ```text
//! PATH                                   a file or folder; its format is recognised when it is loaded
//! synth:NAME[@SCALE][,key=value…]        a generator: a preset, with types or without, `planted` or `rmat`
//! ```

use std::path::PathBuf;
use std::str::FromStr;

use girih_graph_format::MAX_NODES;

use crate::DatasetError;
use crate::generate::{Planted, PlantedSettings, Preset, Recipe, Rmat, Typed, preset_communities, preset_names};

/// Keys of sizes that types have of their own.
const SIZE_KEYS: [&str; 2] = ["nodes", "degree"];
/// Keys of features.
const FEATURE_KEYS: [&str; 4] = ["features", "signal", "factors", "stray"];
/// Keys of communities, labels and parts.
const COMMUNITY_KEYS: [&str; 9] = ["classes", "communities", "mix", "gamma", "noise", "train", "val", "test", "seed"];
const RMAT_KEYS: [&str; 4] = ["scale", "nodes", "degree", "seed"];

/// Widest features.
const MAX_WIDTH: usize = 1 << 20;

/// Parsed data SPEC.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// A file or folder.
    Path(PathBuf),
    /// A generated data set.
    Synth {
        /// Text as written; it becomes the data set's name.
        name: String,
        /// Recipe to generate.
        recipe: Recipe,
    },
}

impl FromStr for Spec {
    type Err = DatasetError;

    /// Parses a SPEC; a pure function, no file is touched.
    ///
    /// # Errors
    /// When the text is empty, or names a generator or key that does not exist, or a value out of range.
    fn from_str(text: &str) -> Result<Self, DatasetError> {
        if text.is_empty() {
            return Err(DatasetError::spec("an empty data SPEC; give a path or synth:NAME"));
        }
        match text.strip_prefix("synth:") {
            None => Ok(Self::Path(PathBuf::from(text))),
            Some(rest) => {
                let recipe = parse_synth(rest).map_err(|message| DatasetError::spec(format!("{text:?}: {message}")))?;
                Ok(Self::Synth { name: text.to_owned(), recipe })
            }
        }
    }
}

fn parse_synth(text: &str) -> Result<Recipe, String> {
    let (head, settings) = text.split_once(',').map_or((text, ""), |(head, rest)| (head, rest));
    let (name, scale) = match head.split_once('@') {
        Some((name, scale)) => (name, Some(parse_scale(scale)?)),
        None => (head, None),
    };
    if name == "rmat" {
        if scale.is_some() {
            return Err("rmat takes no @SCALE; give scale= (the logarithm of the number of nodes) or nodes=".into());
        }
        return parse_rmat(&Settings::parse(settings, &RMAT_KEYS)?).map(Recipe::Rmat);
    }
    let scale = scale.unwrap_or(1.0);
    if let Some(preset) = Typed::find(name) {
        return parse_typed(preset.scaled(scale)?, settings).map(Recipe::Typed);
    }
    let preset = Preset::find(name)
        .ok_or_else(|| format!("no generator {name:?}; known are {}", preset_names().collect::<Vec<_>>().join(", ")))?;
    let keys = [&SIZE_KEYS[..], &FEATURE_KEYS, &COMMUNITY_KEYS].concat();
    parse_planted(&preset, scale, &Settings::parse(settings, &keys)?).map(Recipe::Planted)
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| scale.is_finite() && *scale > 0.0);
    scale.ok_or_else(|| format!("SCALE {text:?} is not a positive number"))
}

fn parse_planted(preset: &Preset, scale: f64, settings: &Settings) -> Result<Planted, String> {
    let mut recipe = preset.recipe(scale);
    recipe.nodes = settings.get("nodes", 1..=MAX_NODES, recipe.nodes)?;
    if recipe.nodes == 0 {
        return Err(format!("SCALE {scale} leaves no node"));
    }
    recipe.edges = parse_edges(settings, recipe.nodes, preset.mean_degree())?;
    recipe.features = settings.get("features", 0..=MAX_WIDTH, recipe.features)?;
    recipe.settings.classes = parse_classes(settings, &recipe.settings)?;
    recipe.settings.communities = preset_communities(recipe.nodes, recipe.edges, recipe.settings.classes);
    recipe.settings = parse_communities(settings, recipe.settings, recipe.nodes)?;
    Ok(recipe)
}

/// Recipe of a graph with types; keys of features are for recipes with features.
fn parse_typed(recipe: Typed, text: &str) -> Result<Typed, String> {
    let has_features = recipe.node_types.iter().any(|of| of.features > 0);
    let keys = [if has_features { &FEATURE_KEYS[..] } else { &[] }, &COMMUNITY_KEYS].concat();
    let settings = Settings::parse(text, &keys)?;
    let classes = parse_classes(&settings, &recipe.settings)?;
    let mut recipe = recipe.with_classes(classes);
    for of in recipe.node_types.iter_mut().filter(|of| of.features > 0) {
        of.features = settings.get("features", 0..=MAX_WIDTH, of.features)?;
    }
    let n_nodes = recipe.node_types[recipe.target].nodes;
    recipe.settings = parse_communities(&settings, recipe.settings, n_nodes)?;
    Ok(recipe)
}

fn parse_classes(settings: &Settings, planted: &PlantedSettings) -> Result<usize, String> {
    settings.get("classes", 1..=1 << 16, planted.classes)
}

/// Settings of `n_nodes` labelled nodes in communities; the number of classes is known.
fn parse_communities(
    settings: &Settings,
    mut planted: PlantedSettings,
    n_nodes: usize,
) -> Result<PlantedSettings, String> {
    planted.communities = settings.get("communities", 1..=n_nodes, planted.communities)?;
    planted.mix = settings.get("mix", 0.0..=1.0, planted.mix)?;
    planted.gamma = settings.get("gamma", 1.1..=100.0, planted.gamma)?;
    planted.signal = settings.get("signal", 0.0..=1e6, planted.signal)?;
    planted.factors = settings.get("factors", 0..=1 << 10, planted.factors)?;
    planted.stray = settings.get("stray", 0.0..=1.0, planted.stray)?;
    planted.noise = settings.get("noise", 0.0..=1.0, planted.noise)?;
    planted.train = settings.get("train", 0.0..=1.0, planted.train)?;
    planted.val = settings.get("val", 0.0..=1.0, planted.val)?;
    planted.seed = settings.get("seed", 0..=u64::MAX, planted.seed)?;
    // If the user states the training or validation fraction, the rest is for testing, unless that is stated as well.
    let is_said = |key: &str| settings.find(key).is_some();
    let test = planted.test.filter(|_| !is_said("train") && !is_said("val"));
    planted.test = if is_said("test") { Some(settings.get("test", 0.0..=1.0, 0.0)?) } else { test };
    let parts = [("train", planted.train), ("val", planted.val), ("test", planted.test.unwrap_or(0.0))];
    if parts.iter().map(|(_, share)| share).sum::<f64>() > 1.0 + 1e-9 {
        let [train, val, test] = parts.map(|(name, share)| format!("{name}={share}"));
        return Err(format!("{train}, {val} and {test} add up to more than one"));
    }
    Ok(planted)
}

fn parse_rmat(settings: &Settings) -> Result<Rmat, String> {
    let default = Rmat::default();
    let nodes = match settings.find("scale") {
        Some(_) if settings.find("nodes").is_some() => return Err("give scale= or nodes=, not both".into()),
        Some(_) => 1 << settings.get("scale", 1..=30, 0)?,
        None => settings.get("nodes", 1..=MAX_NODES, default.nodes)?,
    };
    let edges = parse_edges(settings, nodes, default.edges as f64 / default.nodes as f64)?;
    Ok(Rmat { nodes, edges, seed: settings.get("seed", 0..=u64::MAX, default.seed)? })
}

/// Even number of stored edges that gives the mean degree.
fn parse_edges(settings: &Settings, nodes: usize, default_degree: f64) -> Result<u64, String> {
    let degree = settings.get("degree", 0.0..=MAX_NODES as f64, default_degree)?;
    Ok((nodes as f64 * degree).round() as u64 & !1)
}

/// Pairs `key=value` of a SPEC.
struct Settings<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Settings<'a> {
    fn parse(text: &'a str, known: &[&str]) -> Result<Self, String> {
        let mut settings = Self { pairs: Vec::new() };
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| format!("{item:?} is not key=value"))?;
            if !known.contains(&key) {
                return Err(format!("no key {key:?}; known are {}", known.join(", ")));
            }
            if settings.find(key).is_some() {
                return Err(format!("{key}= is given twice"));
            }
            settings.pairs.push((key, value));
        }
        Ok(settings)
    }

    fn find(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    fn get<T>(&self, key: &str, range: std::ops::RangeInclusive<T>, default: T) -> Result<T, String>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.find(key) else { return Ok(default) };
        text.parse()
            .ok()
            .filter(|value| range.contains(value))
            .ok_or_else(|| format!("{key}={text} is not a number from {} to {}", range.start(), range.end()))
    }
}
