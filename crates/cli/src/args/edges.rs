//! Flags of features and labels of edges.

use clap::Args;
use girih_trainer::EdgeConfig;

use super::choices::set;

/// Columns of an edge list besides ids and times.
#[derive(Debug, Args)]
#[command(next_help_heading = "Edges in time (edge lists with a column of times)")]
pub struct EdgeSettings {
    /// Columns that are features of edges, by name or number from 1; all: those besides ids and times
    ///
    /// The models gine, gat and gatv2 read them. A model also sees in which direction an edge is read.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub edge_features: Option<Vec<String>>,
    /// Column whose sign is predicted: whether its value is above zero
    ///
    /// Links are then not told from other pairs of nodes, but edges with a label above zero from the others.
    #[arg(long, value_name = "COLUMN")]
    pub edge_label: Option<String>,
    /// Columns that encode the age of an edge, as cosines of fixed frequencies [default: 0]
    #[arg(long, value_name = "N")]
    pub time_encoding: Option<usize>,
}

impl EdgeSettings {
    /// Writes the given values into `config`.
    pub fn override_in(&self, config: &mut EdgeConfig) {
        set(&mut config.features, self.edge_features.clone());
        set(&mut config.label, self.edge_label.clone().map(Some));
        set(&mut config.time_encoding, self.time_encoding);
    }
}
