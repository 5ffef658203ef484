"""Batches and features on a GPU, as tensors of PyTorch without a copy.

Tensors lie in the order of the stream that is current when the graph and the features are made; batches are made ahead on
other streams. On another current stream, tensors are ready as well, but freeing them waits for the whole GPU.
Memory comes from a pool of its own beside PyTorch's: see `memory`, `empty_cache` and `set_memory_limit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import girih

from . import _girih, _libraries
from ._loader import sampler_of, store_of
from ._streams import current_stream

__all__ = ["Batch", "Block", "FeatureStore", "Graph", "NeighborLoader", "empty_cache", "memory", "set_memory_limit"]

if not hasattr(_girih, "CudaGraph"):
    raise ImportError("this build of girih has no CUDA")

Block = _girih.CudaBlock
"""Bipartite graph of one layer on a GPU, for `girih.nn`: destinations are the first of the sources."""

Device = torch.device | str | int | None


def _ordinal(device: Device) -> int:
    if torch.cuda.is_available():
        _libraries.load()
    else:
        raise RuntimeError("PyTorch sees no CUDA GPU here; girih.NeighborLoader makes batches on the CPU")
    found = torch.device("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)
    if found.type != "cuda":
        raise ValueError(f"device is {found}; girih.cuda takes CUDA devices, such as \"cuda:0\"")
    ordinal = torch.cuda.current_device() if found.index is None else found.index
    if ordinal >= torch.cuda.device_count():
        raise ValueError(f"device is cuda:{ordinal}, but PyTorch sees {torch.cuda.device_count()} GPU(s)")
    return ordinal


def _at(device: Device) -> tuple[int, int]:
    """GPU of a device, and the current stream there."""
    ordinal = _ordinal(device)
    return ordinal, torch.cuda.current_stream(ordinal).cuda_stream


def _tensor(array: _girih.DeviceArray) -> Tensor:
    """Tensor over memory of girih, ready on the current stream. `from_dlpack` of PyTorch asks more, and takes longer."""
    ordinal = array.__dlpack_device__()[1]
    made: Tensor = torch._C._from_dlpack(array.__dlpack__(stream=current_stream(ordinal)))  # type: ignore[attr-defined,unused-ignore]
    return made


class Graph:
    """Graph from which a GPU samples, for any number of loaders.

    graph: the `girih.Graph` on the host, which stays there, too.
    device: the GPU; default: PyTorch's current one.
    placement: "device" for memory of the GPU, "host" for pinned memory that the GPU reads over the bus.

    Raises MemoryError if memory does not suffice.
    """

    def __init__(self, graph: girih.Graph, device: Device = None, *, placement: str = "device") -> None:
        if placement not in ("device", "host"):
            raise ValueError(f"no placement {placement!r}; there are \"device\" and \"host\"")
        self.graph = graph
        self._native = _girih.CudaGraph(graph, _at(device), placement == "host")

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", self._native.device)

    def __repr__(self) -> str:
        return repr(self._native)


class FeatureStore:
    """Rows of features that a GPU gathers, for any number of loaders.

    rows: a `girih.FeatureStore`, compressed or not, in memory or mapped; or an array (rows, columns).
    device: the GPU; default: PyTorch's current one.
    placement: "device" for memory of the GPU, "host" for memory of the host or a mapped file. Sparse rows, and codes
        other than "topk", are decoded for it once; on the host, threads decode the rows of each batch.
    cache: share of hot rows that are on the GPU, too, of rows on the host; 0 to 1.
    graph: decides which rows are hot: those of the nodes that most nodes have as neighbors. Default: the first rows.
    dtype: "float32" or "bfloat16", of gathered rows.

    Raises MemoryError if memory does not suffice.
    """

    def __init__(
        self,
        rows: Any,
        device: Device = None,
        *,
        placement: str = "device",
        cache: float = 0.0,
        graph: girih.Graph | None = None,
        dtype: str = "float32",
    ) -> None:
        store = store_of(rows.detach().cpu().numpy() if isinstance(rows, Tensor) else rows)
        self._native = _girih.CudaFeatures(store, _at(device), (placement, cache), dtype, graph)

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", self._native.device)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns."""
        return self._native.shape

    def gather(self, ids: Any) -> Tensor:
        """Rows (len(ids), columns) of `ids`; ids of a GPU's tensor are checked on the host.

        Raises IndexError for an id that is no row.
        """
        ids = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else ids
        return _tensor(self._native.gather(ids))[:, : self.shape[1]]

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return repr(self._native)


