"""Models of several layers, with the arguments and state dicts of PyG's: GCN, GraphSAGE and GAT."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._adjacency import Adjacency, GraphLike, adjacency, computes_at_once, features
from ._attention import GATConv, GATv2Conv
from ._base import Convolution, transforms_first
from ._convolutions import GCNConv, SAGEConv
from ._fused import Layer, run

_ACTIVATIONS = {"relu": torch.nn.ReLU, "elu": torch.nn.ELU, "gelu": torch.nn.GELU, "leaky_relu": torch.nn.LeakyReLU}
_JUMPS = (None, "last", "cat", "max")


class Model(torch.nn.Module):
    """Layers one after the other, with activation, norm and dropout between them. The arguments are those of PyG.

    dropout: probability, behind each activation.
    act: "relu", "elu", "gelu", "leaky_relu", a module or function, or None.
    norm: a module for hidden rows, which is copied for each layer, or None.
    jk: "last", "cat" or "max" of the layers' results, with a linear map behind; None for none.
    options: those of the layers.

    With ReLU, without norm, "cat" and "max", all layers of GCN and GraphSAGE are one call of girih each way.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        act_first: bool = False,
        norm: torch.nn.Module | None = None,
        jk: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(in_channels, int):
            raise NotImplementedError(f"{name} of girih.nn has one width of x; give a number for in_channels")
        if num_layers < 1:
            raise ValueError(f"num_layers is {num_layers}; give at least 1")
        if jk not in _JUMPS:
            raise NotImplementedError(f"{name} has no jk={jk!r}; girih.nn has None, 'last', 'cat' and 'max'")
        if norm is not None and not isinstance(norm, torch.nn.Module):
            raise NotImplementedError(f"{name} of girih.nn takes a module as norm, not {norm!r}; give torch.nn.BatchNorm1d(…) itself")
        self.in_channels, self.hidden_channels, self.num_layers = in_channels, hidden_channels, num_layers
        self.out_channels = hidden_channels if out_channels is None else out_channels
        self.dropout, self.act, self.act_first, self.jk_mode = torch.nn.Dropout(dropout), _activation(act), act_first, jk
        has_last = jk is None and out_channels is not None
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), self.out_channels if has_last else hidden_channels]
        ends = [has_last and at + 1 == num_layers for at in range(num_layers)]
        self.convs = torch.nn.ModuleList(
            self.init_conv(*pair, is_last=is_last, **options) for *pair, is_last in zip(widths, widths[1:], ends)
        )
        between = num_layers - (jk is None)
        made = [copy.deepcopy(norm) if norm is not None and at < between else torch.nn.Identity() for at in range(num_layers)]
        self.norms = torch.nn.ModuleList(made)
        if jk is not None:
            self.lin = torch.nn.Linear(hidden_channels * (num_layers if jk == "cat" else 1), self.out_channels)

    def init_conv(self, in_channels: int, out_channels: int, *, is_last: bool, **options: Any) -> Convolution:
        """A layer; `is_last` says that its result is that of the model."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        child: Any
        for child in (*self.convs, *self.norms, *([self.lin] if self.jk_mode is not None else [])):
            if hasattr(child, "reset_parameters"):
                child.reset_parameters()

    # Arguments of `forward` that layers take.
    _takes: tuple[str, ...] = ()

    def forward(
        self,
        x: Tensor,
        graph: GraphLike | Sequence[GraphLike],
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Result (num_dst, out_channels) of x (num_src, in_channels).

        graph: the graph of all layers, as layers take it; or a list with the block of each layer, as `batch.blocks()`.
        edge_weight: (num_edges,) by the caller's order, of one graph, for GCN.
        edge_attr: (num_edges, edge_dim) by the caller's order, of one graph, for GAT with `edge_dim`.
        """
        x = features(x, self.in_channels)
        graphs = self._graphs(x, graph)
        given = {name: of for name, of in (("edge_weight", edge_weight), ("edge_attr", edge_attr)) if of is not None}
        for name in given:
            if name not in self._takes:
                raise ValueError(f"{type(self).__name__} takes no {name}; leave it out")
            if isinstance(graph, (list, tuple)):
                raise ValueError(f"{name} is for one graph of all layers, not for blocks; call the layers themselves")
        if not given and computes_at_once(x):
            made = self._layers(x, graphs)
            if made is not None:
                return run(*made)
        return self._by_layers(x, graphs, given)

    def _graphs(self, x: Tensor, graph: GraphLike | Sequence[GraphLike]) -> list[Adjacency]:
        if not isinstance(graph, (list, tuple)):
            first: Any = self.convs[0]
            is_cached = getattr(first, "cached", False)
            kept: Adjacency | None = first._cached if is_cached else None
            found = adjacency(graph, x.shape[0]) if kept is None else kept
            if is_cached:
                first._cached = found
            return [found] * self.num_layers
        if len(graph) != self.num_layers:
            raise ValueError(f"{len(graph)} blocks for {self.num_layers} layers; sample with as many fan-outs as there are layers")
        graphs: list[Adjacency] = []
        for each in graph:
            graphs.append(adjacency(each, graphs[-1].num_dst if graphs else x.shape[0]))
        return graphs

    def _layers(self, x: Tensor, graphs: list[Adjacency]) -> tuple[Tensor, list[Layer]] | None:
        """Rows and all layers for one call; None where there is more between them."""
        if type(self.act) is not torch.nn.ReLU or self.jk_mode in ("cat", "max"):
            return None
        if any(type(norm) is not torch.nn.Identity for norm in self.norms):
            return None
        dropout = self.dropout.p if self.dropout.training else 0.0
        if dropout >= 1:
            return None
        layers: list[Layer] = []
        conv: Any
        for at, (conv, graph) in enumerate(zip(self.convs, graphs)):
            width, out = conv.in_channels, conv.out_channels
            first = out < width if layers else transforms_first(x, width, out)
            has_relu = at + 1 < self.num_layers or self.jk_mode is not None
            layer = conv.layer(graph, first, has_relu, dropout if has_relu else 0.0)
            if layer is None:
                return None
            sums = None if layers else conv.kept(x, graph, layer.kind)
            if sums is not None:
                x, layer = sums, layer._replace(graph=None)
            layers.append(layer)
        if self.jk_mode is not None:
            layers.append(Layer(None, "", (self.lin.weight, self.lin.bias, None)))
        return x, layers

    def _by_layers(self, x: Tensor, graphs: list[Adjacency], given: dict[str, Tensor]) -> Tensor:
        results = []
        for at, (conv, norm, graph) in enumerate(zip(self.convs, self.norms, graphs)):
            x = conv(x, graph, **given)
            if at + 1 == self.num_layers and self.jk_mode is None:
                return x
            if self.act_first:
                x = norm(self.act(x))
            else:
                x = self.act(norm(x))
            x = self.dropout(x)
            results.append(x if x.shape[0] == graphs[-1].num_dst else x[: graphs[-1].num_dst])
        if self.jk_mode == "cat":
            x = torch.cat(results, dim=-1)
        elif self.jk_mode == "max":
            x = torch.stack(results, dim=-1).max(dim=-1)[0]
        out: Tensor = self.lin(x)
        return out

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, num_layers={self.num_layers}"


