//! Features and labels that depend on the community.
//!
//! A feature row is the centre of the node's class plus noise of variance one. The noise is the sum of four random
//! bytes, standardised. It is close to normal (excess kurtosis −0.3, 1021 levels within ±3.5), takes one Philox block
//! for four values, and needs no logarithm or cosine.
//!
//! With latent factors, half of the variance comes from a few numbers of the node, spread over all features: `√½·ε +
//! √½·Λᵀz`. Factor `r` has a fraction of the variance that falls as `1 / (r + 1)`. So the spectrum of the features
//! falls as that of learned embeddings does. Centres are drawn as the noise is: classes differ in a factor as two
//! nodes do. Features of stray nodes belong to another class than those of their neighbors.

use girih_compress::{CodecSpec, CompressError, CompressedFeatures, RowSource};
use girih_graph_format::Matrix;
use girih_random::{Key, bounded, unit_f32};
use rayon::prelude::*;

use super::decision::{Decision, Keys};
use super::population::Population;
use super::recipes::{Labelled, PlantedSettings};
use crate::{DatasetError, Features, Labels, UNLABELLED};

/// Approximate number of values that one task fills.
const TASK_VALUES: usize = 1 << 16;
/// Preference of a community for a class, where nodes have several classes: the fraction of preferred classes, and
/// the probability that a member has a preferred or another class.
const LIKED: f32 = 0.1;
const LIKED_PROBABILITY: f32 = 0.8;
const OTHER_PROBABILITY: f32 = 0.02;

/// Features of every node, or of every node of a type, made on reading.
pub(super) struct Rows<'a> {
    width: usize,
    community: &'a [u32],
    centres: Vec<f32>,
    latent: Option<Latent>,
    key: Key,
    /// Fraction of stray nodes, and the random key of their choice.
    stray: (f64, Key),
}

impl<'a> Rows<'a> {
    /// Features of some columns, at least one. Centres and loadings are the same for all types.
    pub(super) fn new(settings: &PlantedSettings, width: usize, keys: Keys, community: &'a [u32]) -> Self {
        let latent = (settings.factors > 0).then(|| Latent::new(settings, width, keys));
        let centres = centres(settings, width, latent.as_ref());
        let stray = (settings.stray, keys.key(Decision::Stray));
        Self { width, community, centres, latent, key: keys.key(Decision::Feature), stray }
    }

    /// Number of the centre around which a node's features lie.
    fn centre(&self, v: usize) -> usize {
        let (n_centres, (stray, key)) = (self.centres.len() / self.width, self.stray);
        drawn_instead(key, v, stray, n_centres).unwrap_or(self.community[v] as usize % n_centres)
    }

    /// All rows, as codes if a codec and its seed are given; then only a few rows are in memory at a time.
    pub(super) fn stored(&self, codec: Option<(CodecSpec, u64)>) -> Result<Features, DatasetError> {
        match codec {
            None => self.dense(),
            Some((spec, seed)) => Ok(Features::Compressed(CompressedFeatures::fitted(spec, self, seed)?)),
        }
    }

    /// Makes all rows at once.
    fn dense(&self) -> Result<Features, DatasetError> {
        let task_rows = (TASK_VALUES / self.width).max(1);
        let mut values = vec![0.0; self.community.len() * self.width];
        values
            .par_chunks_mut(task_rows * self.width)
            .enumerate()
            .try_for_each(|(task, rows)| self.read_rows(task * task_rows, rows))?;
        Ok(Features::Dense(Matrix::new(self.community.len(), self.width, values)?))
    }
}

impl RowSource for Rows<'_> {
    fn n_rows(&self) -> usize {
        self.community.len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        let width = self.width;
        for (v, row) in (first_row..).zip(rows.chunks_exact_mut(width)) {
            let centre = self.centre(v) * width;
            noise_row(self.key, v as u64, row);
            if let Some(latent) = &self.latent {
                latent.mix_into(latent.of_nodes, v as u64, row);
            }
            row.iter_mut().zip(&self.centres[centre..centre + width]).for_each(|(value, centre)| *value += centre);
        }
        Ok(())
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        let mut hash = crc32fast::Hasher::new();
        hash.update(bytemuck::cast_slice(self.community));
        hash.update(bytemuck::cast_slice(&self.centres));
        hash.update(&self.stray.0.to_le_bytes());
        hash.update(bytemuck::cast_slice(self.latent.as_ref().map_or(&[], |latent| &latent.loadings[..])));
        Ok(u64::from(self.key.block(0, 0)[0]) << 32 | u64::from(hash.finalize()))
    }
}

/// Centre of each class, or of each community where nodes have several classes.
fn centres(settings: &PlantedSettings, width: usize, latent: Option<&Latent>) -> Vec<f32> {
    let n_centres = if settings.multi_label { settings.communities } else { settings.classes };
    let scale = (settings.signal / (width as f64).sqrt()) as f32;
    let mut centres = vec![0.0; n_centres * width];
    let key = Decision::Centre.key(settings.seed);
    let of_centres = Decision::CentreLatent.key(settings.seed);
    centres.par_chunks_mut(width).enumerate().for_each(|(centre, row)| {
        noise_row(key, centre as u64, row);
        if let Some(latent) = latent {
            latent.mix_into(of_centres, centre as u64, row);
        }
        row.iter_mut().for_each(|value| *value *= scale);
    });
    centres
}

/// Latent factors that the noise of all features has in common.
struct Latent {
    /// Random key of the factors of nodes.
    of_nodes: Key,
    width: usize,
    /// Loading of each feature on each factor, `factors × width`.
    loadings: Vec<f32>,
    n_factors: usize,
}

