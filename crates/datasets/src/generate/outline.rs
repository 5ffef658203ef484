//! Outlines of recipes: sizes of data without generating it.

use girih_compress::CodecSpec;
use girih_graph_format::file::ReadTimes;
use girih_graph_format::{RelationSize, RelationSizes};

use super::Recipe;
use super::recipes::{Labelled, Planted, PlantedSettings, Rmat, Typed};
use crate::{DatasetError, FeatureNorm, LoadOptions, Outline, ReverseEdges, Spec, TypeWidth};

/// Peak memory of generation in bytes, above which [`large_outline`] has an outline: 4 GiB.
const LARGE_BYTES: u64 = 4 << 30;

/// Outline of a generated data set that needs more than 4 GiB while it is made, without making it. `None` for files, for
/// smaller data, and where options add arrays or made features.
///
/// Numbers of nodes and edges are those of the data; edges of several relations count once each. Parts have their expected
/// sizes. The sources and destinations of a relation are as many as there may be.
///
/// # Errors
/// When SPEC or options are refused.
pub fn large_outline(spec: &str, options: &LoadOptions) -> Result<Option<Outline>, DatasetError> {
    let Spec::Synth { name, recipe } = spec.parse()? else { return Ok(None) };
    let codec = options.until_divided().codec;
    let recipe = recipe.with_options(options)?;
    recipe.check_density()?;
    let is_small = recipe.peak_bytes_with(codec) <= LARGE_BYTES;
    if is_small || !reads_recipe_alone(options) {
        return Ok(None);
    }
    recipe.outline(name, codec).map(Some)
}

/// Whether options leave graph, features and parts as the recipe has them.
fn reads_recipe_alone(options: &LoadOptions) -> bool {
    let has_arrays = options.features.is_some() || options.names_labels();
    let makes_features = options.features_from.is_some() || !options.type_rules.is_empty();
    let divides = options.feature_norm.is_some_and(|norm| norm != FeatureNorm::None);
    let reads_more = options.times == ReadTimes::Required || !options.edge_features.is_empty();
    let changes = options.symmetrize.is_some() || options.random_split || options.split.is_some();
    !has_arrays && !makes_features && !divides && !reads_more && !changes
}

impl Recipe {
    /// Outline of the data set, named `name`, with codes of a codec if one is given; see [`large_outline`].
    ///
    /// # Errors
    /// When the types of a recipe are no schema.
    pub fn outline(&self, name: String, codec: Option<CodecSpec>) -> Result<Outline, DatasetError> {
        let plain = |n_nodes, n_edges, n_features: usize| Outline {
            name,
            generated: true,
            n_nodes,
            n_edges,
            n_features,
            features_from: None,
            weighted: false,
            edge_features: None,
            codes: codec.filter(|_| n_features > 0).map(|codec| (codec.to_string(), codec.row_bytes(n_features))),
            n_classes: 0,
            multi_label: false,
            splits: Vec::new(),
            n_users: None,
            triples: None,
            schema: None,
            relations: RelationSizes::of_plain(n_nodes, n_edges),
            type_widths: Vec::new(),
            target: 0,
        };
        match self {
            Self::Planted(Planted { nodes, edges, features, settings }) => Ok(Outline {
                n_classes: settings.classes,
                multi_label: settings.multi_label,
                splits: vec![settings.parts(*nodes)],
                ..plain(*nodes, (edges / 2 * 2) as usize, *features)
            }),
            Self::Rmat(Rmat { nodes, edges, .. }) => Ok(plain(*nodes, (edges / 2 * 2) as usize, 0)),
            Self::Typed(typed) => {
                let widest = typed.node_types.iter().map(|of| of.features).max().unwrap_or(0);
                let relations = typed.sizes()?;
                let n_edges = relations.relations.iter().map(|of| of.n_edges).sum();
                let has_several = typed.node_types.len() > 1;
                let width = |features: usize| if features == 0 { TypeWidth::None } else { TypeWidth::Given(features) };
                let widths = typed.node_types.iter().filter(|_| has_several).map(|of| width(of.features));
                let (Labelled::Share(share) | Labelled::Hubs(share)) = typed.labelled;
                let n_labelled = share * typed.node_types[typed.target].nodes as f64;
                let plain = plain(typed.nodes(), n_edges, widest);
                Ok(Outline {
                    n_features: if has_several { 0 } else { widest },
                    n_classes: typed.settings.classes,
                    splits: vec![typed.settings.parts(n_labelled.round() as usize)],
                    schema: Some(typed.schema_with_reverses()?.0),
                    relations,
                    type_widths: widths.collect(),
                    target: typed.target,
                    ..plain
                })
            }
        }
    }
}

impl PlantedSettings {
    /// Expected numbers of training, validation and test nodes among `n` with labels.
    fn parts(&self, n: usize) -> [usize; 3] {
        let test = self.test.unwrap_or(1.0 - self.train - self.val);
        [self.train, self.val, test].map(|share| (share * n as f64).round() as usize)
    }
}

