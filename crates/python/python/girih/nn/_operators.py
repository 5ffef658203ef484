"""Operators `torch.ops.girih.…`: products and attention over a graph, with their gradients.

The graph is a tensor of one number (`Adjacency.handle`), and sizes of results are those of empty tensors (`Adjacency.rows`,
`columns`), so that compiled code serves any graph. Operators are functional and deterministic. Operands are float32; on GPUs
also bfloat16.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _girih
from . import _cuda

_library: Any = torch.library.Library("girih", "DEF")  # type: ignore[no-untyped-call,unused-ignore]

_ATTENTION = "int heads, float slope, float dropout, str kind"
_SCHEMAS = {
    "spmm": "(Tensor x, Tensor? weights, Tensor graph, Tensor rows, Tensor columns, str kind, bool transpose) -> Tensor",
    "sddmm": "(Tensor x, Tensor y, Tensor graph, Tensor weights, str kind) -> Tensor",
    "attention": "(Tensor destination, Tensor source, Tensor? vector, Tensor values, Tensor graph, Tensor? key, "
    f"{_ATTENTION}) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor grad, Tensor out, Tensor log_sums, Tensor destination, Tensor source, Tensor? vector, "
    f"Tensor values, Tensor graph, Tensor? key, {_ATTENTION}) -> (Tensor, Tensor, Tensor, Tensor)",
}


def _array(tensor: Tensor | None) -> Any:
    """Array over the memory of a tensor; of a copy where its rows do not follow each other."""
    return None if tensor is None else tensor.detach().contiguous().numpy()


def product(x: Tensor, graph: Tensor, kind: str, rows: int, transpose: bool, weights: Tensor | None = None) -> Tensor:
    """Product (rows, width) of an operand of a graph, given by its handle, with `x`, without autograd."""
    if x.is_cuda:
        return _cuda.product(x, graph, kind, rows, transpose, weights)
    out = torch.empty((rows, x.shape[1]), dtype=torch.float32)
    _girih.nn_spmm((int(graph.item()), kind), transpose, _array(weights), _array(x), out.numpy())
    return out


def _spmm(
    x: Tensor, weights: Tensor | None, graph: Tensor, rows: Tensor, columns: Tensor, kind: str, transpose: bool
) -> Tensor:
    return product(x, graph, kind, rows.shape[0], transpose, weights)


def _sddmm(x: Tensor, y: Tensor, graph: Tensor, weights: Tensor, kind: str) -> Tensor:
    out = torch.empty(weights.shape, dtype=torch.float32)
    _girih.nn_sddmm((int(graph.item()), kind), _array(x), _array(y), out.numpy())
    return out


def _options(key: Tensor | None, heads: int, slope: float, dropout: float) -> _cuda.Options:
    return heads, slope, dropout if key is not None else 0.0, 0 if key is None else int(key.item())


def _attention(
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    graph: Tensor,
    key: Tensor | None,
    heads: int,
    slope: float,
    dropout: float,
    kind: str,
) -> tuple[Tensor, Tensor]:
    out = torch.empty((destination.shape[0], values.shape[1]), dtype=torch.float32)
    log_sums = torch.empty((destination.shape[0], heads), dtype=torch.float32)
    operands = tuple(map(_array, (destination, source, vector, values)))
    _girih.nn_attention(
        (int(graph.item()), kind), _options(key, heads, slope, dropout), operands, (out.numpy(), log_sums.numpy())
    )
    return out, log_sums


def _cuda_attention(
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    graph: Tensor,
    key: Tensor | None,
    heads: int,
    slope: float,
    dropout: float,
    kind: str,
) -> tuple[Tensor, Tensor]:
    return _cuda.attention(_options(key, heads, slope, dropout), (destination, source, vector, values), graph, kind)


def _attention_backward(
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    graph: Tensor,
    key: Tensor | None,
    heads: int,
    slope: float,
    dropout: float,
    kind: str,
) -> tuple[Tensor | None, ...]:
    operands = (destination, source, vector, values)
    grads = [None if operand is None else torch.empty(operand.shape, dtype=torch.float32) for operand in operands]
    results: tuple[Any, ...] = tuple(None if made is None else made.numpy() for made in grads)
    _girih.nn_attention_backward(
        (int(graph.item()), kind),
        _options(key, heads, slope, dropout),
        tuple(map(_array, operands)),
        (_array(out), _array(log_sums), _array(grad)),
        results,
    )
    if vector is None:
        grads[2] = torch.empty(0)
    return tuple(grads)


def _cuda_attention_backward(
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    graph: Tensor,
    key: Tensor | None,
    heads: int,
    slope: float,
    dropout: float,
    kind: str,
) -> tuple[Tensor | None, ...]:
    operands = (destination, source, vector, values)
    grads = _cuda.attention_backward(
        _options(key, heads, slope, dropout), operands, (out, log_sums, grad), graph, kind
    )
    if vector is None:
        grads[2] = values.new_empty(0)
    return tuple(grads)


def _fake_empty(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Result without values, laid out as the device of `like` does it."""
    if like.device.type == "cuda":
        return _cuda.empty(rows, columns, like, dtype)
    return like.new_empty((rows, columns), dtype=like.dtype if dtype is None else dtype)


