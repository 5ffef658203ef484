"""What loaders with `device="cuda"` keep on the GPU: the graph, feature rows, and attributes of nodes and edges."""

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import SamplerOutput  # type: ignore[import-untyped,unused-ignore]

import girih

from .. import _girih
from .graphs import selected
from .sampler import NeighborSampler

_AHEAD = 4
"""Batches that are requested before the first of them is taken: the next one is then made during the step."""


class Requested:
    """Batches on a GPU of seeds that are known a few batches ahead alone.

    most: largest number of seeds of a batch.
    """

    def __init__(self, data: "OnGpu", most: int) -> None:
        features = None if data.rows is None else data.rows._native
        self._loader = _girih.CudaLoader(data.graph._native, data.sampler.sampler, None, (most, False, False, 0), features)

    def batches(self, requests: Iterable[tuple[Tensor, int, Any]]) -> Iterator[tuple[Any, Any]]:
        """Batch for each of (seeds, seed of draws, anything), with the last of these."""
        import girih.cuda as cuda

        made, waiting = self._loader.requests(), deque[Any]()
        for seeds, seed, anything in requests:
            made.request(seeds.numpy(), seed)
            waiting.append(anything)
            if len(waiting) == _AHEAD:
                yield cuda.Batch(next(made)), waiting.popleft()
        made.finish()
        yield from zip(map(cuda.Batch, made), waiting, strict=True)


def on_gpu(data: Any, sampler: Any, device: Any, x: Any, *, placement: str, cache: float) -> "OnGpu | None":
    """Data of a loader on a GPU, as `OnGpu`; None for the CPU, where rows have no placement and no cache."""
    if device is None or torch.device("cpu") == device:
        if (placement, cache) != ("device", 0.0):
            raise ValueError("placement and cache are for a GPU; give device=\"cuda\", too")
        return None
    if not isinstance(sampler, NeighborSampler):
        raise TypeError("device= takes a neighbor_sampler of girih; leave it out, or give a girih.pyg.NeighborSampler")
    return OnGpu(data, sampler, device, x, placement=placement, cache=cache)


class OnGpu:
    """Data of a loader on a GPU.

    x: rows instead of `data.x`, or None; `data.x` is taken as rows if it is a matrix of float32.
    placement, cache: of the rows; see `girih.cuda.FeatureStore`.

    Raises NotImplementedError for what only the CPU's loader does.
    """

    def __init__(
        self, data: Any, sampler: NeighborSampler, device: Any, x: Any, *, placement: str, cache: float
    ) -> None:
        if not isinstance(data, Data):
            raise NotImplementedError("device= takes a Data; a HeteroData, and a pair of stores, is read on the CPU")
        if sampler.is_timed or sampler.is_typed:
            raise NotImplementedError("device= samples graphs without types and times; leave it out for the CPU")
        if sampler.subgraph_type != "directional" or sampler.disjoint:
            raise NotImplementedError("device= samples directional subgraphs that share nodes; leave subgraph_type and disjoint out")
        import girih.cuda as cuda

        self.sampler = sampler
        self.graph = device if isinstance(device, cuda.Graph) else cuda.Graph(sampler.graph, device)
        self.device = self.graph.device
        own = data._store.get("x")
        if x is None and isinstance(own, Tensor) and own.dtype == torch.float32 and own.dim() == 2 and own.shape[1] > 0:
            x = own
        if x is None or isinstance(x, cuda.FeatureStore):
            self.rows = x
        else:
            self.rows = cuda.FeatureStore(x, self.device, placement=placement, cache=cache, graph=sampler.graph)
        self._take_attributes(data)

    def _take_attributes(self, data: Data) -> None:
        """Attributes of nodes and of edges on the GPU, with the dimension of each; `others` belong to every batch."""
        self.of_nodes: dict[str, tuple[Any, int]] = {}
        self.of_edges: dict[str, tuple[Any, int]] = {}
        self.others = copy.copy(data)
        self.is_counted = "num_nodes" in data._store
        taken = {"edge_index", "num_nodes"} | ({"x"} if self.rows is not None else set())
        for key, value in list(data._store.items()):
            of = self.of_nodes if data.is_node_attr(key) else self.of_edges if data.is_edge_attr(key) else None
            if key not in taken:
                value = value.to(self.device) if isinstance(value, Tensor) else value
                if of is None:
                    self.others[key] = value
                    continue
                of[key] = value, data.__cat_dim__(key, value)
            del self.others[key]

    def loader(self, seeds: Tensor, batch_size: int, drop_last: bool, seed: int) -> Any:
        """Batches of `seeds` in this order."""
        import girih.cuda as cuda

        return cuda.NeighborLoader(
            self.graph,
            seeds.numpy(),
            self.sampler.sampler,
            batch_size=batch_size,
            shuffle=False,
            drop_last=drop_last,
            seed=seed,
            features=self.rows,
        )

    def requested(self, most: int) -> Requested:
        """Batches of at most `most` seeds each, which come one by one."""
        return Requested(self, most)

    def sent(self, value: Tensor | None) -> Tensor | None:
        """Copy of a tensor of the host on the GPU, for which nobody waits."""
        return None if value is None else value.pin_memory().to(self.device, non_blocking=True)

    def filtered(self, out: SamplerOutput, edge_index: Tensor) -> Data:
        """The attributes of sampled nodes and edges."""
        data = copy.copy(self.others)
        data.edge_index = edge_index
        node = out.node.long() if self.of_nodes else out.node
        for key, (value, dim) in self.of_nodes.items():
            data[key] = selected(value, node, dim)
        if out.edge is not None:
            for key, (value, dim) in self.of_edges.items():
                data[key] = selected(value, out.edge, dim)
        if self.is_counted:
            data.num_nodes = out.node.numel()
        return data
