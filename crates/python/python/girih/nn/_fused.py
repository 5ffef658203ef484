"""Aggregation and linear map as one step of autograd: fewer passes over rows than their operators alone, and fewer calls.

    out = activation(A·x·Wᵀ + b + x[:rows]·Vᵀ)        in the cheaper order; the last term where there is V

Compiled code has the operators instead, which a compiler sees through.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _cuda
from ._adjacency import Adjacency, computed
from ._operators import product


def check_activation(activation: str | None) -> None:
    """Raises ValueError on an unknown activation."""
    if activation not in (None, "relu"):
        raise ValueError(f'no activation={activation!r}; there are None and "relu"')


def aggregate_linear(
    x: Tensor,
    graph: Adjacency,
    kind: str,
    parameters: tuple[Tensor, Tensor | None, Tensor | None],
    *,
    transforms_first: bool,
    activation: str | None = None,
) -> Tensor:
    """Result (num_dst, width) of x (num_src, columns).

    parameters: W (width, columns), b (width,) or None, V (width, columns) of the destinations or None. They may have
        another type than x.
    """
    dtype = _autocast(x)
    x = x if dtype is None else x.to(dtype)
    read = computed(x)
    # Kernels of GPUs round float32 parameters to the type of x themselves.
    keeps = (torch.float32, torch.bfloat16) if x.is_cuda else (torch.float32,)
    weight, bias, own = (each if each is None or each.dtype in keeps else each.float() for each in parameters)
    how = transforms_first, activation == "relu"
    apply: Callable[..., Tensor] = _AggregateLinear.apply
    out = apply(read, weight, bias, own, (graph.handle, kind, graph.num_dst), how)
    return out.to(x.dtype)


def _autocast(x: Tensor) -> torch.dtype | None:
    """Type that autocast wants products in; None outside of it."""
    if x.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


class _AggregateLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        own: Tensor | None,
        of: tuple[Tensor, str, int],
        how: tuple[bool, bool],
    ) -> Tensor:
        out, sums = (_cuda.layer if x.is_cuda else _layer)(x, weight, bias, own, *of, how)
        ctx.save_for_backward(x, sums, weight, own, out if how[1] else None, of[0])
        ctx.kind = of[1]
        return out

    @staticmethod
    @once_differentiable  # type: ignore[misc,untyped-decorator,unused-ignore]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, sums, weight, own, out, handle = ctx.saved_tensors
        if out is not None:
            grad = torch.ops.aten.threshold_backward(grad, out, 0)  # type: ignore[attr-defined,unused-ignore]
        run = _cuda.layer_backward if x.is_cuda else _layer_backward
        return *run(grad, x, sums, weight, own, handle, ctx.kind, ctx.needs_input_grad[:4]), None, None


def _layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    own: Tensor | None,
    graph: Tensor,
    kind: str,
    rows: int,
    how: tuple[bool, bool],
) -> tuple[Tensor, Tensor | None]:
    with torch.autocast("cpu", enabled=False):
        if how[0]:
            out, sums = product(x @ weight.t(), graph, kind, rows, False), None
            if bias is not None:
                out += bias
        else:
            sums = product(x, graph, kind, rows, False)
            out = sums @ weight.t() if bias is None else torch.addmm(bias, sums, weight.t())
        if own is not None:
            out.addmm_(x[:rows], own.t())
        return out.relu_() if how[1] else out, sums


def _layer_backward(
    grad: Tensor,
    x: Tensor,
    sums: Tensor | None,
    weight: Tensor,
    own: Tensor | None,
    graph: Tensor,
    kind: str,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    of_x = of_weight = None
    with torch.autocast("cpu", enabled=False):
        if sums is not None:
            of_weight = grad.t() @ sums if needs[1] else None
            of_x = product(grad @ weight, graph, kind, x.shape[0], True) if needs[0] else None
        elif needs[0] or needs[1]:
            of_product = product(grad, graph, kind, x.shape[0], True)
            of_weight = of_product.t() @ x if needs[1] else None
            of_x = of_product @ weight if needs[0] else None
        of_bias = grad.sum(0) if needs[2] else None
        of_own = grad.t() @ x[: grad.shape[0]] if needs[3] else None
        if own is not None and of_x is not None:
            of_x[: grad.shape[0]].addmm_(grad, own)
    return of_x, of_weight, of_bias, of_own
