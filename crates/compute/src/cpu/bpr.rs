//! Bayesian personalised ranking: a loss on the difference of a user's scores for a positive and a negative item.
//!
//! ```text
//! rows   u₀ … u_b  p₀ … p_b  n₀ … n_b      triple t: rows t, b + t and 2b + t
//! ```
//! Chunks of triples are independent; their losses are added in `f64`, in order.

use girih_machine::parallel;
use rayon::prelude::*;

use super::chunks::row_chunk_len;
use super::element::Element;

/// Mean loss of the triples in `rows`.
pub(crate) fn loss<R: Element>(rows: &[R], n_triples: usize) -> f64 {
    let Thirds { cols, users, met, others } = Thirds::of(rows, n_triples);
    let triples = users.par_chunks(cols).zip(met.par_chunks(cols)).zip(others.par_chunks(cols));
    let losses: Vec<f64> =
        triples.map(|((user, met), other)| f64::from(cross_entropy(ahead(user, met, other)))).collect();
    losses.iter().sum::<f64>() / n_triples as f64
}

/// Mean loss of the triples in `rows`, and its gradient with respect to them.
pub(crate) fn loss_with_grad<R: Element, G: Element>(rows: &[R], n_triples: usize, grad: &mut [G]) -> f64 {
    let Thirds { cols, users, met, others } = Thirds::of(rows, n_triples);
    let (user_grads, item_grads) = grad.split_at_mut(users.len());
    let (met_grads, other_grads) = item_grads.split_at_mut(users.len());
    let len = row_chunk_len(cols);
    let rows = users.chunks(len).zip(met.chunks(len)).zip(others.chunks(len));
    let grads = user_grads.chunks_mut(len).zip(met_grads.chunks_mut(len)).zip(other_grads.chunks_mut(len));
    let weight = 1.0 / n_triples as f32;
    let losses = parallel::map(rows.zip(grads), |(((users, met), others), ((user_grads, met_grads), other_grads))| {
        let rows = users.chunks_exact(cols).zip(met.chunks_exact(cols)).zip(others.chunks_exact(cols));
        let grads = user_grads.chunks_exact_mut(cols).zip(met_grads.chunks_exact_mut(cols));
        let grads = grads.zip(other_grads.chunks_exact_mut(cols));
        let triples = rows.zip(grads);
        triples.map(|(((u, p), n), ((du, dp), dn))| triple(weight, (u, p, n), (du, dp, dn))).sum::<f64>()
    });
    losses.iter().sum::<f64>() / n_triples as f64
}

/// Rows of triples by role (user, positive item, negative item), each `cols` wide.
struct Thirds<'a, R> {
    cols: usize,
    users: &'a [R],
    met: &'a [R],
    others: &'a [R],
}

impl<'a, R> Thirds<'a, R> {
    fn of(rows: &'a [R], n_triples: usize) -> Self {
        let (users, items) = rows.split_at(rows.len() / 3);
        let (met, others) = items.split_at(users.len());
        Self { cols: users.len() / n_triples, users, met, others }
    }
}

/// Loss of one triple. Its gradient times `weight` is written.
fn triple<R: Element, G: Element>(
    weight: f32,
    (user, met, other): (&[R], &[R], &[R]),
    (user_grad, met_grad, other_grad): (&mut [G], &mut [G], &mut [G]),
) -> f64 {
    let ahead = ahead(user, met, other);
    // The derivative of log(1 + exp(-x)) is -sigmoid(-x).
    let slope = -weight / (1.0 + ahead.exp());
    for c in 0..user.len() {
        let (u, p, n) = (user[c].to_f32(), met[c].to_f32(), other[c].to_f32());
        user_grad[c] = G::from_f32(slope * (p - n));
        met_grad[c] = G::from_f32(slope * u);
        other_grad[c] = G::from_f32(-slope * u);
    }
    f64::from(cross_entropy(ahead))
}

/// Score difference `⟨u, p - n⟩`.
fn ahead<R: Element>(user: &[R], met: &[R], other: &[R]) -> f32 {
    let items = met.iter().zip(other);
    user.iter().zip(items).map(|(u, (p, n))| u.to_f32() * (p.to_f32() - n.to_f32())).sum()
}

/// Returns `log(1 + exp(-x))`, stable for large `x` of either sign.
fn cross_entropy(x: f32) -> f32 {
    (-x).max(0.0) + (-x.abs()).exp().ln_1p()
}
