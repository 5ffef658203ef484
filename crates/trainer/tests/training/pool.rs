//! Pools of buffers reuse what fits, and keep no more than a step takes.

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Rates, Shape, Symbolic};
use girih_trainer::Pool;

#[test]
fn a_resizing_pool_allocates_only_for_larger_shapes() {
    let (cpu, mut pool) = (Cpu::new(), Pool::<Cpu>::resizing());
    let mut first = pool.take(&cpu, Shape::new(100, 8), Dtype::F32).unwrap();
    cpu.scale(1.0, &cpu.zeros(Shape::new(100, 8), Dtype::F32).unwrap(), &mut first).unwrap();
    pool.give(&cpu, first);
    for (shape, n_left) in [(Shape::new(60, 10), 0), (Shape::new(104, 8), 0), (Shape::new(150, 8), 1)] {
        let taken = pool.take(&cpu, shape, Dtype::F32).unwrap();
        assert_eq!((cpu.shape(&taken), cpu.download(&taken).unwrap().data().len()), (shape, shape.len()));
        assert_eq!(pool.n_free().0.values().sum::<usize>(), n_left, "{shape}");
        pool.give(&cpu, taken);
        pool.drop_unused();
        let rest: usize = pool.n_free().0.values().sum();
        assert_eq!(rest, 1, "{shape}: what was not taken is freed");
    }
}

#[test]
fn shapes_that_change_do_not_pile_up() {
    let symbolic = Symbolic::new(Rates { stream_bytes: 1e10, gather_bytes: 1e10, flops: 1e10 });
    let (constant, mut pool) = (Shape::new(100, 4), Pool::default());
    for step in 1..50 {
        for shape in [constant, Shape::new(step, 4)] {
            let matrix = pool.take(&symbolic, shape, Dtype::F32).unwrap();
            pool.give(&symbolic, matrix);
        }
        pool.drop_unused();
        assert_eq!(symbolic.cost().live_bytes, 16 * (100 + step as u64), "this step's alone");
    }
}
