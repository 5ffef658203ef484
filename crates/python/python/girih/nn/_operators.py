"""Operators `torch.ops.girih.…`: products and attention over a graph, with their gradients.

The graph is a tensor of one number (`Adjacency.handle`), and sizes of results are those of empty tensors (`Adjacency.rows`,
`columns`), so that compiled code serves any graph. Operators are functional and deterministic. Operands are float32; on GPUs
also bfloat16.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _girih
from . import _cuda

_library = torch.library.Library("girih", "DEF")

_ATTENTION = "int heads, float slope, float dropout, str kind"
_SCHEMAS = {
    "spmm": "(Tensor x, Tensor? weights, Tensor graph, Tensor rows, Tensor columns, str kind, bool transpose) -> Tensor",
    "sddmm": "(Tensor x, Tensor y, Tensor graph, Tensor weights, str kind) -> Tensor",
    "attention": "(Tensor destination, Tensor source, Tensor? vector, Tensor values, Tensor graph, Tensor? key, "
    f"{_ATTENTION}) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor grad, Tensor out, Tensor log_sums, Tensor destination, Tensor source, Tensor? vector, "
    f"Tensor values, Tensor graph, Tensor? key, {_ATTENTION}) -> (Tensor, Tensor, Tensor, Tensor)",
}


def _array(tensor: Tensor | None):
    """Array over the memory of a tensor; of a copy where its rows do not follow each other."""
    return None if tensor is None else tensor.detach().contiguous().numpy()


def product(x: Tensor, graph: Tensor, kind: str, rows: int, transpose: bool, weights: Tensor | None = None) -> Tensor:
    """Product (rows, width) of an operand of a graph, given by its handle, with `x`, without autograd."""
    if x.is_cuda:
        return _cuda.product(x, graph, kind, rows, transpose, weights)
    out = torch.empty((rows, x.shape[1]), dtype=torch.float32)
    _girih.nn_spmm((graph.item(), kind), transpose, _array(weights), _array(x), out.numpy())
    return out


def _spmm(x, weights, graph, rows, columns, kind, transpose):
    return product(x, graph, kind, rows.shape[0], transpose, weights)


def _sddmm(x, y, graph, weights, kind):
    out = torch.empty(weights.shape, dtype=torch.float32)
    _girih.nn_sddmm((graph.item(), kind), _array(x), _array(y), out.numpy())
    return out


def _options(key, heads, slope, dropout):
    return heads, slope, dropout if key is not None else 0.0, 0 if key is None else key.item()


def _attention(destination, source, vector, values, graph, key, heads, slope, dropout, kind):
    out = torch.empty((destination.shape[0], values.shape[1]), dtype=torch.float32)
    log_sums = torch.empty((destination.shape[0], heads), dtype=torch.float32)
    operands = tuple(map(_array, (destination, source, vector, values)))
    _girih.nn_attention(
        (graph.item(), kind), _options(key, heads, slope, dropout), operands, (out.numpy(), log_sums.numpy())
    )
    return out, log_sums


def _cuda_attention(destination, source, vector, values, graph, key, heads, slope, dropout, kind):
    return _cuda.attention(_options(key, heads, slope, dropout), (destination, source, vector, values), graph, kind)


def _attention_backward(
    grad, out, log_sums, destination, source, vector, values, graph, key, heads, slope, dropout, kind
):
    operands = (destination, source, vector, values)
    grads = [None if operand is None else torch.empty(operand.shape, dtype=torch.float32) for operand in operands]
    _girih.nn_attention_backward(
        (graph.item(), kind),
        _options(key, heads, slope, dropout),
        tuple(map(_array, operands)),
        (_array(out), _array(log_sums), _array(grad)),
        tuple(None if made is None else made.numpy() for made in grads),
    )
    if vector is None:
        grads[2] = torch.empty(0)
    return tuple(grads)


def _cuda_attention_backward(
    grad, out, log_sums, destination, source, vector, values, graph, key, heads, slope, dropout, kind
):
    operands = (destination, source, vector, values)
    grads = _cuda.attention_backward(
        _options(key, heads, slope, dropout), operands, (out, log_sums, grad), graph, kind
    )
    if vector is None:
        grads[2] = values.new_empty(0)
    return tuple(grads)


def _fake_empty(rows, columns, like, dtype=None):
    """Result without values, laid out as the device of `like` does it."""
    if like.device.type == "cuda":
        return _cuda.empty(rows, columns, like, dtype)
    return like.new_empty((rows, columns), dtype=like.dtype if dtype is None else dtype)


def _fake_like(operand):
    return _fake_empty(operand.shape[0], operand.shape[1], operand)


def _fake_spmm(x, weights, graph, rows, columns, kind, transpose):
    return _fake_empty(rows.shape[0], x.shape[1], x)


def _fake_sddmm(x, y, graph, weights, kind):
    return _fake_like(weights)


def _fake_attention(destination, source, vector, values, graph, key, heads, slope, dropout, kind):
    rows = destination.shape[0]
    return _fake_empty(rows, values.shape[1], values), _fake_empty(rows, heads, values, torch.float32)


def _fake_attention_backward(grad, out, log_sums, destination, source, vector, values, *rest):
    of_vector = values.new_empty((0,)) if vector is None else _fake_like(vector)
    return _fake_like(destination), _fake_like(source), of_vector, _fake_like(values)


def _spmm_setup(ctx, inputs, output):
    x, weights, graph, rows, columns, *ctx.options = inputs
    # Only the gradient of weights reads x.
    ctx.save_for_backward(graph, rows, columns, weights, None if weights is None else x)


@once_differentiable
def _spmm_backward(ctx, grad):
    graph, rows, columns, weights, x = ctx.saved_tensors
    kind, transpose = ctx.options
    of_x = of_weights = None
    if ctx.needs_input_grad[0]:
        of_x = torch.ops.girih.spmm(grad, weights, graph, columns, rows, kind, not transpose)
    if ctx.needs_input_grad[1]:
        left, right = (x, grad) if transpose else (grad, x)
        of_weights = torch.ops.girih.sddmm(left, right, graph, weights, kind)
    return of_x, of_weights, None, None, None, None, None


def _attention_setup(ctx, inputs, output):
    destination, source, vector, values, graph, key, *ctx.options = inputs
    out, log_sums = output
    ctx.mark_non_differentiable(log_sums)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(out, log_sums, destination, source, vector, values, graph, key)


@once_differentiable
def _attention_grads(ctx, grad, _):
    if grad is None:
        return (None,) * 10
    grads = torch.ops.girih.attention_backward(grad, *ctx.saved_tensors, *ctx.options)
    of_destination, of_source, of_vector, of_values = grads
    of_vector = of_vector if ctx.needs_input_grad[2] else None
    return of_destination, of_source, of_vector, of_values, None, None, None, None, None, None


def _register(name, on_cpu, on_cuda, fake):
    _library.define(name + _SCHEMAS[name])
    _library.impl(name, on_cpu, "CPU")
    _library.impl(name, on_cuda, "CUDA")
    if hasattr(torch.library, "register_fake"):
        torch.library.register_fake(f"girih::{name}", fake, lib=_library)
    else:
        torch.library.impl_abstract(f"girih::{name}", fake, lib=_library)


def _register_autograd(name, backward, setup):
    if hasattr(torch.library, "register_autograd"):
        torch.library.register_autograd(f"girih::{name}", backward, setup_context=setup, lib=_library)
        return

    def forward(*inputs):
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.girih, name)(*inputs)

    methods = {"forward": forward, "setup_context": setup, "backward": backward}
    function = type(name, (torch.autograd.Function,), {key: staticmethod(method) for key, method in methods.items()})
    _library.impl(name, lambda *inputs: function.apply(*inputs), "Autograd")


_register("spmm", _spmm, _spmm, _fake_spmm)
_register("sddmm", _sddmm, _cuda.sddmm, _fake_sddmm)
_register("attention", _attention, _cuda_attention, _fake_attention)
_register("attention_backward", _attention_backward, _cuda_attention_backward, _fake_attention_backward)


class Spmm(torch.autograd.Function):
    """`torch.ops.girih.spmm` for tensors that are computed at once: a call costs half as much."""

    @staticmethod
    def forward(ctx, x, weights, graph, rows, columns, kind, transpose):
        _spmm_setup(ctx, (x, weights, graph, rows, columns, kind, transpose), None)
        return _spmm(x, weights, graph, rows, columns, kind, transpose)

    backward = staticmethod(_spmm_backward)


_register_autograd("spmm", _spmm_backward, _spmm_setup)
_register_autograd("attention", _attention_grads, _attention_setup)