def _activation(act: str | Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor]:
    if act is None:
        return torch.nn.Identity()
    if not isinstance(act, str):
        return act
    if act.lower() not in _ACTIVATIONS:
        raise NotImplementedError(f"no act={act!r}; there are {', '.join(map(repr, _ACTIVATIONS))}, or a module")
    made: torch.nn.Module = _ACTIVATIONS[act.lower()]()
    return made


class GCN(Model):
    """Layers `GCNConv`; see `Model`."""

    _takes = ("edge_weight",)

    def init_conv(self, in_channels: int, out_channels: int, *, is_last: bool, **options: Any) -> GCNConv:
        """A layer."""
        return GCNConv(in_channels, out_channels, **options)


class GraphSAGE(Model):
    """Layers `SAGEConv`; see `Model`."""

    def init_conv(self, in_channels: int, out_channels: int, *, is_last: bool, **options: Any) -> SAGEConv:
        """A layer."""
        return SAGEConv(in_channels, out_channels, **options)


class GAT(Model):
    """Layers `GATConv`, or `GATv2Conv` if `v2`; see `Model`.

    heads, concat: of hidden layers, whose heads share hidden_channels; the last layer takes the mean of its heads.
    """

    _takes = ("edge_attr",)

    def init_conv(
        self,
        in_channels: int,
        out_channels: int,
        *,
        is_last: bool,
        v2: bool = False,
        heads: int = 1,
        concat: bool = True,
        **options: Any,
    ) -> GATConv | GATv2Conv:
        """A layer."""
        concat = concat and not is_last
        if concat and out_channels % heads != 0:
            raise ValueError(f"hidden_channels is {out_channels}, no multiple of heads={heads}")
        make = GATv2Conv if v2 else GATConv
        width = out_channels // heads if concat else out_channels
        return make(in_channels, width, heads=heads, concat=concat, dropout=self.dropout.p, **options)
