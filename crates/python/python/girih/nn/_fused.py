"""Layers of a model as one step of autograd: one call of girih each way, instead of several operators for each layer.

    x' = dropout(activation(A·x·Wᵀ + b + x[:n]·Vᵀ))      in the cheaper order; without A: x·Wᵀ; the last term where there is V

Compiled code has the operators instead, which a compiler sees through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _girih, _libraries
from . import _cuda
from ._adjacency import Adjacency, computed

Parameters = tuple[Tensor, "Tensor | None", "Tensor | None"]


class Layer(NamedTuple):
    """One layer.

    graph: edges of the operand A; None for a linear layer.
    kind: which matrix of the graph A is.
    parameters: W (width, columns), b (width,) or None, V (width, columns) of the destinations or None. They may have another
        type than x.
    transforms_first: whether x·Wᵀ is computed before the product with A.
    relu, dropout: what follows; dropout is a probability, and only follows a ReLU.
    """

    graph: Adjacency | None
    kind: str
    parameters: Parameters
    transforms_first: bool = False
    relu: bool = False
    dropout: float = 0.0

    @property
    def width(self) -> int:
        """Columns of the result."""
        return self.parameters[0].shape[0]


def check_activation(activation: str | None) -> None:
    """Raises ValueError on an unknown activation."""
    if activation not in (None, "relu"):
        raise ValueError(f'no activation={activation!r}; there are None and "relu"')


def run(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Result (num_dst, width) of the last layer, of x (num_src, columns) of the first."""
    dtype = _autocast(x)
    x = x if dtype is None else x.to(dtype)
    # Kernels of GPUs round float32 parameters to the type of x themselves.
    keeps = (torch.float32, torch.bfloat16) if x.is_cuda else (torch.float32,)
    parameters: list[Tensor | None] = []
    for layer in layers:
        _cuda.same_device(x, *layer.parameters)
        for each in layer.parameters:
            parameters.append(each if each is None or each.dtype in keeps else each.float())
    apply: Callable[..., Tensor] = _Layers.apply
    out = apply(computed(x), layers, *parameters)
    return out if out.dtype == x.dtype else out.to(x.dtype)


def _autocast(x: Tensor) -> torch.dtype | None:
    """Type that autocast wants products in; None outside of it."""
    if x.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def _readable(x: Tensor) -> Tensor:
    """`x`, or a copy where rows have gaps that girih could not read over, or its elements are not next to each other."""
    if x.is_contiguous():
        return x
    if x.is_cuda and x.stride(1) == 1 and x.stride(0) >= x.shape[1]:
        # Rows of more than 8 columns are read in vectors, the last one with its gap.
        end = (x.storage_offset() + x.shape[0] * x.stride(0)) * x.element_size()
        if end <= x.untyped_storage().nbytes():
            return x
    return x.contiguous()


def _place(x: Tensor) -> tuple[int, int] | None:
    """GPU of a tensor and the current stream there; None for the CPU."""
    if not x.is_cuda:
        return None
    _libraries.load()
    return _cuda.at(x)


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: Sequence[Layer], *parameters: Tensor | None) -> Tensor:
        x = _readable(x)
        read = [each if each is None or each.is_contiguous() else each.contiguous() for each in parameters]
        given: list[Any] = []
        rows = x.shape[0]
        for at, (graph, kind, _, transforms_first, relu, dropout) in enumerate(layers):
            operand = None
            if graph is not None:
                operand, rows = (graph.number, kind), graph.num_dst
            key = int(torch.empty((), dtype=torch.int64).random_()) if dropout > 0 else 0
            given.append((operand, (*read[3 * at : 3 * at + 3],), (transforms_first, relu, dropout, key)))
        out = x.new_empty((rows, layers[-1].width))
        native = _girih.nn_forward(_place(x), x, given, out, any(ctx.needs_input_grad))
        if native is not None:
            # The tensor keeps the native pass: both go when PyTorch frees what it saved.
            ctx.save_for_backward(torch.from_numpy(native.handle), out if layers[-1].relu else None, x, *read)
        return out

    @staticmethod
    @once_differentiable  # type: ignore[misc,untyped-decorator,unused-ignore]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        handle, out, x, *parameters = ctx.saved_tensors
        of_x, _, *needs = ctx.needs_input_grad
        of_x = x.new_empty(x.shape) if of_x else None
        grads = [
            torch.empty_like(each) if need and each is not None else None for each, need in zip(parameters, needs)
        ]
        triples: list[Any] = [(*grads[at : at + 3],) for at in range(0, len(grads), 3)]
        _girih.nn_backward(handle.item(), (x, *parameters, out), _readable(grad), of_x, triples)
        return (of_x, None, *grads)