impl Latent {
    fn new(settings: &PlantedSettings, width: usize, keys: Keys) -> Self {
        let n_factors = settings.factors;
        let key = Decision::Loading.key(settings.seed);
        let total: f64 = (1..=n_factors).map(|r| 1.0 / r as f64).sum();
        let mut loadings = vec![0.0; n_factors * width];
        for (r, row) in loadings.chunks_mut(width).enumerate() {
            noise_row(key, r as u64, row);
            let scale = (1.0 / ((r + 1) as f64 * total)).sqrt() as f32;
            row.iter_mut().for_each(|value| *value *= scale);
        }
        Self { of_nodes: keys.key(Decision::Latent), width, loadings, n_factors }
    }

    /// Replaces half of a row's variance by that of the factors that `key` draws for it.
    fn mix_into(&self, key: Key, row_idx: u64, row: &mut [f32]) {
        const HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
        let mut factors = vec![0.0; self.n_factors];
        noise_row(key, row_idx, &mut factors);
        row.iter_mut().for_each(|value| *value *= HALF);
        for (factor, loadings) in factors.iter().zip(self.loadings.chunks(self.width)) {
            let factor = HALF * factor;
            row.iter_mut().zip(loadings).for_each(|(value, loading)| *value += factor * loading);
        }
    }
}

/// Fills a row with noise of mean zero and variance one; `row_idx` is its place in the counter.
fn noise_row(key: Key, row_idx: u64, row: &mut [f32]) {
    for (block, values) in row.chunks_mut(4).enumerate() {
        let words = key.block(row_idx, block as u64);
        for (value, word) in values.iter_mut().zip(words) {
            *value = noise(word);
        }
    }
}

/// Sum of four random bytes, standardised.
#[inline]
fn noise(word: u32) -> f32 {
    const MEAN: f32 = 510.0; // 4 × 255 / 2
    const INVERSE_DEVIATION: f32 = 0.006_765_824; // 1 / √(4 × (256² − 1) / 12)
    let halves = (word & 0x00ff_00ff) + (word >> 8 & 0x00ff_00ff);
    let sum = (halves & 0xffff) + (halves >> 16);
    (sum as f32 - MEAN) * INVERSE_DEVIATION
}

/// Draws one of `n` for a fraction `share` of all nodes; `None` for the others.
fn drawn_instead(key: Key, v: usize, share: f64, n: usize) -> Option<usize> {
    let words = key.block(v as u64, 0);
    let is_drawn = f64::from(unit_f32(words[0])) < share;
    is_drawn.then(|| bounded(u64::from(words[1]) << 32 | u64::from(words[2]), n as u64) as usize)
}

/// Labels of every node: the class of its community, except for noise; or several classes, by the community's
/// preferences.
pub(super) fn labels(settings: &PlantedSettings, keys: Keys, community: &[u32]) -> Result<Labels, DatasetError> {
    let key = keys.key(Decision::Label);
    let n_classes = settings.classes;
    if settings.multi_label {
        return multi_labels(settings, community, key);
    }
    let class = |(v, &community): (usize, &u32)| {
        drawn_instead(key, v, settings.noise, n_classes).unwrap_or(community as usize % n_classes) as u32
    };
    let classes = community.par_iter().enumerate().with_min_len(1 << 12).map(class).collect();
    Ok(Labels::Single { n_classes, classes })
}

/// Classes of nodes of which some have no label: single labels, given those of all nodes of a population.
pub(super) fn known(labels: Labels, labelled: Labelled, nodes: &Population, keys: Keys) -> Labels {
    let Labels::Single { n_classes, mut classes } = labels else { return labels };
    match labelled {
        Labelled::Share(share) => {
            let key = keys.key(Decision::Unlabelled);
            let unlabelled = |&(v, _): &(usize, &mut u32)| drawn_instead(key, v, 1.0 - share, 1).is_some();
            let of_nodes = classes.par_iter_mut().enumerate().with_min_len(1 << 12);
            of_nodes.filter(unlabelled).for_each(|(_, class)| *class = UNLABELLED);
        }
        Labelled::Hubs(share) => {
            let mut known = vec![UNLABELLED; classes.len()];
            for v in nodes.hubs((share * classes.len() as f64).round() as usize) {
                known[v as usize] = classes[v as usize];
            }
            classes = known;
        }
    }
    Labels::Single { n_classes, classes }
}

fn multi_labels(settings: &PlantedSettings, community: &[u32], key: Key) -> Result<Labels, DatasetError> {
    let n_classes = settings.classes;
    let taste = Decision::Taste.key(settings.seed);
    let mut targets = vec![0.0; community.len() * n_classes];
    targets.par_chunks_mut(n_classes).zip(community).enumerate().for_each(|(v, (row, &community))| {
        let (mut own, mut shared) = (key.stream(v as u64, 0), taste.stream(u64::from(community), 0));
        for target in row {
            let probability = if shared.unit_f32() < LIKED { LIKED_PROBABILITY } else { OTHER_PROBABILITY };
            *target = f32::from(u8::from(own.unit_f32() < probability));
        }
    });
    Ok(Labels::Multi { n_classes, targets: Matrix::new(community.len(), n_classes, targets)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_standardised() {
        let mut row = vec![0.0; 400_000];
        noise_row(Key::new(1, 1), 0, &mut row);
        let moment = |k: i32| row.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / row.len() as f64;
        // Standard errors are 0.0016 for the mean, 0.0021 for the variance and about 0.01 for the kurtosis.
        assert!(moment(1).abs() < 0.008, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.01, "{}", moment(2));
        assert!((moment(4) - 2.7).abs() < 0.05, "{}", moment(4));
    }
}
