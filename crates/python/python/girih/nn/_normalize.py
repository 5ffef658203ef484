"""Symmetric normalisation, as PyG's `gcn_norm`, with and without weights of edges."""

from __future__ import annotations

from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ._adjacency import Adjacency, propagate


def check_normalize(normalize: bool | str) -> None:
    """Raises ValueError on an unknown normalisation."""
    if normalize not in (True, False, "sampled"):
        raise ValueError(f'no normalize={normalize!r}; there are True, False and "sampled"')


def kind_of(graph: Adjacency, *, normalize: bool | str, add_self_loops: bool, improved: bool = False) -> str:
    """Kind of the operand of a graph whose edges have no other weights than the graph's."""
    if not normalize:
        return "weights"
    is_estimated = graph.is_block and normalize is True
    flags = (("loops", add_self_loops), ("improved", improved), ("estimated", is_estimated))
    return "+".join(["gcn", *(name for name, is_set in flags if is_set)])


def normalized(
    graph: Adjacency,
    edge_weight: Tensor | None,
    *,
    normalize: bool | str = True,
    add_self_loops: bool = True,
    improved: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Product of x (num_src, width) with the normalised adjacency: (num_dst, width).

    edge_weight: (num_edges,), in the caller's order of edges; it may need a gradient.
    normalize: of a block, True estimates the rows of the whole graph; "sampled" normalises the block alone.
    """
    if edge_weight is not None:
        if graph.is_block and normalize is True:
            raise NotImplementedError('edge_weight with a block needs normalize="sampled": degrees of the whole graph are unknown')
        return _weighted(graph, edge_weight, bool(normalize), 2.0 if improved else 1.0 if add_self_loops else 0.0, add_self_loops)
    kind = kind_of(graph, normalize=normalize, add_self_loops=add_self_loops, improved=improved)
    return lambda x: propagate(x, graph, kind)


def _weighted(
    graph: Adjacency, edge_weight: Tensor, normalize: bool, loop: float, add_self_loops: bool
) -> Callable[[Tensor], Tensor]:
    if edge_weight.shape != (graph.num_edges,):
        raise ValueError(f"edge_weight has shape {tuple(edge_weight.shape)}; give one weight for each of {graph.num_edges} edges")
    if not edge_weight.is_floating_point():
        raise TypeError(f"edge_weight is {edge_weight.dtype}; give float32")
    weights = edge_weight.float()
    if add_self_loops:
        weights = torch.cat([weights, weights.new_full((graph.num_dst,), loop)])
    weights = weights.index_select(0, graph.edges(add_self_loops, weights.device)).view(-1, 1)
    kind = "pattern+loops" if add_self_loops else "pattern"
    if not normalize:
        return lambda x: propagate(x, graph, kind, weights)
    degrees = propagate(weights.new_ones(graph.num_src, 1), graph, kind, weights)
    degrees = F.pad(degrees, (0, 0, 0, graph.num_src - graph.num_dst), value=loop if add_self_loops else 0.0)
    is_positive = degrees > 0
    scale = torch.where(is_positive, degrees, 1.0).rsqrt() * is_positive
    return lambda x: (propagate(x.float() * scale, graph, kind, weights) * scale[: graph.num_dst]).to(x.dtype)
