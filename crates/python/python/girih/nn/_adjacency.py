"""`Adjacency`: a graph as layers read it, and products with it."""

from __future__ import annotations

from typing import Any, Union

import torch
from torch import Tensor

from .. import _girih
from .._girih import Block, Graph
from ._operators import Spmm

# Blocks on GPUs; none in a build without CUDA.
_CudaBlock: Any = getattr(_girih, "CudaBlock", ())
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Adjacency:
    """Edges from sources to destinations; destination v is source v.

    Layers make one of the graph that they are given. Make it yourself to call a compiled layer, or to sort an
    `edge_index` only once. It keeps what layers derive from it: normalisations, added self loops, the transpose.

    graph: a `girih.Graph`, a `girih.Block`, a `girih.cuda.Block`, or an `edge_index` (2, E) of integers: sources, then
        destinations.
    size: (number of sources, number of destinations) of an `edge_index`.
    """

    handle: Tensor
    rows: Tensor
    columns: Tensor
    is_block: bool
    # Numbers of sources and of destinations, where no tensors have been made of them.
    _sizes: tuple[int, int] | None = None

    def __init__(self, graph: Graph | Block | Tensor | Any, size: tuple[int, int] | None = None):
        self._take(graph, size)
        self._make_tensors()

    def _take(self, graph: Graph | Block | Tensor | Any, size: tuple[int, int] | None) -> None:
        self.is_block = isinstance(graph, (Block, _CudaBlock))
        if isinstance(graph, _CudaBlock):
            native = _girih.Adjacency.of_cuda_block(graph)
        elif isinstance(graph, Graph):
            native = _girih.Adjacency.of_graph(graph)
        elif isinstance(graph, Block):
            native = _girih.Adjacency.of_block(graph)
        elif isinstance(graph, Tensor):
            if size is None:
                raise ValueError("size is missing: the numbers of sources and of destinations of edge_index")
            native = _girih.Adjacency.of_edges(graph.detach().cpu().numpy(), size[0], size[1])
        else:
            raise TypeError(
                f"the graph is a {type(graph).__name__}; give a girih.Graph, a girih.Block, a girih.nn.Adjacency or an edge_index"
            )
        self._native = native
        self._edges: dict[tuple[bool, torch.device], Tensor] = {}

    def _make_tensors(self) -> None:
        """Makes what operators of `torch.ops.girih` take."""
        native = self._native
        # Sizes travel as those of empty tensors: compiled code then has nothing of one graph in it.
        self.rows, self.columns = torch.empty(native.num_dst, 0), torch.empty(native.num_src, 0)
        # The tensor keeps `native`, and with it what operators look up by the number.
        self.handle = torch.from_numpy(native.handle)
        self._sizes = None

    @classmethod
    def for_one_call(cls, graph: Graph | Block | Tensor | Any, size: tuple[int, int]) -> Adjacency:
        """Adjacency whose tensors are made when they are asked for: layers that are computed in one call need none."""
        made = cls.__new__(cls)
        made._take(graph, size)
        made._sizes = made._native.sizes
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in ("handle", "rows", "columns") or "_native" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._make_tensors()
        return self.__dict__[name]

    @property
    def number(self) -> int:
        """Number under which girih knows it."""
        return self._native.number

    @property
    def num_src(self) -> int:
        """Number of sources: rows of x."""
        return self.columns.shape[0] if self._sizes is None else self._sizes[0]

    @property
    def num_dst(self) -> int:
        """Number of destinations: rows of a result."""
        return self.rows.shape[0] if self._sizes is None else self._sizes[1]

    @property
    def num_edges(self) -> int:
        """Number of edges that the caller gave."""
        return self._native.num_edges

    def edges(self, loops: bool, device: torch.device | str = "cpu") -> Tensor:
        """For each entry, in the order of rows, the position of its edge in the caller's order, int64, on a device.

        With `loops`, each destination has an entry for its self loop; an added one of v is `num_edges + v`.
        """
        key = loops, torch.device(device)
        if key not in self._edges:
            self._edges[key] = torch.from_numpy(self._native.edges(loops)).to(device)
        return self._edges[key]

    def ends(self, loops: bool, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Source and destination of each entry, int64, in the order of `edges`, on a device."""
        sources, destinations = self._native.ends(loops)
        return torch.from_numpy(sources).to(device), torch.from_numpy(destinations).to(device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Adjacency:
        """Itself: nothing changes it, and a copied number would not keep it."""
        return self

    def __repr__(self) -> str:
        return f"girih.nn.Adjacency(num_src={self.num_src}, num_dst={self.num_dst}, num_edges={self.num_edges})"


GraphLike = Union[Graph, Block, Adjacency, Tensor, Any]
"""What a layer takes as its graph; also a `girih.cuda.Block`."""


def adjacency(graph: GraphLike, num_src: int, num_dst: int | None = None) -> Adjacency:
    """Adjacency of what a layer was given, for `num_src` rows of sources.

    Raises ValueError if the graph has other numbers of sources or, where it is given, of destinations.
    """
    if not isinstance(graph, Adjacency):
        graph = Adjacency.for_one_call(graph, (num_src, num_src if num_dst is None else num_dst))
    if graph.num_src != num_src:
        raise ValueError(f"x has {num_src} rows, but the graph has {graph.num_src} sources; give one row for each")
    if num_dst is not None and graph.num_dst != num_dst:
        raise ValueError(
            f"x of the destinations has {num_dst} rows, but the graph has {graph.num_dst} destinations; give one row for each"
        )
    return graph


def features(x: Tensor, width: int | None, name: str = "x") -> Tensor:
    """`x` (rows, width), checked.

    Raises ValueError on other shapes and devices, and TypeError on other types than float32, bfloat16 and float16.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; give a tensor")
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} is on {x.device}; girih.nn computes on the CPU and on CUDA: call .cpu() first")
    if x.dtype not in _FLOATS:
        raise TypeError(f"{name} is {x.dtype}; girih.nn computes in float32: call .float() first")
    if x.dim() != 2:
        raise ValueError(f"{name} has {x.dim()} dimensions; give (rows, columns)")
    if width is not None and x.shape[1] != width:
        raise ValueError(f"{name} has {x.shape[1]} columns, but the layer was made for {width}")
    return x


_is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._dynamo.is_compiling


def computes_at_once(x: Tensor) -> bool:
    """Whether `x` is a plain tensor, outside of a compiler and of torch's function transforms.

    Calls then leave out `torch.ops.girih`, whose dispatch costs more than a small product.
    """
    is_plain = type(x) in (Tensor, torch.nn.Parameter) and not _is_compiling()
    return is_plain and torch._C._functorch.peek_interpreter_stack() is None


def computed(x: Tensor) -> Tensor:
    """`x` in a type that operators compute in: float32, or bfloat16 on GPUs."""
    return x if x.dtype == torch.bfloat16 and x.is_cuda else x.float()


def propagate(x: Tensor, graph: Adjacency, kind: str, weights: Tensor | None = None) -> Tensor:
    """Product (num_dst, width) of an operand of the graph with `x` (num_src, width), in the type of `x`.

    `weights` (entries, 1), float32, replace the values of the operand.
    """
    if x.shape[0] != graph.num_src:
        raise ValueError(f"x has {x.shape[0]} rows, but the graph has {graph.num_src} sources; give one row for each")
    multiply: Any
    multiply = Spmm.apply if computes_at_once(x) else torch.ops.girih.spmm  # type: ignore[attr-defined,unused-ignore]
    out: Tensor = multiply(computed(x), weights, graph.handle, graph.rows, graph.columns, kind, False)
    return out.to(x.dtype)
