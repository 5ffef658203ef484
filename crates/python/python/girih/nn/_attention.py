"""Layers that attend to neighbors: GAT and GATv2.

Parameters have PyG's layout, in which columns of a head lie side by side. The operator interleaves heads, so that rows of
weights are exchanged before a product, and columns of the result after it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ._adjacency import Adjacency, GraphLike, computed, propagate
from ._base import Convolution, Linear, glorot, pair
from ._convolutions import _sides


# Scores or features of the destinations and of the sources, and the vector that weighs features.
_Sides = tuple[Tensor, Tensor, Optional[Tensor]]
# Names of PyG for how features of a self loop come from those of a node's edges, and PyTorch's.
_REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "mul": "prod"}


class _Entries(NamedTuple):
    """Source and destination of each entry of the pattern, and the position of its edge in the caller's order."""

    src: Tensor
    dst: Tensor
    place: Tensor


class _Attention(Convolution):
    """What GAT and GATv2 share: arguments, residual, bias, and the sum over neighbors."""

    bias: torch.nn.Parameter | None
    att_edge: torch.nn.Parameter
    lin_edge: Linear | None

    def __init__(
        self,
        attention: tuple[str, ...],
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        concat: bool,
        negative_slope: float,
        dropout: float,
        add_self_loops: bool,
        edge_dim: int | None,
        fill_value: float | Tensor | str,
        kwargs: dict[str, Any],
    ) -> None:
        """Registers the vectors named `attention`; the layer's own maps follow, then `_finish`: PyG's order of parameters."""
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a probability from 0 to below 1")
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.edge_dim, self.fill_value = edge_dim, fill_value
        if isinstance(fill_value, str) and fill_value not in _REDUCTIONS:
            raise ValueError(f"fill_value is {fill_value!r}; there are {', '.join(map(repr, _REDUCTIONS))}, a number, and a tensor")
        for name in attention:
            self.register_parameter(name, torch.nn.Parameter(torch.empty(1, heads, out_channels)))

    def _finish(self, bias: bool, residual: bool) -> None:
        """Registers the map of edges' features, that of the residual, and the bias, and draws all parameters."""
        of_heads = self.heads * self.out_channels
        self.lin_edge = None if self.edge_dim is None else Linear(self.edge_dim, of_heads, bias=False, glorot=True)
        width = of_heads if self.concat else self.out_channels
        self.residual = residual
        self.res = Linear(pair(self.in_channels)[1], width, bias=False, glorot=True) if residual else None
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(width)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        child: Any
        for child in self.children():
            child.reset_parameters()
        for name, parameter in self.named_parameters(recurse=False):
            if name == "bias":
                torch.nn.init.zeros_(parameter)
            else:
                glorot(parameter)

    def _interleaved(self, linear: Linear, x: Tensor) -> Tensor:
        """Result (rows, out_channels·heads) of a linear map, with interleaved heads."""
        weight: Tensor = linear.weight
        bias: Tensor | None = linear.bias
        if self.heads > 1:
            weight = weight.view(self.heads, self.out_channels, -1).transpose(0, 1).reshape(weight.shape)
            bias = None if bias is None else bias.view(self.heads, -1).t().reshape(-1)
        return F.linear(x, weight, bias)

    def _edge_features(self, graph: Adjacency, edge_attr: Tensor | None) -> Tensor | None:
        """`edge_attr` as (num_edges, edge_dim); None without."""
        if edge_attr is None:
            return None
        if self.edge_dim is None:
            raise ValueError("edge_attr is given, but the layer was made without edge_dim")
        edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        if tuple(edge_attr.shape) != (graph.num_edges, self.edge_dim):
            raise ValueError(
                f"edge_attr has shape {tuple(edge_attr.shape)}; give ({graph.num_edges}, {self.edge_dim}): edges, edge_dim"
            )
        return edge_attr

    def _of_loops(self, edge_attr: Tensor, entries: _Entries, n: int) -> Tensor:
        """Features (n, edge_dim) of the self loops of destinations, made of those of their edges by `fill_value`."""
        if not isinstance(self.fill_value, str):
            return torch.as_tensor(self.fill_value).to(edge_attr).expand(n, edge_attr.shape[1])
        kept = entries.src != entries.dst
        to = entries.dst[kept].view(-1, 1).expand(-1, edge_attr.shape[1])
        start = edge_attr.new_full((n, edge_attr.shape[1]), 1.0 if self.fill_value == "mul" else 0.0)
        how = _REDUCTIONS[self.fill_value]
        return start.scatter_reduce(0, to, edge_attr[entries.place[kept]], how, include_self=False)

    def _along_edges(self, graph: Adjacency, entries: _Entries, edge_attr: Tensor) -> Tensor:
        """Mapped features (entries, out_channels·heads), with interleaved heads."""
        assert self.lin_edge is not None
        if self.add_self_loops:
            filled = torch.cat([edge_attr, self._of_loops(edge_attr, entries, graph.num_dst)])
            rows = filled[torch.where(entries.src == entries.dst, graph.num_edges + entries.dst, entries.place)]
        else:
            rows = edge_attr[entries.place]
        return self._interleaved(self.lin_edge, rows)

    def _weights(
        self, graph: Adjacency, entries: _Entries, sides: _Sides, edge_attr: Tensor | None
    ) -> Tensor:
        """Weights (entries, heads) of attention, before dropout, in the order of rows; computed edge by edge."""
        destination, source, vector = sides
        scores = destination[entries.dst] + source[entries.src]
        if edge_attr is not None:
            along = self._along_edges(graph, entries, edge_attr)
            scores = scores + (along if vector is not None else self._scores(along, self.att_edge))
        scores = F.leaky_relu(scores, self.negative_slope)
        if vector is not None:
            scores = (scores * vector).view(-1, self.out_channels, self.heads).sum(dim=1)
        by_head = entries.dst.view(-1, 1).expand(-1, self.heads)
        most = scores.new_full((graph.num_dst, self.heads), -torch.inf).scatter_reduce(0, by_head, scores.detach(), "amax")
        shares = (scores - most[entries.dst]).exp()
        return shares / shares.new_zeros(graph.num_dst, self.heads).index_add(0, entries.dst, shares)[entries.dst]

    def _entries(self, graph: Adjacency, device: torch.device) -> _Entries:
        return _Entries(*graph.ends(self.add_self_loops, device), graph.edges(self.add_self_loops, device))

    def _returned(self, graph: Adjacency, entries: _Entries, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Edges (2, entries) and their weights in the caller's order; with `add_self_loops`, those of nodes to themselves
        last, by node, as in PyG."""
        place = entries.place
        if self.add_self_loops:
            place = torch.where(entries.src == entries.dst, graph.num_edges + entries.dst, place)
        order = place.argsort()
        return torch.stack([entries.src[order], entries.dst[order]]), weights[order]

    def _scores(self, values: Tensor, att: Tensor) -> Tensor:
        """Scores (rows, heads) of interleaved values: one product with the block diagonal of the heads' vectors."""
        return values @ torch.diag_embed(att[0].t()).reshape(-1, self.heads)

    def _attend(
        self, graph: Adjacency, sides: _Sides, values: Tensor, own: Tensor | None, edge_attr: Tensor | None, returns: bool
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Result (num_dst, width) of attention; if `returns`, edges and their weights, too.

        sides: scores or features of destinations and of sources, and the vector that weighs features. values: of the sources.
        """
        edge_attr = self._edge_features(graph, edge_attr)
        entries = self._entries(graph, values.device) if returns or edge_attr is not None else None
        weights = None if entries is None else self._weights(graph, entries, sides, edge_attr)
        kind = "pattern+loops" if self.add_self_loops else "pattern"
        if weights is not None and edge_attr is not None:
            out = propagate(values, graph, kind, F.dropout(weights, self.dropout, self.training).float())
        else:
            out = self._fused(graph, sides, values, kind)
        if self.heads > 1:
            by_head = out.view(-1, self.out_channels, self.heads)
            out = by_head.transpose(1, 2).reshape(out.shape) if self.concat else by_head.mean(dim=-1)
        if self.res is not None and own is not None:
            out = out + self.res(own)
        out = out if self.bias is None else out + self.bias
        return out if not returns or entries is None or weights is None else (out, self._returned(graph, entries, weights))

    def _fused(self, graph: Adjacency, sides: _Sides, values: Tensor, kind: str) -> Tensor:
        """Result of girih's operator, which stores nothing for an edge."""
        destination, source, vector = sides
        key = torch.randint(2**62, (1,)) if self.training and self.dropout > 0 else None
        out: Tensor
        out, _ = torch.ops.girih.attention(  # type: ignore[attr-defined,unused-ignore]
            computed(destination), computed(source), None if vector is None else computed(vector), computed(values), graph.handle,
            key, self.heads, self.negative_slope, self.dropout, kind,
        )  # fmt: skip
        return out.to(values.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


class GATConv(_Attention):
    """Graph attention of Veličković et al. (ICLR 2018). The arguments are those of PyG."""

    att_src: torch.nn.Parameter
    att_dst: torch.nn.Parameter
    lin: Linear | None
    lin_src: Linear | None
    lin_dst: Linear | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        attention = ("att_src", "att_dst") if edge_dim is None else ("att_src", "att_dst", "att_edge")
        super().__init__(attention, in_channels, out_channels, heads, concat, negative_slope, dropout,
                         add_self_loops, edge_dim, fill_value, kwargs)  # fmt: skip
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, bias=False, glorot=True)
        else:
            self.lin_src = Linear(in_channels[0], width, bias=False, glorot=True)
            self.lin_dst = Linear(in_channels[1], width, bias=False, glorot=True)
        self._finish(bias, residual)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        graph: GraphLike,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Result (num_dst, heads·out_channels), or (num_dst, out_channels) without `concat`, of x (num_src, in_channels) or
        of a pair with x of the destinations.

        edge_attr: features (num_edges, edge_dim) by the caller's order; PyTorch computes scores with them, edge by edge.
        size: (num_src, num_dst) of an `edge_index`, where x does not tell it.
        return_attention_weights: True or False for the edges and the weight (edges, heads) of each, too, before dropout.
        """
        is_one = not isinstance(x, (tuple, list))
        x, own, graph = _sides(x, graph, size, pair(self.in_channels))
        linear = self.lin if self.lin_src is None else self.lin_src
        assert linear is not None
        values = self._interleaved(linear, x)
        if own is None:
            destination = values.new_zeros(graph.num_dst, self.heads)
        elif is_one and self.lin is not None:
            destination = self._scores(values[: graph.num_dst], self.att_dst)
        else:
            linear = self.lin if self.lin_dst is None else self.lin_dst
            assert linear is not None
            destination = self._scores(self._interleaved(linear, own), self.att_dst)
        sides = destination, self._scores(values, self.att_src), None
        return self._attend(graph, sides, values, own, edge_attr, return_attention_weights is not None)


class GATv2Conv(_Attention):
    """Dynamic graph attention of Brody et al. (ICLR 2022). The arguments are those of PyG."""

    att: torch.nn.Parameter

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(("att",), in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
                         edge_dim, fill_value, kwargs)  # fmt: skip
        self.share_weights = share_weights
        of_sources, of_destinations = pair(in_channels)
        self.lin_l = Linear(of_sources, heads * out_channels, bias=bias, glorot=True)
        self.lin_r = self.lin_l if share_weights else Linear(of_destinations, heads * out_channels, bias=bias, glorot=True)
        self._finish(bias, residual)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        graph: GraphLike,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Result (num_dst, heads·out_channels), or (num_dst, out_channels) without `concat`, of x (num_src, in_channels) or
        of a pair with x of the destinations.

        edge_attr: features (num_edges, edge_dim) by the caller's order; PyTorch computes scores with them, edge by edge.
        return_attention_weights: True or False for the edges and the weight (edges, heads) of each, too, before dropout.
        """
        is_one = not isinstance(x, (tuple, list))
        x, own, graph = _sides(x, graph, None, pair(self.in_channels))
        if own is None:
            raise ValueError("x of the destinations is missing; GATv2Conv scores it")
        values = self._interleaved(self.lin_l, x)
        shares = is_one and self.share_weights
        destination = values[: graph.num_dst] if shares else self._interleaved(self.lin_r, own)
        sides = destination, values, self.att[0].t().reshape(1, -1)
        return self._attend(graph, sides, values, own, edge_attr, return_attention_weights is not None)
