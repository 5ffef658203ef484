//! Ranks that fail or are late end the others.

use std::time::Duration;

use super::*;
use girih_comm::Transport;
use girih_comm::threads::{self};
use girih_compute::prelude::*;
use girih_compute::{AdamStep, Dtype, Shape, StepInputs};
use girih_kernels::{Cuda, NcclRank};
use girih_tests::gpus::{Failure, PlannedFailure, deadline, several};

/// A rank fails while another one waits for it on its GPU.
#[test]
fn a_rank_that_fails_ends_those_who_wait_for_its_gpu() {
    for transport in transports() {
        let Some(gpus) = several() else { return };
        let planned = PlannedFailure::default();
        let outcome = threads::run(gpus.len(), deadline(), |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = connect(cuda, world, transport)?;
            let mut x = cuda.zeros(Shape::new(1000, 64), Dtype::F32)?;
            let mut all = cuda.zeros(Shape::new(1000 * world.size(), 64), Dtype::F32)?;
            for round in 0..5 {
                if round == 3 && world.rank() == 1 {
                    return Err(planned.now());
                }
                world.all_reduce(&mut x)?;
                world.all_gather(&vec![1000; world.size()], &x, &mut all)?;
                cuda.download(&all)?;
            }
            Ok(())
        });
        planned.check(outcome, &format!("by {transport}"));
    }
}

/// A rank fails while operations of others wait on their GPUs, and these ranks learn of it elsewhere. They end with
/// its error, not with an error of their GPUs.
#[test]
fn a_rank_that_fails_ends_those_who_hear_of_it_from_others() {
    for transport in transports() {
        let Some(gpus) = several() else { return };
        let planned = PlannedFailure::default();
        let outcome = threads::run(gpus.len(), deadline(), |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = connect(cuda, world, transport)?;
            let mut x = cuda.zeros(Shape::new(1000, 64), Dtype::F32)?;
            world.all_reduce(&mut x)?;
            world.barrier()?;
            if world.rank() == 1 {
                return Err(planned.now());
            }
            world.all_reduce(&mut x)?;
            world.barrier()?;
            Ok(())
        });
        planned.check(outcome, &format!("by {transport}"));
    }
}

/// A rank fails while CUDA graphs of others wait for its rows, and for a sum after them.
#[test]
fn a_rank_that_fails_ends_graphs_that_wait_for_it() {
    let optimizer = AdamStep { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: true, step: 1 };
    let inputs = StepInputs { keys: Vec::new(), optimizer };
    for (transport, sums) in transports().into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let Some(gpus) = several() else { return };
        let planned = PlannedFailure::default();
        let outcome = threads::run(gpus.len(), deadline(), |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = connect(cuda, world, transport)?;
            let mut x = cuda.zeros(Shape::new(1000, 64), Dtype::F32)?;
            let mut all = cuda.zeros(Shape::new(1000 * world.size(), 64), Dtype::F32)?;
            let mut recording = <Cuda as Backend>::Recording::default();
            for round in 0..8 {
                if round == 6 && world.rank() == 1 {
                    return Err(planned.now());
                }
                cuda.repeat(&mut recording, &inputs, &mut || -> Result<(), Failure> {
                    world.all_gather(&vec![1000; world.size()], &x, &mut all)?;
                    if sums {
                        world.all_reduce(&mut x)?;
                    }
                    Ok(())
                })?;
                cuda.download(&all)?;
            }
            Ok(())
        });
        planned.check(outcome, &format!("by {transport}, sums {sums}"));
        assert!(gpus[0].n_repeated() >= 4, "{} steps were graphs", gpus[0].n_repeated());
    }
}

/// A rank does not arrive: the others wait until the deadline.
#[test]
fn a_rank_that_is_late_is_not_waited_for_without_end() {
    let deadline = Duration::from_secs(3);
    for transport in transports() {
        let Some(gpus) = several() else { return };
        let outcome = threads::run(gpus.len(), deadline, |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = NcclRank::connect(cuda, world, deadline, transport)?;
            let mut x = cuda.zeros(Shape::new(1000, 64), Dtype::F32)?;
            world.broadcast(0, &mut x)?;
            cuda.download(&x)?;
            if world.rank() == 1 {
                std::thread::sleep(Duration::from_secs(8));
                return Ok(());
            }
            world.broadcast(0, &mut x)?;
            world.all_reduce(&mut x)?;
            cuda.download(&x)?;
            Ok(())
        });
        let failure = outcome.expect_err("a rank was late");
        assert!(failure.message.contains("within 3 s"), "{} by {transport}", failure.message);
    }
}
