"""`LinkNeighborLoader`: batches around links, on the CPU, or ahead of the step on a GPU."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.loader import LinkLoader  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import (  # type: ignore[import-untyped,unused-ignore]
    EdgeSamplerInput,
    NegativeSampling,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample  # type: ignore[import-untyped,unused-ignore]

from .._edges import Draws, Duplicates
from .device import on_gpu
from .graphs import check_homogeneous, drawn_seed
from .sampler import NeighborSampler, check_time


@dataclass(frozen=True)
class _Plan:
    """Batch to sample: distinct seeds, the seed of its draws, and what PyG's sampler tells of its links."""

    seeds: Tensor
    seed: int
    metadata: tuple[Any, ...]


def _planned(links: EdgeSamplerInput, num_nodes: int, neg_sampling: NegativeSampling | None) -> _Plan:
    """Plan of a batch; it draws from torch's generator as sampling on the CPU does."""
    seed = 0

    def note(seeds: Tensor, _time: Any = None) -> SamplerOutput:
        nonlocal seed
        seed = drawn_seed()
        return SamplerOutput(seeds, seeds[:0], seeds[:0], None)

    out = edge_sample(links, note, num_nodes, False, None, neg_sampling)
    return _Plan(out.node, seed, out.metadata)


class LinkNeighborLoader(LinkLoader):  # type: ignore[misc]
    """PyG's `LinkLoader` over girih: the arguments of PyG's `LinkNeighborLoader`, and girih's own.

    data: a `Data` or a `HeteroData`.
    graph, draws, duplicates, time_attr, temporal_strategy, before, window: as in `NeighborSampler`. With times, each link
        has an `edge_label_time`; `before=True` hides the link itself and all edges of its time.
    device: a GPU, such as "cuda", or a `girih.cuda.Graph`: sampling, rows of `x` and attributes are there, made ahead of
        the step. Batches equal those of the CPU, while nobody else draws from torch's generator of the CPU.
    x: for a GPU: rows instead of `data.x`, such as a `girih.cuda.FeatureStore`.
    placement, cache: of the rows of `x` for a GPU; see `girih.cuda.FeatureStore`.

    Arguments of torch's `DataLoader` (num_workers, generator, pin_memory, …) do what they do there; a GPU does without
    workers and pinned memory. Draws and negatives follow torch's generator.

    Raises NotImplementedError for what `NeighborSampler` refuses; with a GPU also for num_workers, batch_sampler, and
    what `NeighborLoader` refuses there.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        *,
        graph: Any = None,
        duplicates: Duplicates = "refuse",
        draws: Draws = "node",
        before: bool = False,
        window: int | None = None,
        device: Any = None,
        x: Any = None,
        placement: str = "device",
        cache: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(data, HeteroData):
            check_homogeneous(data)
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                directed=directed, graph=graph, duplicates=duplicates, draws=draws, before=before, window=window,
            )  # fmt: skip
        if isinstance(neighbor_sampler, NeighborSampler):
            check_time(neighbor_sampler, edge_label_time, "edge_label_time")
        self._on_gpu = on_gpu(data, neighbor_sampler, device, x, placement=placement, cache=cache)
        if self._on_gpu is None and x is not None:
            raise ValueError("x is for a GPU; give device=\"cuda\", too, or put the rows into data.x")
        if self._on_gpu is not None:
            _check_options(kwargs)
        super().__init__(
            data,
            neighbor_sampler,
            edge_label_index=edge_label_index,
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **kwargs,
        )
        self._requested = None if self._on_gpu is None else self._on_gpu.requested(self._most_seeds())

    def _most_seeds(self) -> int:
        """Largest number of distinct seeds of a batch."""
        links = min(self.batch_size, len(self.dataset))
        negatives = 0 if self.neg_sampling is None else math.ceil(links * self.neg_sampling.amount)
        is_triplet = self.neg_sampling is not None and self.neg_sampling.is_triplet()
        ends: int = 2 * links + (negatives if is_triplet else 2 * negatives)
        n_nodes: int = self.link_sampler.graph.num_nodes
        return max(1, min(ends, n_nodes))

    def collate_fn(self, index: Any) -> Any:
        """Batch of the links at these positions; for a GPU the plan of it."""
        if self._on_gpu is None:
            return super().collate_fn(index)
        return _planned(self.input_data[index], self.link_sampler.graph.num_nodes, self.neg_sampling)

    def __call__(self, index: Any) -> Any:
        """Batch of the links at these positions."""
        if self._on_gpu is not None:
            raise NotImplementedError("batches of a GPU come in epochs; call a loader without device= for single ones")
        return super().__call__(index)

    def _get_iterator(self) -> Any:
        if self._on_gpu is None:
            return super()._get_iterator()
        return self._made(DataLoader._get_iterator(self))

    def _made(self, plans: Iterator[_Plan]) -> Iterator[Any]:
        """Batches of plans on the GPU, a few of which are requested ahead."""
        assert self._on_gpu is not None and self._requested is not None
        requests = ((plan.seeds, plan.seed, plan.metadata) for plan in plans)
        for batch, metadata in self._requested.batches(requests):
            edge_index, node = batch.edge_index, batch.n_id
            out = SamplerOutput(node, edge_index[0], edge_index[1], batch.e_id)
            out.num_sampled_nodes, out.num_sampled_edges = batch.num_sampled_nodes, batch.num_sampled_edges
            out.metadata = tuple(map(self._on_gpu.sent, metadata))
            if self.transform_sampler_output is not None:
                out = self.transform_sampler_output(out)
                edge_index = torch.stack([out.row, out.col])
            data = self._on_gpu.filtered(out, edge_index)
            if self._on_gpu.rows is not None:
                data.x = batch.x if out.node is node else self._on_gpu.rows.gather(out.node)
            self._put_links(data, out)
            yield data if self.transform is None else self.transform(data)

    def _put_links(self, data: Data, out: SamplerOutput) -> None:
        """Names of nodes and edges, and the links, as PyG's `LinkLoader` puts them."""
        if "n_id" not in data:
            data.n_id = out.node
        if out.edge is not None and "e_id" not in data:
            data.e_id = out.edge
        data.batch, data.input_id = out.batch, out.metadata[0]
        data.num_sampled_nodes, data.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        if self.neg_sampling is None or self.neg_sampling.is_binary():
            data.edge_label_index, data.edge_label, data.edge_label_time = out.metadata[1:4]
        else:
            data.src_index, data.dst_pos_index, data.dst_neg_index, data.seed_time = out.metadata[1:5]
            del data.edge_label_index
            del data.edge_label_time


def _check_options(options: dict[str, Any]) -> None:
    """Raises NotImplementedError for arguments of torch's `DataLoader` without a meaning on a GPU."""
    if options.get("num_workers"):
        raise NotImplementedError("num_workers: the GPU samples ahead by itself; leave it out")
    if options.get("batch_sampler") is not None or options.get("batch_size", 1) is None:
        raise NotImplementedError("batch_sampler: memory on the GPU is for a number of links; give sampler= and batch_size=")
