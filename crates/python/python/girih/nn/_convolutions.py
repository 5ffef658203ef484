"""Layers that sum over neighbors: GCN, SAGE, GIN, SGC, APPNP, and LightGCN's."""

from __future__ import annotations

import weakref
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ._adjacency import Adjacency, GraphLike, adjacency, computes_at_once, features, propagate
from ._base import Convolution, Linear, pair, reset, transforms_first
from ._fused import Layer, check_activation, run
from ._normalize import check_normalize, kind_of, normalized


class GCNConv(Convolution):
    """Graph convolution of Kipf and Welling (ICLR 2017): `Â·x·W + b`. The arguments are those of PyG.

    normalize: of a `girih.Block`, True weighs draws so that rows estimate those of the whole graph; "sampled" normalises
        the block alone, as PyG does. Of a whole graph both are PyG's normalisation.
    cached: keeps the graph of the first call, and `Â·x` of an x that comes again unchanged and needs no gradient.
    """

    bias: torch.nn.Parameter | None
    _cached: Adjacency | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool | str = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_normalize(normalize)
        add_self_loops = bool(normalize) if add_self_loops is None else add_self_loops
        if add_self_loops and not normalize:
            raise ValueError("GCNConv adds no self loops without normalisation; leave add_self_loops out")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.improved, self.cached, self.normalize, self.add_self_loops = improved, cached, normalize, add_self_loops
        self.lin = Linear(in_channels, out_channels, bias=False, glorot=True)
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters, and forgets the cached graph."""
        self.lin.reset_parameters()
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        self._cached = None
        self._seen: Any = None

    def forward(
        self, x: Tensor, graph: GraphLike, edge_weight: Tensor | None = None, *, activation: str | None = None
    ) -> Tensor:
        """Result (num_dst, out_channels) of x (num_src, in_channels); edge_weight (num_edges,) by the caller's order.

        activation: "relu" for the ReLU of the result, without passes of its own; None for none.
        """
        check_activation(activation)
        x = features(x, self.in_channels)
        graph = adjacency(graph, x.shape[0]) if self._cached is None else self._cached
        if self.cached:
            self._cached = graph
        first = transforms_first(x, self.in_channels, self.out_channels)
        if edge_weight is None and computes_at_once(x):
            layer = self.layer(graph, first, activation is not None)
            sums = self.kept(x, graph, layer.kind)
            return run(x, [layer]) if sums is None else run(sums, [layer._replace(graph=None)])
        multiply = normalized(
            graph, edge_weight, normalize=self.normalize, add_self_loops=self.add_self_loops, improved=self.improved
        )
        if first:
            out = multiply(self.lin(x))
        else:
            out = self.lin(multiply(x))
        return _activated(out if self.bias is None else out + self.bias, activation)

    def layer(self, graph: Adjacency, transforms_first: bool, relu: bool, dropout: float = 0.0) -> Layer:
        """The layer, with what follows it, as one of several that are computed in one call."""
        kind = kind_of(graph, normalize=self.normalize, add_self_loops=self.add_self_loops, improved=self.improved)
        return Layer(graph, kind, (self.lin.weight, self.bias, None), transforms_first, relu, dropout)

    def kept(self, x: Tensor, graph: Adjacency, kind: str) -> Tensor | None:
        """`Â·x` from the second call with the same x on; None for another x, or one that was written to."""
        if not self.cached or x.requires_grad or x.is_inference() or x.dtype != self.lin.weight.dtype:
            return None
        seen = self._seen
        if seen is None or seen[0]() is not x or seen[1:3] != (x._version, kind):
            self._seen = weakref.ref(x), x._version, kind, None
            return None
        if seen[3] is None:
            with torch.no_grad():
                self._seen = *seen[:3], propagate(x, graph, kind)
        sums: Tensor = self._seen[3]
        return sums

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"


def _activated(out: Tensor, activation: str | None) -> Tensor:
    return out if activation is None else out.relu()


def _sides(
    x: Tensor | tuple[Tensor, Tensor | None],
    graph: GraphLike,
    size: tuple[int, int] | None,
    widths: tuple[int | None, int | None],
) -> tuple[Tensor, Tensor | None, Adjacency]:
    """Sources, destinations and adjacency of a layer's arguments; destinations of one tensor are its first rows."""
    sources, destinations = x if (is_pair := isinstance(x, (tuple, list))) else (x, None)
    sources = features(sources, widths[0])
    n_destinations = None if size is None else size[1]
    if destinations is not None:
        destinations = features(destinations, widths[1], "x of the destinations")
        n_destinations = destinations.shape[0]
    if is_pair and n_destinations is None and isinstance(graph, Tensor):
        raise ValueError("size is missing: without x of the destinations, give (number of sources, number of destinations)")
    graph = adjacency(graph, sources.shape[0], n_destinations)
    if not is_pair:
        features(sources, widths[1])
        destinations = sources if graph.num_src == graph.num_dst else sources[: graph.num_dst]
    return sources, destinations, graph


