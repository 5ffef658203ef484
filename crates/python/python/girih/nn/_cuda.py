"""Operators on GPUs: tensors as girih's kernels take them.

Rows begin one behind the other where there are fewer than 8 columns, else at multiples of 8 elements. Results are made so;
operands that are not are copied.
"""

from __future__ import annotations

from typing import Callable, cast, overload

import torch
from torch import Tensor

from .. import _girih, _libraries
from .._streams import current_stream

Options = tuple[int, float, float, int]
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor]
Results = tuple[Tensor, Tensor, Tensor]
_Lent = tuple[int, int, int, bool]

_WIDE = 8
_ALIGNMENT = 16


def _pitch(columns: int) -> int:
    return columns if columns < _WIDE else -(-columns // _WIDE) * _WIDE


def empty(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised matrix with girih's rows, of the type and device of `like`."""
    pitch = _pitch(columns)
    made = torch.empty((rows, pitch), dtype=like.dtype if dtype is None else dtype, device=like.device)
    return made if pitch == columns else made[:, :columns]


def _fits(x: Tensor) -> bool:
    rows, columns = x.shape
    pitch = _pitch(columns)
    if (columns > 1 and x.stride(1) != 1) or (rows > 1 and x.stride(0) != pitch):
        return False
    if pitch != columns:
        # The last row is read with its padding.
        end = (x.storage_offset() + rows * pitch) * x.element_size()
        return x.data_ptr() % _ALIGNMENT == 0 and end <= x.untyped_storage().nbytes()
    return columns < _WIDE or x.data_ptr() % _ALIGNMENT == 0


@overload
def laid(x: Tensor) -> Tensor: ...
@overload
def laid(x: Tensor | None) -> Tensor | None: ...
def laid(x: Tensor | None) -> Tensor | None:
    """`x` with girih's rows: itself, or a copy."""
    if x is None:
        return None
    return x if _fits(x) else empty(x.shape[0], x.shape[1], x).copy_(x.detach())


def _lent(x: Tensor | None) -> _Lent | None:
    return None if x is None else (x.data_ptr(), x.shape[0], x.shape[1], x.dtype == torch.bfloat16)


def at(x: Tensor) -> tuple[int, int]:
    """GPU of a tensor and the current stream there."""
    ordinal = x.get_device()
    return ordinal, current_stream(ordinal)


def same_device(x: Tensor, *others: Tensor | None) -> None:
    """Raises ValueError if an operand is on another device than `x`."""
    device = x.device
    for other in others:
        if other is not None and other.device != device:
            raise ValueError(f"operands are on {device} and on {other.device}; move them to one device")


def _native(name: str) -> Callable[..., None]:
    _libraries.load()
    found: Callable[..., None] | None = getattr(_girih, name, None)
    if found is None:
        raise NotImplementedError("this build of girih has no CUDA: call .cpu() on x")
    return found


def product(x: Tensor, graph: Tensor, kind: str, rows: int, transpose: bool, weights: Tensor | None = None) -> Tensor:
    same_device(x, weights)
    out = empty(rows, x.shape[1], x)
    x, weights = laid(x), laid(weights)
    _native("cuda_nn_spmm")(at(x), (graph.item(), kind), transpose, _lent(weights), _lent(x), _lent(out))
    return out


def sddmm(x: Tensor, y: Tensor, graph: Tensor, weights: Tensor, kind: str) -> Tensor:
    same_device(x, y, weights)
    out = empty(weights.shape[0], weights.shape[1], weights)
    x, y = laid(x), laid(y)
    _native("cuda_nn_sddmm")(at(x), (graph.item(), kind), _lent(x), _lent(y), _lent(out))
    return out


def attention(options: Options, operands: Operands, graph: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    same_device(*operands)
    destination, _, _, values = operands
    out = empty(destination.shape[0], values.shape[1], values)
    log_sums = empty(destination.shape[0], options[0], values, torch.float32)
    laid_out = tuple(map(laid, operands))
    _native("cuda_nn_attention")(
        at(values), (graph.item(), kind), options, tuple(map(_lent, laid_out)), (_lent(out), _lent(log_sums))
    )
    return out, log_sums


def attention_backward(
    options: Options, operands: Operands, results: Results, graph: Tensor, kind: str
) -> list[Tensor | None]:
    same_device(*operands, *results)
    grads = [None if operand is None else empty(operand.shape[0], operand.shape[1], operand) for operand in operands]
    operands, results = cast(Operands, tuple(map(laid, operands))), cast(Results, tuple(map(laid, results)))
    _native("cuda_nn_attention_backward")(
        at(operands[3]),
        (graph.item(), kind),
        options,
        tuple(map(_lent, operands)),
        tuple(map(_lent, results)),
        tuple(map(_lent, grads)),
    )
    return grads
