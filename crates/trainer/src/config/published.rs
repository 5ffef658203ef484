//! Settings of a [`TrainConfig`] that publications give for models, tasks and graphs.

use super::{Decay, Metric, ModelConfig, ModelKind, NormKind, OptimizerConfig, SelfWeight, TaskKind, TrainConfig};

impl TrainConfig {
    /// Published settings of a model, which files and flags may override. GCN's settings are the general ones.
    #[must_use]
    pub fn for_model(kind: ModelKind) -> Self {
        let general = Self { model: ModelConfig { kind, ..ModelConfig::default() }, ..Self::default() };
        match kind {
            ModelKind::Gcn | ModelKind::Sgc | ModelKind::Sage | ModelKind::Gin | ModelKind::Gine | ModelKind::Mlp => {
                general
            }
            // Veličković et al., ICLR 2018, section 3.3.
            ModelKind::Gat | ModelKind::Gatv2 => Self {
                model: ModelConfig { hidden: 8, heads: 8, dropout: 0.6, ..general.model },
                optimizer: OptimizerConfig { lr: 0.005, decay: Decay::All, ..general.optimizer },
                epochs: 1000,
                patience: Some(100),
                ..general
            },
            // More dropout than in the publication: 140 labels are few for so many weights.
            ModelKind::Ngcn => Self { model: ModelConfig { hops: 4, dropout: 0.7, ..general.model }, ..general },
            // Gasteiger et al., ICLR 2019, section 5.
            ModelKind::Appnp => Self { model: ModelConfig { hops: 10, hidden: 64, ..general.model }, ..general },
            // Schlichtkrull et al., ESWC 2018, section 5.1 and appendix.
            ModelKind::Rgcn => Self {
                model: ModelConfig { dropout: 0.0, ..general.model },
                optimizer: OptimizerConfig { weight_decay: 0.0, ..general.optimizer },
                epochs: 50,
                ..general
            },
            // As the examples of heterogeneous graphs in other libraries have them: layers of 64.
            ModelKind::Hsage => Self {
                model: ModelConfig { hidden: 64, self_weight: SelfWeight::Relation, ..general.model },
                optimizer: OptimizerConfig { lr: 0.005, decay: Decay::All, ..general.optimizer },
                ..general
            },
            ModelKind::Rgat | ModelKind::Hgt => {
                let self_weight = if kind == ModelKind::Rgat { SelfWeight::Type } else { general.model.self_weight };
                Self {
                    model: ModelConfig { hidden: 16, heads: 4, self_weight, ..general.model },
                    optimizer: OptimizerConfig { lr: 0.005, decay: Decay::All, ..general.optimizer },
                    ..general
                }
            }
            // He et al., SIGIR 2020, section 4.1.2, and the authors' code.
            ModelKind::LightGcn => Self {
                model: ModelConfig { layers: 3, hidden: 64, dropout: 0.0, ..general.model },
                optimizer: OptimizerConfig { lr: 1e-3, weight_decay: 1e-4, ..general.optimizer },
                epochs: 1000,
                eval_every: 10,
                batch_size: Some(2048),
                ..general
            },
            ModelKind::Embedding => Self { model: ModelConfig { dropout: 0.0, ..general.model }, ..general },
        }
    }

    /// Default settings of a model for a task. Link prediction starts from [`Self::for_model`], but without dropout
    /// and weight decay: decay shrinks embeddings until their products carry no information. Widths are those of Kipf
    /// and Welling (2016, section 3): 32 hidden columns and embeddings of 16.
    #[must_use]
    pub fn for_task(task: TaskKind, kind: ModelKind) -> Self {
        let nodes = Self::for_model(kind);
        match task {
            TaskKind::Nodes => return nodes,
            TaskKind::Triples => return Self::for_triples(nodes),
            TaskKind::Links => {}
        }
        let hidden = if kind.has_heads() { nodes.model.hidden } else { 32 };
        Self {
            task,
            model: ModelConfig { hidden, dropout: 0.0, ..nodes.model },
            optimizer: OptimizerConfig { weight_decay: 0.0, ..nodes.optimizer },
            ..nodes
        }
    }

    /// Default settings for triples: those of `nodes`, with batches, and without dropout and weight decay. Networks of
    /// relations have wider layers. As each of their steps computes all entities, they have fewer and longer steps.
    fn for_triples(nodes: Self) -> Self {
        let (reads_relations, has_heads) = (nodes.model.kind.reads_relations(), nodes.model.kind.has_heads());
        let hidden = if reads_relations && !has_heads { 64 } else { nodes.model.hidden };
        let (lr, batch_size) = if reads_relations { (0.01, 2048) } else { (1e-3, 512) };
        Self {
            task: TaskKind::Triples,
            model: ModelConfig { hidden, dropout: 0.0, ..nodes.model },
            optimizer: OptimizerConfig { lr, weight_decay: 0.0, decay: Decay::First, ..nodes.optimizer },
            epochs: 100,
            patience: None,
            eval_every: 5,
            batch_size: Some(batch_size),
            ..nodes
        }
    }

    /// A GCN for heterophilous graphs, scored by ROC-AUC. It has residual connections and layer normalisation, as
    /// Platonov et al. (ICLR 2023) use. It is narrower and has a higher learning rate, so that 200 epochs suffice.
    #[must_use]
    pub fn heterophilous() -> Self {
        let model = ModelConfig {
            layers: 3,
            hidden: 32,
            dropout: 0.2,
            residual: true,
            norm: NormKind::Layer,
            ..ModelConfig::default()
        };
        let optimizer = OptimizerConfig { lr: 0.003, weight_decay: 0.0, ..OptimizerConfig::default() };
        Self { model, optimizer, metric: Metric::RocAuc, ..Self::default() }
    }
}