class SAGEConv(Convolution):
    """GraphSAGE of Hamilton et al. (NeurIPS 2017): `mean(x)·W + x·V + b`. The arguments are those of PyG.

    aggr: "mean" or "sum".
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: str = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if aggr not in ("mean", "add", "sum"):
            raise NotImplementedError(f"SAGEConv has no aggr={aggr!r}; girih.nn has 'mean' and 'sum'")
        self.in_channels, self.out_channels, self.aggr = in_channels, out_channels, aggr
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        of_sources, of_destinations = pair(in_channels)
        if project:
            self.lin = Linear(of_sources, of_sources)
        self.lin_l = Linear(of_sources, out_channels, bias=bias)
        if root_weight:
            self.lin_r = Linear(of_destinations, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        child: Any
        for child in self.children():
            child.reset_parameters()

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        graph: GraphLike,
        size: tuple[int, int] | None = None,
        *,
        activation: str | None = None,
    ) -> Tensor:
        """Result (num_dst, out_channels) of x (num_src, in_channels), or of a pair with x of the destinations.

        size: (num_src, num_dst) of an `edge_index`, where x does not tell it.
        activation: "relu" for the ReLU of the result, without passes of its own; None for none.
        """
        check_activation(activation)
        # Projected sources are other rows than the destinations.
        is_one = not isinstance(x, (tuple, list)) and not (self.project and self.root_weight)
        x, own, graph = _sides(x, graph, size, pair(self.in_channels))
        if self.project:
            x = torch.relu(self.lin(x))
        first = transforms_first(x, x.shape[1], self.out_channels)
        if computes_at_once(x) and is_one:
            if not self.normalize:
                return run(x, [self._linear_map(graph, first, activation is not None)])
            return _activated(F.normalize(run(x, [self._linear_map(graph, first)]), p=2.0, dim=-1), activation)
        kind = self._kind
        if first:
            out = propagate(F.linear(x, self.lin_l.weight), graph, kind)
            out = out if self.lin_l.bias is None else out + self.lin_l.bias
        else:
            out = self.lin_l(propagate(x, graph, kind))
        if self.root_weight and own is not None:
            out = out + self.lin_r(own)
        return _activated(F.normalize(out, p=2.0, dim=-1) if self.normalize else out, activation)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, aggr={self.aggr}"

    @property
    def _kind(self) -> str:
        return "mean" if self.aggr == "mean" else "sum"

    def _linear_map(self, graph: Adjacency, transforms_first: bool, relu: bool = False, dropout: float = 0.0) -> Layer:
        """The layer for projected rows, before it is normalised."""
        neighbors = self.lin_l
        parameters = neighbors.weight, neighbors.bias, self.lin_r.weight if self.root_weight else None
        return Layer(graph, self._kind, parameters, transforms_first, relu, dropout)

    def layer(self, graph: Adjacency, transforms_first: bool, relu: bool, dropout: float = 0.0) -> Layer | None:
        """The layer, with what follows it, as one of several; None if rows are projected or normalised."""
        return None if self.project or self.normalize else self._linear_map(graph, transforms_first, relu, dropout)


class GINConv(Convolution):
    """Graph isomorphism network of Xu et al. (ICLR 2019): `nn((1 + eps)·x + sum(x))`. The arguments are those of PyG."""

    eps: Tensor

    def __init__(self, nn: Callable[[Tensor], Tensor], eps: float = 0.0, train_eps: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nn, self.initial_eps = nn, eps
        if train_eps:
            self.eps = torch.nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        reset(self.nn)
        with torch.no_grad():
            self.eps.fill_(self.initial_eps)

    def forward(self, x: Tensor | tuple[Tensor, Tensor | None], graph: GraphLike, size: tuple[int, int] | None = None) -> Tensor:
        """Result (num_dst, …) of `nn` for x (num_src, width), or for a pair with x of the destinations."""
        x, own, graph = _sides(x, graph, size, (None, None))
        out = propagate(x, graph, "sum")
        return self.nn(out if own is None else out + (1 + self.eps) * own)


def _check_steps(graph: Adjacency, steps: int) -> None:
    if steps > 1 and graph.num_src != graph.num_dst:
        raise ValueError(f"K={steps} steps go over one graph, but this one has {graph.num_src} sources and {graph.num_dst} destinations")


class SGConv(Convolution):
    """Simplified graph convolution of Wu et al. (ICML 2019): `Âᴷ·x·W + b`. The arguments are those of PyG.

    cached: keeps `Âᴷ·x` of the first call.
    """

    _cached: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 1,
        cached: bool = False,
        add_self_loops: bool = True,
        bias: bool = True,
        *,
        normalize: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_normalize(normalize)
        self.in_channels, self.out_channels, self.K = in_channels, out_channels, K
        self.cached, self.add_self_loops, self.normalize = cached, add_self_loops, normalize
        self.lin = Linear(in_channels, out_channels, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters, and forgets what is cached."""
        self.lin.reset_parameters()
        self._cached = None

    def forward(self, x: Tensor, graph: GraphLike, edge_weight: Tensor | None = None) -> Tensor:
        """Result (num_dst, out_channels) of x (num_src, in_channels); edge_weight (num_edges,) by the caller's order."""
        x = features(x, self.in_channels)
        if self._cached is not None:
            again: Tensor = self.lin(self._cached.detach())
            return again
        graph = adjacency(graph, x.shape[0])
        _check_steps(graph, self.K)
        multiply = normalized(graph, edge_weight, normalize=self.normalize, add_self_loops=self.add_self_loops)
        is_narrow = not self.cached and transforms_first(x, self.in_channels, self.out_channels)
        out = F.linear(x, self.lin.weight) if is_narrow else x
        for _ in range(self.K):
            out = multiply(out)
        if is_narrow:
            return out if self.lin.bias is None else out + self.lin.bias
        if self.cached:
            self._cached = out
        result: Tensor = self.lin(out)
        return result

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, K={self.K}"


