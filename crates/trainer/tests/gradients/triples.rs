//! Gradients of a step on triples, for each decoder, by differences.

use girih_compute::Reference;
use girih_compute::prelude::*;
use girih_datasets::TypedData;
use girih_graph_format::NodeId;
use girih_trainer::{
    CandidatePairs, Decoder, DecoderKind, Diagonal, Dims, Distance, Inputs, Model, ModelConfig, ModelKind, ParamInit,
    Targets, TripleConfig,
};

use super::networks::move_off_zero;
use super::typed::typed;
use super::{Dtype, NODES, check_loss, dims, graph};
use girih_trainer::models::BuildModel;

/// Queries: entity, relation or its reciprocal, answer.
const QUERIES: [[NodeId; 3]; 4] = [[0, 1, 3], [5, 2, 0], [3, 3, 3], [0, 0, 6]];
const WIDTH: usize = 6;

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// All decoders, with the distances that they measure.
fn decoders() -> impl Iterator<Item = (DecoderKind, Distance)> {
    DecoderKind::ALL.into_iter().map(|decoder| (decoder, Distance::L2)).chain([(DecoderKind::TransE, Distance::L1)])
}

#[test]
fn decoders_against_all_and_against_some_entities() {
    let ids = |place: usize| leaked(Reference.upload_ids(&QUERIES.map(|query| query[place])).unwrap());
    let (entities, relations, answers, n) = (ids(0), ids(1), QUERIES.map(|query| query[2]), QUERIES.len());
    let rows = leaked(Reference.upload_ids(&[0, 1, 2, 3]).unwrap());
    let candidates: Vec<NodeId> = answers.iter().flat_map(|&answer| [answer, (answer + 2) % 7, 1]).collect();
    let candidates = leaked(Reference.upload_ids(&candidates).unwrap());
    let diagonals = [n, NODES].map(|n| leaked(Diagonal::upload(&Reference, n).unwrap()));
    let pairs = leaked(CandidatePairs::upload(&Reference, n, 3).unwrap());
    for (decoder, distance) in decoders() {
        for compares_all in [true, false] {
            if compares_all && distance == Distance::L1 {
                continue;
            }
            let config = TripleConfig { decoder, width: WIDTH, distance, ..TripleConfig::default() };
            let mut init = ParamInit::new(&Reference, 7, 0);
            let dims = Dims { n_classes: WIDTH, ..dims() };
            let model = ModelConfig { kind: ModelKind::Embedding, ..ModelConfig::default() };
            let model: Box<dyn Model<Reference>> = model.build(dims, &mut init).unwrap();
            let (embedding, decoder) = (model.embedding().unwrap(), Decoder::new(&config, 2, &mut init).unwrap());
            let classes = if compares_all { answers } else { [0; 4] };
            let targets = leaked(Targets::Single(Reference.upload_ids(&classes).unwrap()));
            check_loss(init.finish(), &|tape| {
                let (all, of_relations) = (tape.param(embedding), tape.param(decoder.relations()));
                let asked = tape.gather_rows(all, entities, n).unwrap();
                let by = tape.gather_rows(of_relations, relations, n).unwrap();
                let query_rows = decoder.query_rows(tape, (asked, by), diagonals[0]).unwrap();
                let scores = if compares_all {
                    decoder.scores_of_all(tape, (query_rows, all), diagonals[1]).unwrap()
                } else {
                    let rows = tape.gather_rows(all, candidates, 3 * n).unwrap();
                    decoder.scores_of_some(tape, (query_rows, rows), pairs).unwrap()
                };
                assert_eq!(tape.shape(scores).cols, if compares_all { NODES } else { 3 });
                let mut loss = tape.loss(scores, targets, rows).unwrap();
                tape.penalize(&mut loss, asked, 0.3).unwrap();
                loss
            });
        }
    }
}

/// A network of relations makes the rows that a decoder scores.
#[test]
fn decoders_above_a_network_of_relations() {
    let ids = |place: usize| leaked(Reference.upload_ids(&QUERIES.map(|query| query[place])).unwrap());
    let (entities, relations, n) = (ids(0), ids(1), QUERIES.len());
    let targets = leaked(Targets::Single(Reference.upload_ids(&QUERIES.map(|query| query[2])).unwrap()));
    let rows = leaked(Reference.upload_ids(&[0, 1, 2, 3]).unwrap());
    let diagonals = [n, NODES].map(|n| leaked(Diagonal::upload(&Reference, n).unwrap()));
    for kind in [ModelKind::Rgcn, ModelKind::Rgat, ModelKind::Hgt] {
        let mut init = ParamInit::new(&Reference, 7, 0);
        let dims = Dims { n_features: 0, n_classes: WIDTH, relations: typed().sizes().clone(), ..dims() };
        let model = ModelConfig { kind, layers: 2, hidden: 2, heads: 2, dropout: 0.2, ..ModelConfig::default() };
        let model: &dyn Model<Reference> = &**leaked(model.build(dims, &mut init).unwrap());
        let config = TripleConfig { decoder: DecoderKind::ComplEx, width: WIDTH, ..TripleConfig::default() };
        let decoder = Decoder::new(&config, 2, &mut init).unwrap();
        let mut params = init.finish();
        move_off_zero(&mut params);
        let (spec, data) = (model.input_spec(), TypedData::of_graph(typed()));
        let inputs = Inputs::of_graph(&Reference, graph(), &spec).unwrap();
        let inputs = leaked(inputs.with_relations(&Reference, &data, &spec, Dtype::F32).unwrap());
        check_loss(params, &|tape| {
            let all = model.forward(tape, inputs).unwrap();
            let asked = tape.gather_rows(all, entities, n).unwrap();
            let of_relations = tape.param(decoder.relations());
            let by = tape.gather_rows(of_relations, relations, n).unwrap();
            let query_rows = decoder.query_rows(tape, (asked, by), diagonals[0]).unwrap();
            let scores = decoder.scores_of_all(tape, (query_rows, all), diagonals[1]).unwrap();
            let mut loss = tape.loss(scores, targets, rows).unwrap();
            tape.penalize(&mut loss, asked, 0.3).unwrap();
            loss
        });
    }
}
