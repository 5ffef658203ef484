"""What layers share: arguments of PyG that they refuse, initial values, and the order of products."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._adjacency import Adjacency
from ._fused import Layer

# Arguments of PyG's `MessagePassing`, and the values of theirs that layers have.
_ACCEPTED = {"flow": ("source_to_target",), "node_dim": (-2, 0), "decomposed_layers": (1,)}


class Convolution(torch.nn.Module):
    """Layer over a graph. `cached` layers keep what they made of their first graph, and never pickle it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        aggr = arguments.pop("aggr", "add")
        if aggr not in ("add", "sum"):
            raise NotImplementedError(f"{type(self).__name__} has no aggr={aggr!r}; girih.nn has 'add' here")
        for name, value in arguments.items():
            if name not in _ACCEPTED:
                raise NotImplementedError(f"{type(self).__name__} of girih.nn has no argument {name}")
            if value not in _ACCEPTED[name]:
                raise NotImplementedError(f"{type(self).__name__} has no {name}={value!r}; girih.nn has {_ACCEPTED[name][0]!r}")
        self._cached: Any = None
        # An x that came before: a weak reference, its version, kind of the operand, and the product.
        self._seen: Any = None

    def layer(self, graph: Adjacency, transforms_first: bool, relu: bool, dropout: float = 0.0) -> Layer | None:
        """The layer, with what follows it, as one of several that are computed in one call; None where it is more."""
        return None

    def kept(self, x: Tensor, graph: Adjacency, kind: str) -> Tensor | None:
        """Product of the graph with `x`, where the layer keeps it."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None, "_seen": None}


class Linear(torch.nn.Linear):
    """Linear map with the initial values of PyG's: those of `torch.nn.Linear`, or Glorot's."""

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True, *, glorot: bool = False):
        if in_channels < 1:
            raise NotImplementedError(f"in_channels={in_channels}: girih.nn does not find widths by itself; give the number")
        self.is_glorot = glorot
        super().__init__(in_channels, out_channels, bias)

    def reset_parameters(self) -> None:
        """Draws new values."""
        super().reset_parameters()
        if self.is_glorot:
            glorot(self.weight)


def glorot(parameter: Tensor) -> None:
    """Draws values of Glorot and Bengio (AISTATS 2010)."""
    bound = math.sqrt(6.0 / (parameter.shape[-2] + parameter.shape[-1]))
    torch.nn.init.uniform_(parameter, -bound, bound)


def pair(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    """Widths of sources and of destinations."""
    widths: tuple[Any, ...] = (in_channels, in_channels) if isinstance(in_channels, int) else tuple(in_channels)
    return widths


def reset(module: object) -> None:
    """Draws new values for the parameters of a module and of all modules in it."""
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    else:
        for child in module.children() if hasattr(module, "children") else ():
            reset(child)


def transforms_first(x: Tensor, width_in: int, width_out: int) -> bool:
    """Whether a layer that aggregates and multiplies by weights, in either order, had better multiply first.

    Rows are aggregated once each way; but not on the way back where `x` needs no gradient and is aggregated itself.
    """
    passes = 2 if torch.is_grad_enabled() and not x.requires_grad else 1
    return passes * width_out < width_in
