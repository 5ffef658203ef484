//! LSTM over one sequence after the other, step by step.

use girih_random::Key;

use super::{RefMatrix, RefSparse};
use crate::{GlobalIds, sequence};

/// Values of a step, kept for the backward pass. The gates are input, forget, cell and output.
struct Step {
    gates: [Vec<f64>; 4],
    memory: Vec<f64>,
    state: Vec<f64>,
}

/// Column ids of each row of `a`, in reading order.
pub(super) fn sequences(a: &RefSparse, order: Option<Key>) -> impl Iterator<Item = Vec<u32>> {
    (0..a.shape.rows).map(move |row| {
        let columns = a.entries[a.row(row)].iter().map(|entry| entry.col as u32);
        let mut sequence = Vec::new();
        sequence::read(order, GlobalIds::row(a.names.as_ref(), row as u32), columns, &mut sequence);
        sequence
    })
}

/// State after the last step; zeros for an empty sequence.
pub(super) fn last_state(sequence: &[u32], inputs: &RefMatrix, weight: &RefMatrix) -> Vec<f64> {
    steps(sequence, inputs, weight).pop().map_or_else(|| vec![0.0; weight.shape.rows], |step| step.state)
}

/// Adds the contribution of one sequence to the gradients `sums` of `inputs` and `weight`. `grad` is the gradient of
/// its last state.
pub(super) fn add_gradients(
    sequence: &[u32],
    (inputs, weight): (&RefMatrix, &RefMatrix),
    grad: Vec<f64>,
    sums: &mut (RefMatrix, RefMatrix),
) {
    let width = weight.shape.rows;
    let steps = steps(sequence, inputs, weight);
    let (mut state_grad, mut memory_grad) = (grad, vec![0.0; width]);
    for (t, step) in steps.iter().enumerate().rev() {
        let before = t.checked_sub(1).map(|t| &steps[t]);
        let gates_grad = gates_backward(step, before, &state_grad, &mut memory_grad);
        state_grad = vec![0.0; width];
        for (column, gate_grad) in gates_grad.into_iter().enumerate() {
            let source = sequence[t] as usize;
            sums.0.set(source, column, sums.0.get(source, column) + gate_grad);
            for k in 0..width {
                state_grad[k] += gate_grad * weight.get(k, column);
                let state = before.map_or(0.0, |before| before.state[k]);
                sums.1.set(k, column, sums.1.get(k, column) + gate_grad * state);
            }
        }
    }
}

/// Gradients of the inputs of all gates, gate by gate. `memory_grad` becomes the gradient of the memory before the
/// step.
fn gates_backward(step: &Step, before: Option<&Step>, state_grad: &[f64], memory_grad: &mut [f64]) -> Vec<f64> {
    let width = state_grad.len();
    let mut grads = vec![0.0; 4 * width];
    for k in 0..width {
        let [i, f, g, o] = [0, 1, 2, 3].map(|gate: usize| step.gates[gate][k]);
        let tanh = step.memory[k].tanh();
        let d_memory = memory_grad[k] + state_grad[k] * o * (1.0 - tanh * tanh);
        grads[k] = d_memory * g * i * (1.0 - i);
        grads[width + k] = d_memory * before.map_or(0.0, |before| before.memory[k]) * f * (1.0 - f);
        grads[2 * width + k] = d_memory * i * (1.0 - g * g);
        grads[3 * width + k] = state_grad[k] * tanh * o * (1.0 - o);
        memory_grad[k] = d_memory * f;
    }
    grads
}

/// All steps over a sequence.
fn steps(sequence: &[u32], inputs: &RefMatrix, weight: &RefMatrix) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for &source in sequence {
        steps.push(step(source as usize, steps.last(), inputs, weight));
    }
    steps
}

fn step(source: usize, before: Option<&Step>, inputs: &RefMatrix, weight: &RefMatrix) -> Step {
    let width = weight.shape.rows;
    let sum = |column: usize| {
        let recurrent = |before: &Step| (0..width).map(|k| before.state[k] * weight.get(k, column)).sum::<f64>();
        inputs.get(source, column) + before.map_or(0.0, recurrent)
    };
    let gate = |number: usize, activation: fn(f64) -> f64| -> Vec<f64> {
        (0..width).map(|k| activation(sum(number * width + k))).collect()
    };
    let gates = [gate(0, sigmoid), gate(1, sigmoid), gate(2, f64::tanh), gate(3, sigmoid)];
    let [i, f, g, o] = &gates;
    let kept = |k: usize| f[k] * before.map_or(0.0, |before| before.memory[k]);
    let memory: Vec<f64> = (0..width).map(|k| kept(k) + i[k] * g[k]).collect();
    let state = memory.iter().zip(o).map(|(c, o)| o * c.tanh()).collect();
    Step { gates, memory, state }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
