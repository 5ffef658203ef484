//! [`Half`]: features in 16 bits, as `f16` or `bf16`.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use crate::codec::{assert_lengths, check_finite};
use crate::{CodecSpec, FeatureCodec, Refused};

/// Codec that rounds every feature to 16 bits, to the nearest, ties to even. Two bytes per feature, low byte first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Half {
    width: usize,
    kind: Kind,
}

/// Number of features that are converted at a time: CPUs convert several per instruction, and each call checks for
/// it.
const CONVERTED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F16,
    Bf16,
}

impl Half {
    /// Makes a codec; `spec` is F16 or Bf16.
    pub(crate) fn new(spec: CodecSpec, width: usize) -> Self {
        Self { width, kind: if spec == CodecSpec::Bf16 { Kind::Bf16 } else { Kind::F16 } }
    }

    #[inline]
    fn encode(&self, value: f32) -> u16 {
        match self.kind {
            Kind::F16 => f16::from_f32(value).to_bits(),
            Kind::Bf16 => bf16::from_f32(value).to_bits(),
        }
    }

    /// Calls `visit` with each element of `out` and the decoded feature of its column.
    #[inline]
    fn for_each(&self, code: &[u8], out: &mut [f32], visit: impl Fn(&mut f32, f32)) {
        let (mut halves, mut values) = ([0u16; CONVERTED], [0.0f32; CONVERTED]);
        for (out, code) in out.chunks_mut(CONVERTED).zip(code.chunks(2 * CONVERTED)) {
            let bits = code.chunks_exact(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
            halves.iter_mut().zip(bits).for_each(|(half, bits)| *half = bits);
            match self.kind {
                Kind::F16 => halves.reinterpret_cast::<f16>().convert_to_f32_slice(&mut values),
                Kind::Bf16 => halves.reinterpret_cast::<bf16>().convert_to_f32_slice(&mut values),
            }
            out.iter_mut().zip(values).for_each(|(out, value)| visit(out, value));
        }
    }
}

impl FeatureCodec for Half {
    fn spec(&self) -> CodecSpec {
        match self.kind {
            Kind::F16 => CodecSpec::F16,
            Kind::Bf16 => CodecSpec::Bf16,
        }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row_bytes(&self) -> usize {
        2 * self.width
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        assert_lengths(self, row.len(), code.len());
        check_finite(row)?;
        // All bits of the exponent are set: the finite value was rounded to an infinity.
        let infinite = if self.kind == Kind::F16 { 0x7c00 } else { 0x7f80 };
        for (column, (&value, code)) in row.iter().zip(code.chunks_exact_mut(2)).enumerate() {
            let bits = self.encode(value);
            if bits & 0x7fff == infinite {
                let expected = "it is beyond the range of 16 bits, scale the features or take another codec";
                return Err(Refused { column, value, expected });
            }
            code.copy_from_slice(&bits.to_le_bytes());
        }
        Ok(())
    }

    fn decode_row(&self, code: &[u8], row: &mut [f32]) {
        assert_lengths(self, row.len(), code.len());
        self.for_each(code, row, |row, value| *row = value);
    }

    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]) {
        assert_lengths(self, sum.len(), code.len());
        self.for_each(code, sum, |sum, value| *sum += weight * value);
    }

    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
}