class Batch:
    """Mini-batch on a GPU. Its tensors are views of its memory, and outlive it."""

    y: Tensor | None
    """Labels of the seeds; None without labels."""

    def __init__(self, native: _girih.CudaBatch, y: Tensor | None = None) -> None:
        self._native = native
        self.batch_size: int = native.batch_size
        self.number: int = native.number
        self.y = y

    @cached_property
    def edge_index(self) -> Tensor:
        """Sources and destinations of edges, (2, E): positions in `n_id`."""
        return _tensor(self._native.edge_index)

    @cached_property
    def n_id(self) -> Tensor:
        """Global ids of the nodes, the seeds first."""
        native = self._native
        if native.has_list:
            return _tensor(native.n_id)
        nodes = _tensor(native.nodes)
        return nodes.long() if native.is_wide or not native.is_list else nodes

    @cached_property
    def e_id(self) -> Tensor | None:
        """Names of edges, (E,); None if the sampler keeps none."""
        e_id = self._native.e_id
        return None if e_id is None else _tensor(e_id)

    @cached_property
    def x(self) -> Tensor | None:
        """Feature rows of the nodes; None without features. Rows may be further apart than their columns."""
        x = self._native.x
        return None if x is None else _tensor(x[0])[:, : x[1]]

    @property
    def num_sampled_nodes(self) -> list[int]:
        """Number of seeds, then of the nodes that each hop found."""
        return self._native.num_sampled_nodes

    @property
    def num_sampled_edges(self) -> list[int]:
        """Number of edges that each hop drew."""
        return self._native.num_sampled_edges

    @property
    def digest(self) -> int:
        """Digest of the blocks, as `girih sample` prints it; the batch is downloaded for it."""
        return self._native.digest

    def blocks(self) -> list[_girih.CudaBlock]:
        """Blocks in the order of layers, the inputs first, for `girih.nn`."""
        return self._native.blocks()

    def __repr__(self) -> str:
        return repr(self._native)


class NeighborLoader:
    """Batches of sampled neighbors of `seeds` on a GPU, made ahead of the step; each `iter()` is the next epoch.

    graph: a `girih.cuda.Graph`, or a `girih.Graph`, which is uploaded.
    seeds: ids of nodes, or a mask of all nodes; none twice.
    num_neighbors: number of neighbors a hop, from the seeds outward, -1 for all; or a `girih.Sampler` of neighbors.
    device: the GPU of a `girih.Graph`.
    features: a `girih.cuda.FeatureStore`, or rows, which are uploaded; then batches have `x`, the rows of their nodes.
    labels: a tensor or array with a row for each node; then batches have `y`, the rows of their seeds.
    options: those of `girih.Sampler`; draws="labor" is for the CPU.

    Batches equal those of `girih.NeighborLoader`, id for id: they depend on (seed, epoch, batch) alone.
    """

    def __init__(
        self,
        graph: Graph | girih.Graph,
        seeds: Any,
        num_neighbors: Sequence[int] | girih.Sampler,
        *,
        device: Device = None,
        batch_size: int = 1024,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        features: FeatureStore | Any = None,
        labels: Tensor | Any = None,
        **options: Any,
    ) -> None:
        if isinstance(graph, Graph):
            if device is not None and _ordinal(device) != graph.device.index:
                raise ValueError(f"device is {device}, but the graph is on {graph.device}")
        else:
            graph = Graph(graph, device)
        if features is not None and not isinstance(features, FeatureStore):
            features = FeatureStore(features, graph.device)
        if isinstance(num_neighbors, girih.Sampler):
            made = sampler_of(num_neighbors, None, options)
        else:
            made = sampler_of(graph.graph, num_neighbors, options)
        if not isinstance(made, girih.Sampler):
            raise NotImplementedError("GPUs sample graphs without types; sample on the CPU")
        self.sampler = made
        seeds = seeds.detach().cpu().numpy() if isinstance(seeds, Tensor) else seeds
        self.graph, self.features, self.batch_size = graph, features, batch_size
        self.labels: Tensor | None = None if labels is None else torch.as_tensor(labels).to(graph.device)
        if self.labels is not None and self.labels.shape[:1] != (graph.graph.num_nodes,):
            raise ValueError(f"labels of shape {tuple(self.labels.shape)} for {graph.graph.num_nodes} nodes; give one row for each")
        self._loader = _girih.CudaLoader(
            graph._native,
            self.sampler,
            seeds,
            (batch_size, shuffle, drop_last, seed),
            None if features is None else features._native,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(iter(self._loader))

    def epoch(self, number: int, *, first: int = 0) -> Iterator[Batch]:
        """Epoch by its number, from batch `first` on, for a training that goes on after a stop."""
        return self._batches(self._loader.epoch(number, first=first))

    def _batches(self, epoch: _girih.CudaEpoch) -> Iterator[Batch]:
        if self.labels is None:
            return map(Batch, epoch)
        # Gathered once an epoch: a batch has a view.
        order = torch.from_numpy(epoch.seeds()).to(self.labels.device)
        return map(Batch, epoch, torch.split(self.labels[order], self.batch_size))

    def __reduce__(self) -> Any:
        raise TypeError("a loader of a GPU does not pickle; make one in each process")


def memory(device: Device = None) -> tuple[int, int]:
    """Bytes that girih uses on a GPU, and bytes that its pool keeps there, these included."""
    return _girih.cuda_memory(_ordinal(device))


def empty_cache(device: Device = None) -> None:
    """Returns memory of girih's pool to the GPU that nothing uses, for PyTorch and others."""
    _girih.cuda_empty_cache(_ordinal(device))


def set_memory_limit(n_bytes: int, device: Device = None) -> None:
    """Limits the bytes of girih's pool on a GPU.

    Raises ValueError once the pool is in use.
    """
    _girih.cuda_set_memory_limit(_ordinal(device), n_bytes)
