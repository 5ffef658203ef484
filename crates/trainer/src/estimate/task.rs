//! [`Task`]: symbolic targets of node classification, ranking and link prediction.

use std::ops::Range;

use girih_compute::prelude::*;
use girih_compute::{Dtype, Shape, Symbolic, SymbolicMatrix};
use girih_graph_format::Csr;

use super::links::LinkSizes;
use super::{DataSizes, InteractionSizes};
use crate::TrainError;
use crate::config::TrainConfig;
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::{Loss, ParamId, Part, Pool, Tape, Targets, Var};
use crate::tasks::links::Pairs;
use crate::tasks::recommend::{self, Batch};

/// Symbolic targets of a step's loss.
pub(super) enum Task {
    /// Classes of nodes, and the training nodes.
    Classes { targets: Targets<Symbolic>, train: Part<Symbolic> },
    /// Triples of a recommender, whose parameter `embedding` has a row for each user and item.
    Ranking { sizes: InteractionSizes, embedding: ParamId, batch: Batch<Symbolic> },
    /// Pairs of nodes of a step, and of the validation and test links.
    Links { step: Box<Pairs<Symbolic>>, held_out: Box<[Pairs<Symbolic>; 2]> },
}

impl Task {
    /// Computes the loss of a step.
    pub(super) fn loss<'a>(
        &'a self,
        tape: &mut Tape<'a, Symbolic>,
        model: &dyn Model<Symbolic>,
        inputs: &'a Inputs<Symbolic>,
        config: &TrainConfig,
    ) -> Result<Loss<Symbolic>, TrainError> {
        Ok(match self {
            Self::Classes { targets, train } => {
                let logits = model.forward(tape, inputs)?;
                let of_batch = targets_of_batch(tape.backend(), targets, tape.value(logits));
                tape.loss_of(logits, of_batch.as_ref().unwrap_or(targets), train)?
            }
            Self::Ranking { embedding, batch, .. } => {
                batch.loss(tape, model, inputs, *embedding, config.optimizer.weight_decay as f32)?
            }
            Self::Links { step, .. } => {
                let embeddings = model.forward(tape, inputs)?;
                let scores = step.scores(tape, embeddings)?;
                step.loss(tape, scores)?
            }
        })
    }

    /// Computes the scores of an evaluation from the output of the model.
    pub(super) fn evaluate<'a>(&'a self, tape: &mut Tape<'a, Symbolic>, output: Var) -> Result<(), TrainError> {
        let symbolic = tape.backend();
        match self {
            Self::Classes { .. } => drop(symbolic.argmax_rows(tape.value(output))?),
            Self::Links { held_out, .. } => {
                for pairs in &**held_out {
                    let scores = pairs.scores(tape, output)?;
                    drop(pairs.loss(tape, scores)?);
                }
            }
            Self::Ranking { sizes, .. } => {
                let users_and_items = (sizes.n_users, sizes.n_items);
                let nothing_met = |users: Range<usize>| Csr::empty(users.len(), sizes.n_items);
                let (pool, users) = (&mut Pool::default(), 0..sizes.n_users);
                let output = tape.value(output);
                drop(recommend::top_items(symbolic, pool, output, users_and_items, users, nothing_met)?);
            }
        }
        Ok(())
    }

    /// Number of steps of an epoch, if they see the whole graph.
    pub(super) fn steps_per_epoch(&self, config: &TrainConfig) -> usize {
        match self {
            Self::Classes { .. } | Self::Links { .. } => 1,
            Self::Ranking { sizes, .. } => sizes.n_train.div_ceil(config.batch_size.unwrap_or(sizes.n_train)),
        }
    }
}

/// Targets of a mini-batch with these logits; `None` if the logits are those of all nodes.
fn targets_of_batch(
    symbolic: &Symbolic,
    of_nodes: &Targets<Symbolic>,
    logits: &SymbolicMatrix,
) -> Option<Targets<Symbolic>> {
    let shape = logits.shape();
    match of_nodes {
        Targets::Single(classes) => {
            (symbolic.id_range(classes).len != shape.rows).then(|| Targets::Single(symbolic.ids(shape.rows)))
        }
        Targets::Multi(wanted) => (wanted.shape() != shape).then(|| Targets::Multi(symbolic.matrix(shape, Dtype::F32))),
    }
}

impl DataSizes {
    /// Symbolic targets of a step, where `n_train` nodes train on all ranks together.
    pub(super) fn task(
        &self,
        symbolic: &Symbolic,
        config: &TrainConfig,
        model: &dyn Model<Symbolic>,
        (links, n_train): (Option<&LinkSizes>, usize),
    ) -> Result<Task, TrainError> {
        if let Some(links) = links {
            let held_out = Box::new(links.held_out_pairs.map(|n_pairs| Pairs::symbolic(symbolic, n_pairs)));
            return Ok(Task::Links { step: Box::new(Pairs::symbolic(symbolic, links.step_pairs)), held_out });
        }
        let Some(embedding) = model.embedding() else {
            let rows = symbolic.ids(self.n_train);
            let train = Part { rows, n_here: self.n_train, n_all: n_train };
            return Ok(Task::Classes { targets: self.targets(symbolic), train });
        };
        let sizes = self.interactions.ok_or_else(|| {
            let name = config.model.kind.name();
            TrainError::invalid(format!("{name} recommends items to users, and this data has no users and items: give --bipartite, or another --model"))
        })?;
        if sizes.n_train == 0 {
            return Err(TrainError::invalid(
                "the data has no interactions of users and items to train on: check its split",
            ));
        }
        let n_triples = config.batch_size.unwrap_or(sizes.n_train).min(sizes.n_train);
        let nodes = symbolic.ids(3 * n_triples);
        Ok(Task::Ranking { sizes, embedding, batch: Batch::whole(nodes, 3 * n_triples) })
    }

    /// Symbolic labels of the nodes.
    fn targets(&self, symbolic: &Symbolic) -> Targets<Symbolic> {
        if self.multi_label {
            Targets::Multi(symbolic.matrix(Shape::new(self.n_nodes, self.n_classes), Dtype::F32))
        } else {
            Targets::Single(symbolic.ids(self.n_nodes))
        }
    }
}
