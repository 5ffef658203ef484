//! Programs of a simulated rank: a trainer, and a loader ahead of it.

use super::ranks::Steps;
use super::*;

/// Rank of a group.
type Rank<'r> = &'r dyn Collective<Cpu>;

/// Matrix of two columns, whose elements are `value(index)`.
fn uploaded(rows: usize, value: impl Fn(usize) -> usize) -> <Cpu as Memory>::Matrix {
    let values: Vec<f32> = (0..2 * rows).map(|i| value(i) as f32).collect();
    static CPU: LazyLock<Cpu> = LazyLock::new(Cpu::new);
    CPU.upload(&Matrix::new(rows, 2, values).expect("whole rows"), Dtype::F32).expect("memory")
}

/// Checks the elements of a matrix against `value(index)`.
fn check(matrix: &<Cpu as Memory>::Matrix, value: impl Fn(usize) -> usize) {
    let found = matrix.bytes().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    found.enumerate().for_each(|(i, found)| assert_eq!(found, value(i) as f32, "a wrong value"));
}

/// Trainer of a rank: calls every collective on all ranks or on groups, after the loader's step.
pub(super) fn train(link: SimLink) -> Result<(), CommError> {
    let steps = Steps { node: Arc::clone(&link.node), thread: TRAINER };
    let world: Box<dyn Collective<Cpu>> = Box::new(Communicator::new(link));
    let (rank, n) = (world.rank(), world.size());
    let halves = world.split(rank % 2, n - rank)?;
    for step in 0..STEPS {
        steps.wait_for(LOADER, step + 1)?;
        let mut sums = uploaded(3, |i| i + rank);
        world.all_reduce(&mut sums)?;
        check(&sums, |i| n * i + n * (n - 1) / 2);
        group_step(&*halves)?;
        let mut told = uploaded(2, |i| i + 10 * rank);
        let root = step as usize % n;
        world.broadcast(root, &mut told)?;
        check(&told, |i| i + 10 * root);
        // This group exists for one step only.
        let pair = world.split(rank / 2, rank)?;
        for (place, message) in pair.all_gather_bytes(&[rank as u8])?.iter().enumerate() {
            let other = rank / 2 * 2 + place;
            let found = Payload::new(message, other, "all-gather of messages").exactly::<u8>(1)?;
            assert_eq!(usize::from(found[0]), other, "a wrong value");
        }
        steps.done(step + 1);
    }
    world.barrier()
}

/// Collectives in which every member has one row for each member.
fn group_step(group: Rank<'_>) -> Result<(), CommError> {
    let (place, n) = (group.rank(), group.size());
    let rows = vec![1; n];
    let mut own = uploaded(1, |_| 0);
    group.reduce_scatter(&rows, &uploaded(n, |i| i * place), &mut own)?;
    let sum = n * (n - 1) / 2;
    check(&own, |i| (2 * place + i) * sum);
    let (mut all, mut others) = (uploaded(n, |_| 0), uploaded(n - 1, |_| 0));
    group.all_gather(&rows, &own, &mut all)?;
    check(&all, |i| i * sum);
    group.gather_others(&rows, &own, &mut others)?;
    check(&others, |i| (if i < 2 * place { i } else { i + 2 }) * sum);
    let mut back = uploaded(n, |_| 0);
    group.all_to_all(&rows, &uploaded(n, |i| 100 * place + i / 2), &rows, &mut back)?;
    check(&back, |i| 100 * (i / 2) + place);
    Ok(())
}

/// Loader of a rank, ahead of the trainer: all-to-all of messages of various lengths.
pub(super) fn load(link: SimLink) -> Result<(), CommError> {
    let steps = Steps { node: Arc::clone(&link.node), thread: LOADER };
    let world: Box<dyn Collective<Cpu>> = Box::new(Communicator::new(link));
    let (rank, n) = (world.rank(), world.size());
    for step in 0..STEPS {
        steps.wait_for(TRAINER, (step + 1).saturating_sub(AHEAD))?;
        let messages = (0..n).map(|to| vec![(rank + to) as u8; 1 + 700 * (to + step as usize)].into()).collect();
        for (from, message) in world.all_to_all_bytes(messages)?.iter().enumerate() {
            // The sender is free to choose the length, so only the content is checked.
            assert!(message.iter().take(1).all(|&byte| usize::from(byte) == from + rank), "a wrong value");
        }
        steps.done(step + 1);
    }
    Ok(())
}