class APPNP(Convolution):
    """Personalised propagation of Gasteiger et al. (ICLR 2019), K times `x = (1 - alpha)·Â·x + alpha·x₀`. The arguments are
    those of PyG.

    cached: keeps the graph of the first call.
    """

    _cached: Adjacency | None

    def __init__(
        self,
        K: int,
        alpha: float,
        dropout: float = 0.0,
        cached: bool = False,
        add_self_loops: bool = True,
        normalize: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_normalize(normalize)
        if dropout != 0:
            raise NotImplementedError(f"APPNP has no dropout={dropout} of edges in girih.nn; leave dropout out")
        self.K, self.alpha, self.dropout, self.cached = K, alpha, dropout, cached
        self.add_self_loops, self.normalize = add_self_loops and bool(normalize), normalize

    def reset_parameters(self) -> None:
        """Forgets the cached graph; there are no parameters."""
        self._cached = None

    def forward(self, x: Tensor, graph: GraphLike, edge_weight: Tensor | None = None) -> Tensor:
        """Result (num_dst, width) of x (num_src, width); edge_weight (num_edges,) by the caller's order."""
        x = features(x, None)
        graph = adjacency(graph, x.shape[0]) if self._cached is None else self._cached
        if self.cached:
            self._cached = graph
        _check_steps(graph, self.K)
        multiply = normalized(graph, edge_weight, normalize=self.normalize, add_self_loops=self.add_self_loops)
        start = self.alpha * (x if graph.num_src == graph.num_dst else x[: graph.num_dst])
        for _ in range(self.K):
            x = multiply(x) * (1 - self.alpha) + start
        return x

    def extra_repr(self) -> str:
        return f"K={self.K}, alpha={self.alpha}"


class LGConv(Convolution):
    """Convolution of LightGCN, He et al. (SIGIR 2020): `Â·x` without self loops. The arguments are those of PyG."""

    def __init__(self, normalize: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_normalize(normalize)
        self.normalize = normalize

    def reset_parameters(self) -> None:
        """Does nothing: there are no parameters."""

    def forward(self, x: Tensor, graph: GraphLike, edge_weight: Tensor | None = None) -> Tensor:
        """Result (num_dst, width) of x (num_src, width); edge_weight (num_edges,) by the caller's order."""
        x = features(x, None)
        return normalized(adjacency(graph, x.shape[0]), edge_weight, normalize=self.normalize, add_self_loops=False)(x)