def _fake_like(operand: Tensor) -> Tensor:
    return _fake_empty(operand.shape[0], operand.shape[1], operand)


def _fake_spmm(
    x: Tensor, weights: Tensor | None, graph: Tensor, rows: Tensor, columns: Tensor, kind: str, transpose: bool
) -> Tensor:
    return _fake_empty(rows.shape[0], x.shape[1], x)


def _fake_sddmm(x: Tensor, y: Tensor, graph: Tensor, weights: Tensor, kind: str) -> Tensor:
    return _fake_like(weights)


def _fake_attention(
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    graph: Tensor,
    key: Tensor | None,
    heads: int,
    slope: float,
    dropout: float,
    kind: str,
) -> tuple[Tensor, Tensor]:
    rows = destination.shape[0]
    return _fake_empty(rows, values.shape[1], values), _fake_empty(rows, heads, values, torch.float32)


def _fake_attention_backward(
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    destination: Tensor,
    source: Tensor,
    vector: Tensor | None,
    values: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_vector = values.new_empty((0,)) if vector is None else _fake_like(vector)
    return _fake_like(destination), _fake_like(source), of_vector, _fake_like(values)


def _spmm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weights, graph, rows, columns, *ctx.options = inputs
    # Only the gradient of weights reads x.
    ctx.save_for_backward(graph, rows, columns, weights, None if weights is None else x)


@once_differentiable  # type: ignore[misc,untyped-decorator,unused-ignore]
def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    graph, rows, columns, weights, x = ctx.saved_tensors
    kind, transpose = ctx.options
    of_x = of_weights = None
    if ctx.needs_input_grad[0]:
        of_x = torch.ops.girih.spmm(  # type: ignore[attr-defined,unused-ignore]
            grad, weights, graph, columns, rows, kind, not transpose
        )
    if ctx.needs_input_grad[1]:
        left, right = (x, grad) if transpose else (grad, x)
        of_weights = torch.ops.girih.sddmm(left, right, graph, weights, kind)  # type: ignore[attr-defined,unused-ignore]
    return of_x, of_weights, None, None, None, None, None


def _attention_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    destination, source, vector, values, graph, key, *ctx.options = inputs
    out, log_sums = output
    ctx.mark_non_differentiable(log_sums)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(out, log_sums, destination, source, vector, values, graph, key)


@once_differentiable  # type: ignore[misc,untyped-decorator,unused-ignore]
def _attention_grads(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 10
    grads = torch.ops.girih.attention_backward(grad, *ctx.saved_tensors, *ctx.options)  # type: ignore[attr-defined,unused-ignore]
    of_destination, of_source, of_vector, of_values = grads
    of_vector = of_vector if ctx.needs_input_grad[2] else None
    return of_destination, of_source, of_vector, of_values, None, None, None, None, None, None


def _register(name: str, on_cpu: Callable[..., Any], on_cuda: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _library.define(name + _SCHEMAS[name])
    _library.impl(name, on_cpu, "CPU")
    _library.impl(name, on_cuda, "CUDA")
    registry: Any = torch.library
    if hasattr(registry, "register_fake"):
        registry.register_fake(f"girih::{name}", fake, lib=_library)
    else:
        registry.impl_abstract(f"girih::{name}", fake, lib=_library)


def _register_autograd(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    registry: Any = torch.library
    if hasattr(registry, "register_autograd"):
        registry.register_autograd(f"girih::{name}", backward, setup_context=setup, lib=_library)
        return

    def forward(*inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # type: ignore[no-untyped-call,unused-ignore]
            return getattr(torch.ops.girih, name)(*inputs)  # type: ignore[attr-defined,unused-ignore]

    methods = {"forward": forward, "setup_context": setup, "backward": backward}
    function: Any = type(name, (torch.autograd.Function,), {key: staticmethod(method) for key, method in methods.items()})
    _library.impl(name, lambda *inputs: function.apply(*inputs), "Autograd")


_register("spmm", _spmm, _spmm, _fake_spmm)
_register("sddmm", _sddmm, _cuda.sddmm, _fake_sddmm)
_register("attention", _attention, _cuda_attention, _fake_attention)
_register("attention_backward", _attention_backward, _cuda_attention_backward, _fake_attention_backward)


class Spmm(torch.autograd.Function):
    """`torch.ops.girih.spmm` for tensors that are computed at once: a call costs half as much."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights: Tensor | None,
        graph: Tensor,
        rows: Tensor,
        columns: Tensor,
        kind: str,
        transpose: bool,
    ) -> Tensor:
        _spmm_setup(ctx, (x, weights, graph, rows, columns, kind, transpose), None)
        return _spmm(x, weights, graph, rows, columns, kind, transpose)

    backward: Any = staticmethod(_spmm_backward)


_register_autograd("spmm", _spmm_backward, _spmm_setup)
_register_autograd("attention", _attention_grads, _attention_setup)
