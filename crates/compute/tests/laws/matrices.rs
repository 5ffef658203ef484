//! Matrices of the CPU whose values have few bits, so that sums in `f64` are exact and only storage causes errors.

use girih_compute::cpu::CpuMatrix;
use std::sync::LazyLock;

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Shape};
use girih_graph_format::Matrix;
use proptest::prelude::*;

/// Backend on the CPU, detected once.
pub(crate) static CPU: LazyLock<Cpu> = LazyLock::new(Cpu::new);

/// Value of a seed, a multiple of 1/16 between -2 and 2.
pub(crate) fn value(seed: usize) -> f32 {
    (seed.wrapping_mul(2_654_435_761) >> 7 & 0x3f) as f32 / 16.0 - 2.0
}

/// Matrix of the values of consecutive seeds.
pub(crate) fn matrix(shape: Shape, dtype: Dtype, seed: usize) -> CpuMatrix {
    of_values(shape, dtype, (0..shape.len()).map(|i| value(i + seed)).collect())
}

/// Matrix with the given elements, row by row.
pub(crate) fn of_values(shape: Shape, dtype: Dtype, values: Vec<f32>) -> CpuMatrix {
    CPU.upload(&Matrix::new(shape.rows, shape.cols, values).unwrap(), dtype).unwrap()
}

/// Elements of a matrix, row by row.
pub(crate) fn values(matrix: &CpuMatrix) -> Vec<f32> {
    CPU.download(matrix).unwrap().data().to_vec()
}

/// Bits of the elements of a matrix.
pub(crate) fn bits(matrix: &CpuMatrix) -> Vec<u32> {
    values(matrix).into_iter().map(f32::to_bits).collect()
}

pub(crate) fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)]
}

#[test]
fn results_are_written_into_memory_of_another_owner() {
    /// Memory that outlives the matrix over it.
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<f32>>>, Vec<f32>);
    impl AsRef<[f32]> for Shared {
        fn as_ref(&self) -> &[f32] {
            &self.1
        }
    }
    impl AsMut<[f32]> for Shared {
        fn as_mut(&mut self) -> &mut [f32] {
            &mut self.1
        }
    }
    impl Drop for Shared {
        fn drop(&mut self) {
            self.0.lock().unwrap().clone_from(&self.1);
        }
    }

    let shape = Shape::new(3, 5);
    let seen = std::sync::Arc::default();
    let x = matrix(shape, Dtype::F32, 1);
    let mut out = CpuMatrix::over(shape, Shared(std::sync::Arc::clone(&seen), vec![f32::NAN; 15])).unwrap();
    CPU.scale(2.0, &x, &mut out).unwrap();
    let copy = out.clone();
    CPU.set_zero(&mut out).unwrap();
    drop(out);
    assert_eq!(*seen.lock().unwrap(), vec![0.0; 15], "the owner has the last result");
    assert_eq!(values(&copy), values(&x).iter().map(|x| 2.0 * x).collect::<Vec<_>>(), "a clone is a copy");

    let error = CpuMatrix::over(Shape::new(2, 4), vec![0.0; 7]).unwrap_err();
    assert!(error.to_string().contains("7 elements for a 2 × 4 matrix"), "{error}");
}