impl Typed {
    /// Upper bounds for the sizes of all relations and their reverses; numbers of edges are exact, but for relations that
    /// `--reverse merge` doubles.
    fn sizes(&self) -> Result<RelationSizes, DatasetError> {
        let (schema, from) = self.schema_with_reverses()?;
        let size = |(number, &(of, _)): (usize, &(usize, bool))| {
            let ends = &schema.edge_types()[number];
            let [n_sources, n_destinations] = [ends.source, ends.destination].map(|end| self.node_types[end].nodes);
            let doubles = self.reverse == ReverseEdges::Merge && ends.source == ends.destination;
            let n_edges = self.relations[of].edges as usize * if doubles { 2 } else { 1 };
            RelationSize {
                source: ends.source,
                destination: ends.destination,
                n_edges,
                n_sources: n_sources.min(n_edges),
                n_destinations: n_destinations.min(n_edges),
            }
        };
        Ok(RelationSizes {
            node_types: self.node_types.iter().map(|of| of.nodes).collect(),
            relations: from.iter().enumerate().map(size).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dataset, load};

    fn sizes(outline: &Outline) -> (usize, usize, usize, usize) {
        (outline.n_nodes, outline.n_edges, outline.n_features, outline.n_classes)
    }

    fn both(spec: &str, options: &LoadOptions) -> (Dataset, Outline) {
        let Ok(Spec::Synth { name, recipe }) = spec.parse() else { panic!("{spec} is a generator") };
        let outline = recipe.with_options(options).unwrap().outline(name, options.codec).unwrap();
        (load(spec, options).unwrap(), outline)
    }

    #[test]
    fn outlines_of_graphs_without_types_are_those_of_the_data() {
        for spec in ["synth:planted,nodes=3000,degree=9", "synth:rmat,nodes=500,degree=8", "synth:products@0.001"] {
            let (data, outline) = both(spec, &LoadOptions::default());
            let found = data.outline();
            assert_eq!((sizes(&outline), &outline.relations), (sizes(&found), &found.relations), "{spec}");
            for (expected, found) in outline.splits.iter().flatten().zip(found.splits.iter().flatten()) {
                assert!(found.abs_diff(*expected) as f64 <= 4.0 * (*expected as f64).sqrt() + 1.0, "{spec}");
            }
        }
    }

    #[test]
    fn outlines_of_typed_graphs_are_those_of_the_data() {
        let options = LoadOptions { codec: Some("topk:4".parse().unwrap()), ..LoadOptions::default() };
        for reverse in [None, Some(ReverseEdges::No), Some(ReverseEdges::Add)] {
            let (data, outline) = both("synth:igbh-tiny@0.02", &LoadOptions { reverse, ..options.clone() });
            let found = data.outline();
            assert_eq!((&outline.schema, &outline.type_widths), (&found.schema, &found.type_widths));
            assert_eq!((outline.target, &outline.codes, outline.n_nodes), (found.target, &found.codes, found.n_nodes));
            assert_eq!(outline.relations.node_types, found.relations.node_types);
            for (bound, found) in outline.relations.relations.iter().zip(&found.relations.relations) {
                assert_eq!((bound.n_edges, bound.source), (found.n_edges, found.source));
                assert!(found.n_sources <= bound.n_sources && found.n_destinations <= bound.n_destinations);
            }
        }
        // The graph of all relations has one edge where several of them have one.
        let (data, outline) = both("synth:aifb-like", &LoadOptions::default());
        let (found, n_edges) = (data.outline(), outline.n_edges);
        assert!(n_edges >= found.n_edges && outline.type_widths.is_empty(), "{n_edges}");
        assert_eq!(sizes(&Outline { n_edges: found.n_edges, ..outline }), sizes(&found));
    }

    #[test]
    fn only_large_generated_data_has_an_outline() {
        let outline = |spec: &str| large_outline(spec, &LoadOptions::default()).unwrap();
        assert!(outline("synth:igbh-tiny@0.02").is_none() && outline("some/folder").is_none());
        let full = outline("synth:igbh").unwrap();
        assert_eq!((full.n_nodes, full.n_edges), (547_306_935, 2 * 5_812_005_639));
        assert_eq!(full.splits, [[94_605_581, 788_379, 62_282_009]]);
        let options = LoadOptions { features_from: Some("degree".parse().unwrap()), ..LoadOptions::default() };
        assert!(large_outline("synth:mag240m", &options).unwrap().is_none());
        // What loading refuses, an outline does, too.
        let bipartite = LoadOptions { bipartite: Some(true), ..LoadOptions::default() };
        let message = large_outline("synth:igbh", &bipartite).unwrap_err().to_string();
        assert!(message.contains("--bipartite is for edge lists"), "{message}");
    }
}
