//! Common test suite of all backends: each operation on random small cases, compared with [`Reference`].
//!
//! - [`check_backend`]: results agree within a stated error, and what a backend itself refuses has the same messages.
//! - [`check_thread_independence`]: the same bits with one, two and three threads, for backends that compute on the
//!   host.
//! - [`cpus`]: the CPU with each of its instruction sets.
//!
//! A [`Law`] tests an operation: it draws cases, and runs them on any backend. Cases shrink, and are the same in
//! every run. A new operation needs a new law in `passes`, `functions`, `products`, `heads`, `relations`, `segments` or `ranking`, and a line
//! in [`visit_laws`].

mod functions;
mod heads;
mod inputs;
mod law;
mod optim;
mod passes;
mod piece;
mod products;
mod ranking;
mod refusals;
mod relations;
mod segments;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use girih_machine::Hierarchy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rayon::ThreadPoolBuilder;

use self::law::{Law, Results};
pub use self::piece::{PIECE, piece};
use crate::prelude::*;
use crate::{Cpu, Reference};

/// Number of random cases for each law.
const CASES: u32 = 128;
/// Maximum number of rows of cases compared with the reference: a few chunks of the backends' division of work.
const ROWS_MAX: usize = 600;
/// Number of cases and rows for comparisons between numbers of threads, which need many chunks.
const THREAD_CASES: u32 = 12;
const THREAD_ROWS_MAX: usize = 4_000;

/// Visitor of all laws.
trait Visitor {
    fn visit<L: Law>(&self);
}

fn visit_laws(visitor: &impl Visitor) {
    visitor.visit::<products::Gemm>();
    visitor.visit::<products::GemmPair>();
    visitor.visit::<products::GemmOfRows>();
    visitor.visit::<products::Spmm>();
    visitor.visit::<products::SpmmColumns>();
    visitor.visit::<passes::Storage>();
    visitor.visit::<passes::EpilogueBackward>();
    visitor.visit::<passes::Masked>();
    visitor.visit::<passes::AddScaled>();
    visitor.visit::<passes::ScaleRows>();
    visitor.visit::<passes::Rows>();
    visitor.visit::<passes::Columns>();
    visitor.visit::<passes::NormalizeRows>();
    visitor.visit::<passes::NormalizeColumns>();
    visitor.visit::<passes::CopyBlock>();
    visitor.visit::<passes::Activate>();
    visitor.visit::<functions::Apply>();
    visitor.visit::<functions::Reshape>();
    visitor.visit::<functions::UnitCircle>();
    visitor.visit::<heads::Entries>();
    visitor.visit::<heads::HeadDots>();
    visitor.visit::<heads::AttentionLaw>();
    visitor.visit::<passes::SoftmaxLoss>();
    visitor.visit::<passes::SigmoidLoss>();
    visitor.visit::<optim::Adam>();
    visitor.visit::<optim::StepsOnRows>();
    visitor.visit::<optim::Sgd>();
    visitor.visit::<ranking::Scaled>();
    visitor.visit::<ranking::BprLoss>();
    visitor.visit::<ranking::L2Penalty>();
    visitor.visit::<ranking::TopK>();
    visitor.visit::<relations::Runs>();
    visitor.visit::<relations::Bases>();
    visitor.visit::<segments::SegmentMax>();
    visitor.visit::<segments::SegmentLstm>();
}

/// Backends on the CPU, one for each instruction set of this machine, the best one first. They choose panels of sparse
/// products as on a machine with the given caches.
pub fn cpus(caches: &Hierarchy) -> impl Iterator<Item = Cpu> {
    Cpu::of_instruction_sets(caches)
}

/// Compares every operation of `backend` with [`Reference`], and continues after an operation that differs.
///
/// # Panics
/// When operations differ beyond their tolerance. Each panics with its smallest case, and the last message lists all.
pub fn check_backend<B: Backend>(backend: &B) {
    Differential { backend, in_parts: false, failed: RefCell::default() }.check();
}

/// As [`check_backend`], but for a backend that adds up partial sparse products, each stored like the result.
///
/// # Panics
/// As [`check_backend`].
pub fn check_backend_in_parts<B: Backend>(backend: &B) {
    Differential { backend, in_parts: true, failed: RefCell::default() }.check();
}

struct Differential<'a, B> {
    backend: &'a B,
    in_parts: bool,
    failed: RefCell<Vec<&'static str>>,
}

impl<B: Backend> Differential<'_, B> {
    fn check(self) {
        visit_laws(&self);
        let failed = self.failed.into_inner();
        assert!(failed.is_empty(), "differ from the reference: {}", failed.join(", "));
        refusals::check(self.backend);
    }
}

impl<B: Backend> Visitor for Differential<'_, B> {
    fn visit<L: Law>(&self) {
        let compare_cases = || {
            for_cases::<L>(CASES, ROWS_MAX, |case| {
                if piece([()]).next().is_none() {
                    return;
                }
                let (found, expected) = (L::run(self.backend, case), L::run(&Reference, case));
                let tolerance = if self.in_parts { L::tolerance_of_parts(case) } else { L::tolerance(case) };
                compare(L::NAME, tolerance, &found, &expected);
            });
        };
        if catch_unwind(AssertUnwindSafe(compare_cases)).is_err() {
            self.failed.borrow_mut().push(L::NAME);
        }
    }
}

/// Compares the bits of every operation of `backend` on one, two and three threads of rayon.
///
/// # Panics
/// At the first difference.
pub fn check_thread_independence<B: Backend>(backend: &B) {
    struct Threads<'a, B>(&'a B);
    impl<B: Backend> Visitor for Threads<'_, B> {
        fn visit<L: Law>(&self) {
            let pools = [1, 2, 3].map(|n| ThreadPoolBuilder::new().num_threads(n).build().expect("a thread pool"));
            for_cases::<L>(THREAD_CASES, THREAD_ROWS_MAX, |case| {
                let [one, two, three] = pools.each_ref().map(|pool| bits(&pool.install(|| L::run(self.0, case))));
                assert!(one == two, "{}: two threads leave other bits than one", L::NAME);
                assert!(one == three, "{}: three threads leave other bits than one", L::NAME);
            });
        }
    }
    visit_laws(&Threads(backend));
}

fn for_cases<L: Law>(n_cases: u32, rows_max: usize, check: impl Fn(&L::Case)) {
    let config = Config { cases: n_cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&L::cases(rows_max), |case| {
        check(&case);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{}: {failure}", L::NAME));
}

fn compare(law: &str, tolerance: f64, found: &Results, expected: &Results) {
    assert_eq!(found.len(), expected.len());
    for (output, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (values, wanted) = (&found.values, &expected.values);
        assert_eq!((values.n_rows(), values.n_cols()), (wanted.n_rows(), wanted.n_cols()), "{law}: shape");
        for (at, (&value, &wanted)) in values.data().iter().zip(wanted.data()).enumerate() {
            let (error, size) = (f64::from(value - wanted).abs(), f64::from(wanted).abs());
            // One step of bf16, in case the two results round to different sides.
            let step = if expected.rounded { size / 128.0 } else { 0.0 };
            let limit = tolerance * (1.0 + size) + step;
            let (row, column) = (at / values.n_cols(), at % values.n_cols());
            assert!(
                error <= limit,
                "{law}: result {output} at row {row}, column {column} is {value}, expected {wanted} within {limit:e}"
            );
        }
    }
}

fn bits(results: &Results) -> Vec<Vec<u32>> {
    results.iter().map(|output| output.values.data().iter().map(|value| value.to_bits()).collect()).collect()
}
