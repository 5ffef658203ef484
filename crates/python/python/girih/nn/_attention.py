"""Layers that attend to neighbors: GAT and GATv2.

Parameters have PyG's layout, in which columns of a head lie side by side. The operator interleaves heads, so that rows of
weights are exchanged before a product, and columns of the result after it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._adjacency import Adjacency, GraphLike, computed
from ._base import Convolution, Linear, glorot, pair
from ._convolutions import _sides


class _Attention(Convolution):
    """What GAT and GATv2 share: arguments, residual, bias, and the sum over neighbors."""

    bias: torch.nn.Parameter | None

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
        if edge_dim is not None:
            raise NotImplementedError(f"{type(self).__name__} has no edge_dim in girih.nn; leave edge_dim out")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a probability from 0 to below 1")
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.edge_dim, self.fill_value = edge_dim, fill_value
        for name in attention:
            self.register_parameter(name, torch.nn.Parameter(torch.empty(1, heads, out_channels)))

    def _finish(self, bias: bool, residual: bool) -> None:
        width = self.out_channels * (self.heads if self.concat else 1)
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

    def _check(self, edge_attr: object) -> None:
        if edge_attr is not None:
            raise NotImplementedError(f"{type(self).__name__} has no edge_attr in girih.nn; leave edge_attr out")

    def _weights(
        self, graph: Adjacency, destination: Tensor, source: Tensor, vector: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Edges (2, entries): sources, then destinations; and the weights (entries, heads) of attention, before dropout.

        Edges are in the caller's order. With `add_self_loops`, those of nodes to themselves follow, by node, as in PyG.
        """
        loops, device = self.add_self_loops, source.device
        src, dst = graph.ends(loops, device)
        place = graph.edges(loops, device)
        if loops:
            place = torch.where(src == dst, graph.num_edges + dst, place)
        order = place.argsort()
        src, dst = src[order], dst[order]
        scores = F.leaky_relu(destination[dst] + source[src], self.negative_slope)
        if vector is not None:
            scores = (scores * vector).view(-1, self.out_channels, self.heads).sum(dim=1)
        by_head = dst.view(-1, 1).expand(-1, self.heads)
        most = scores.new_full((graph.num_dst, self.heads), -torch.inf).scatter_reduce(0, by_head, scores.detach(), "amax")
        shares = (scores - most[dst]).exp()
        sums = shares.new_zeros(graph.num_dst, self.heads).index_add(0, dst, shares)
        return torch.stack([src, dst]), shares / sums[dst]

    def _attend(
        self,
        graph: Adjacency,
        destination: Tensor,
        source: Tensor,
        vector: Tensor | None,
        values: Tensor,
        own: Tensor | None,
    ) -> Tensor:
        """Result (num_dst, width) of attention: scores or features of both sides, and values of the sources."""
        is_dropped = self.training and self.dropout > 0
        key = torch.randint(2**62, (1,)) if is_dropped else None
        out: Tensor
        out, _ = torch.ops.girih.attention(  # type: ignore[attr-defined,unused-ignore]
            computed(destination), computed(source), None if vector is None else computed(vector), computed(values), graph.handle,
            key, self.heads, self.negative_slope, self.dropout, "pattern+loops" if self.add_self_loops else "pattern",
        )  # fmt: skip
        out = out.to(values.dtype)
        if self.heads > 1:
            by_head = out.view(-1, self.out_channels, self.heads)
            out = by_head.transpose(1, 2).reshape(out.shape) if self.concat else by_head.mean(dim=-1)
        if self.res is not None and own is not None:
            out = out + self.res(own)
        return out if self.bias is None else out + self.bias

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
        super().__init__(("att_src", "att_dst"), in_channels, out_channels, heads, concat, negative_slope, dropout,
                         add_self_loops, edge_dim, fill_value, kwargs)  # fmt: skip
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, bias=False, glorot=True)
        else:
            self.lin_src = Linear(in_channels[0], width, bias=False, glorot=True)
            self.lin_dst = Linear(in_channels[1], width, bias=False, glorot=True)
        self._finish(bias, residual)

    def _scores(self, values: Tensor, att: Tensor) -> Tensor:
        """Scores (rows, heads) of interleaved values: one product with the block diagonal of the heads' vectors."""
        return values @ torch.diag_embed(att[0].t()).reshape(-1, self.heads)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        graph: GraphLike,
        edge_attr: None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Result (num_dst, heads·out_channels), or (num_dst, out_channels) without `concat`, of x (num_src, in_channels) or
        of a pair with x of the destinations. `edge_attr` is not there yet.

        size: (num_src, num_dst) of an `edge_index`, where x does not tell it.
        return_attention_weights: True or False for the edges and the weight (edges, heads) of each, too, before dropout.
        """
        self._check(edge_attr)
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
        source = self._scores(values, self.att_src)
        out = self._attend(graph, destination, source, None, values, own)
        if return_attention_weights is None:
            return out
        return out, self._weights(graph, destination, source, None)


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
        edge_attr: None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Result (num_dst, heads·out_channels), or (num_dst, out_channels) without `concat`, of x (num_src, in_channels) or
        of a pair with x of the destinations. `edge_attr` is not there yet.

        return_attention_weights: True or False for the edges and the weight (edges, heads) of each, too, before dropout.
        """
        self._check(edge_attr)
        is_one = not isinstance(x, (tuple, list))
        x, own, graph = _sides(x, graph, None, pair(self.in_channels))
        if own is None:
            raise ValueError("x of the destinations is missing; GATv2Conv scores it")
        values = self._interleaved(self.lin_l, x)
        shares = is_one and self.share_weights
        destination = values[: graph.num_dst] if shares else self._interleaved(self.lin_r, own)
        vector = self.att[0].t().reshape(1, -1)
        out = self._attend(graph, destination, values, vector, values, own)
        if return_attention_weights is None:
            return out
        return out, self._weights(graph, destination, values, vector)
