//! [`Quantized`]: features as levels between the extremes of their group, in 8 or 4 bits.
//!
//! ```text
//! int8   │ low f32 │ step f32 │ 256 levels, a byte each             │ next group …     value ≈ low + level · step
//! int4   │ low f32 │ step f32 │ 64 levels, two a byte, first in the low half │ …
//! ```

use crate::codec::{assert_lengths, check_finite};
use crate::groups::{Levels, SCALE_BYTES};
use crate::{CodecSpec, FeatureCodec, Refused};

/// Largest magnitude of a feature: the rounded range of a group stays finite.
const MAGNITUDE_MAX: f32 = f32::MAX / 4.0;

/// Codec with levels and one scale for each group of a row; the last group may be shorter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantized {
    width: usize,
    levels: Levels,
}

impl Quantized {
    /// Makes a codec; `spec` is Int4 or Int8.
    pub(crate) fn new(spec: CodecSpec, width: usize) -> Self {
        Self { width, levels: if spec == CodecSpec::Int4 { Levels::Int4 } else { Levels::Int8 } }
    }

    /// Calls `visit` with each element of `out` and the decoded feature of its column.
    #[inline]
    fn for_each(&self, code: &[u8], out: &mut [f32], visit: impl Fn(&mut f32, f32)) {
        let group = self.levels.group();
        for (out, code) in out.chunks_mut(group).zip(code.chunks(self.levels.group_bytes(group))) {
            let (scale, levels) = code.split_at(SCALE_BYTES);
            let (low, step) = (float(&scale[..4]), float(&scale[4..]));
            let value = |level: u8| low + f32::from(level) * step;
            match self.levels {
                Levels::Int8 => out.iter_mut().zip(levels).for_each(|(out, &level)| visit(out, value(level))),
                Levels::Int4 => {
                    let levels = levels.iter().flat_map(|pair| [pair & 15, pair >> 4]);
                    out.iter_mut().zip(levels).for_each(|(out, level)| visit(out, value(level)));
                }
            }
        }
    }
}

impl FeatureCodec for Quantized {
    fn spec(&self) -> CodecSpec {
        match self.levels {
            Levels::Int8 => CodecSpec::Int8,
            Levels::Int4 => CodecSpec::Int4,
        }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row_bytes(&self) -> usize {
        self.levels.row_bytes(self.width)
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        assert_lengths(self, row.len(), code.len());
        check_finite(row)?;
        let group = self.levels.group();
        for (g, (values, code)) in row.chunks(group).zip(code.chunks_mut(self.levels.group_bytes(group))).enumerate() {
            let (low, high) = values.iter().fold((f32::MAX, f32::MIN), |(low, high), &v| (low.min(v), high.max(v)));
            if let Some(i) = values.iter().position(|v| v.abs() > MAGNITUDE_MAX) {
                let expected = "levels between values so large are beyond float32, scale the features";
                return Err(Refused { column: g * group + i, value: values[i], expected });
            }
            encode_group(self.levels, values, (low, high), code);
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

fn encode_group(kind: Levels, values: &[f32], (low, high): (f32, f32), code: &mut [u8]) {
    let step = (high - low) / kind.max();
    let (scale, levels) = code.split_at_mut(SCALE_BYTES);
    scale[..4].copy_from_slice(&low.to_le_bytes());
    scale[4..].copy_from_slice(&step.to_le_bytes());
    // A group of equal values has the step zero, and any level decodes to its value.
    let inverse = if step == 0.0 { 0.0 } else { 1.0 / f64::from(step) };
    let level = |value: f32| {
        let level = (f64::from(value) - f64::from(low)) * inverse;
        level.round_ties_even().min(f64::from(kind.max())) as u8
    };
    match kind {
        Levels::Int8 => levels.iter_mut().zip(values).for_each(|(out, &value)| *out = level(value)),
        Levels::Int4 => levels.iter_mut().zip(values.chunks(2)).for_each(|(out, pair)| {
            *out = level(pair[0]) | pair.get(1).map_or(0, |&value| level(value)) << 4;
        }),
    }
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
