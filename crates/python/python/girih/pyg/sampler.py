"""`NeighborSampler` for PyG's `NodeLoader` and `LinkLoader`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import (  # type: ignore[import-untyped,unused-ignore]
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler.neighbor_sampler import edge_sample  # type: ignore[import-untyped,unused-ignore]

import girih

from .._edges import Draws, Duplicates, IndexDtype
from .graphs import drawn_seed, host, shared_graph


def refuse_time(*, temporal_strategy: str, time_attr: str | None) -> None:
    """Raises NotImplementedError for arguments of PyG that girih does not have, by their names."""
    if time_attr is not None:
        raise NotImplementedError("time_attr: girih draws without regard to time; use PyG's NeighborLoader for it")
    if temporal_strategy != "uniform":
        raise NotImplementedError("temporal_strategy: girih draws without regard to time; leave it out")


def fan_outs(num_neighbors: Any) -> list[int]:
    """Numbers of neighbors by hop, from a list or PyG's `NumNeighbors`.

    Raises NotImplementedError for numbers by edge type.
    """
    values = getattr(num_neighbors, "values", num_neighbors)
    if isinstance(num_neighbors, dict) or isinstance(values, dict):
        raise NotImplementedError("num_neighbors by edge type: girih samples graphs of one type; give one list")
    return [int(count) for count in values]


def subgraph_kind(subgraph_type: Any, directed: bool) -> str:
    """"directional", "bidirectional" or "induced". Raises ValueError for another word."""
    return "induced" if not directed else str(SubgraphType(subgraph_type).value)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Sampler for `NodeLoader(data, node_sampler=…)` and `LinkLoader(data, link_sampler=…)`.

    data: a `Data`, a pair (FeatureStore, GraphStore), or a `girih.Graph`.
    num_neighbors: number of neighbors a hop, from the seeds outward; -1 for all.
    subgraph_type: "directional"; "bidirectional", which adds the reverse of each edge; "induced", all edges among the
        nodes. Counts by hop are known for "directional" alone.
    replace: an edge may be drawn several times.
    disjoint: each seed has a subgraph of its own, whose number is `batch` of its nodes. Seeds are sampled one by one:
        a batch of 1024 takes 20 to 30 ms.
    weight_attr: name of the attribute of edges (≥ 0) that draws are in proportion to.
    is_sorted, share_memory: accepted, without effect: the graph is girih's own copy.
    graph: a graph that was made of `data` before, to share it.
    duplicates: rule for parallel edges, see `graph_of`.
    draws, index_dtype: as in `girih.Sampler`; PyG's layers want "int64".
    edge_ids: False where nobody reads `e_id` or attributes of edges: a batch then takes up to half the time.

    Draws follow torch's generator: `torch.manual_seed` decides, and workers differ as torch makes them differ.

    Raises NotImplementedError for heterogeneous data, time_attr and temporal_strategy.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        *,
        graph: girih.Graph | None = None,
        duplicates: Duplicates = "refuse",
        draws: Draws = "node",
        index_dtype: IndexDtype = "int64",
        edge_ids: bool = True,
    ) -> None:
        refuse_time(temporal_strategy=temporal_strategy, time_attr=time_attr)
        self.subgraph_type = subgraph_kind(subgraph_type, directed)
        self.disjoint = disjoint
        if disjoint and self.subgraph_type == "induced":
            raise NotImplementedError("disjoint: induced subgraphs join the seeds' neighbors; leave one of both out")
        self.num_neighbors = fan_outs(num_neighbors)
        graph = data if isinstance(data, girih.Graph) else shared_graph(data, graph, duplicates)
        self.graph = graph
        weights = None if weight_attr is None else _weights(data, weight_attr)
        self.sampler = girih.Sampler(
            graph,
            self.num_neighbors,
            replace=replace,
            weights=weights,
            draws=draws,
            index_dtype=index_dtype,
            edge_ids=edge_ids,
        )
        is_induced = self.subgraph_type == "induced"
        self._all = girih.Sampler(graph, [-1], index_dtype=index_dtype, edge_ids=edge_ids) if is_induced else None

    def _sample(self, seeds: Tensor, _time: Any = None) -> SamplerOutput:
        seeds = host("input_nodes", seeds)
        if self.disjoint and seeds.numel() > 0:
            return self.disjoint_output(seeds, drawn_seed())
        return self.output_of(self.sampler.sample(seeds.numpy(), seed=drawn_seed()))

    def disjoint_output(self, seeds: Tensor, seed: int) -> SamplerOutput:
        """Subgraph of its own for each of the seeds, of which there is at least one."""
        each = [self.sampler.sample(seeds[i : i + 1].numpy(), seed=seed, batch=i) for i in range(seeds.numel())]
        out = joined(each)
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def output_of(self, batch: girih.Batch) -> SamplerOutput:
        """PyG's view of a batch; its tensors keep the batch's memory."""
        node = torch.from_numpy(batch.n_id)
        if self._all is not None:
            return induced(self._all, node)
        edge_index = torch.from_numpy(batch.edge_index)
        out = SamplerOutput(node, edge_index[0], edge_index[1], tensor_of(batch.e_id))
        out.num_sampled_nodes, out.num_sampled_edges = batch.num_sampled_nodes, batch.num_sampled_edges
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Sample of the neighbors of nodes; called by `NodeLoader`."""
        refuse_seed_time(index.time, "input_time")
        out = self._sample(index.node)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Sample of the neighbors of both ends of edges; called by `LinkLoader`."""
        refuse_seed_time(index.time, "edge_label_time")
        return edge_sample(index, self._sample, self.graph.num_nodes, self.disjoint, None, neg_sampling)

    @property
    def edge_permutation(self) -> None:
        """None: edges of batches are columns of `edge_index` already."""
        return None

    def __repr__(self) -> str:
        return f"girih.pyg.NeighborSampler({self.graph}, num_neighbors={self.num_neighbors})"


def refuse_seed_time(time: Any, name: str) -> None:
    """Raises NotImplementedError where seeds have a time."""
    if time is not None:
        raise NotImplementedError(f"{name}: girih draws without regard to time; leave it out")


def _weights(data: Any, weight_attr: str) -> np.ndarray[Any, Any]:
    if not isinstance(data, Data):
        raise NotImplementedError("weight_attr: only a Data has weights by name; build the graph, and use girih.Sampler")
    if weight_attr not in data:
        raise ValueError(f"weight_attr: data has no {weight_attr!r}; it has {sorted(data.keys())}")
    weights = host(weight_attr, data[weight_attr])
    if not data.is_edge_attr(weight_attr) or weights.numel() != data.num_edges:
        raise ValueError(f"weight_attr: {weight_attr!r} has shape {tuple(weights.shape)}; give one number an edge")
    array: np.ndarray[Any, Any] = weights.reshape(-1).to(torch.float32).numpy()
    return array


def induced(sampler: girih.Sampler, node: Tensor) -> SamplerOutput:
    """All edges among the nodes; `sampler` draws all neighbors of one hop."""
    batch = sampler.sample(node.numpy())
    row, col = torch.from_numpy(batch.edge_index)
    among = (row < node.numel()).nonzero().view(-1)
    edge = tensor_of(batch.e_id)
    edge = None if edge is None else edge.index_select(0, among)
    return SamplerOutput(node, row.index_select(0, among), col.index_select(0, among), edge)


def joined(each: list[girih.Batch]) -> SamplerOutput:
    """Batches side by side, without merging nodes: those of hop 0 first, then those of hop 1, and so on."""
    nodes = np.array([batch.num_sampled_nodes for batch in each])
    edges = np.array([batch.num_sampled_edges for batch in each])
    by_hop, edges_by_hop = _hop_order(nodes), _hop_order(edges)
    place = np.empty_like(by_hop)
    place[by_hop] = np.arange(by_hop.size)
    n_nodes = nodes.sum(1)
    shift = np.repeat(n_nodes.cumsum() - n_nodes, edges.sum(1))
    ends = np.concatenate([batch.edge_index for batch in each], axis=1) + shift
    row, col = place[ends[:, edges_by_hop]].astype(each[0].n_id.dtype)
    names = None if each[0].e_id is None else np.concatenate([batch.e_id for batch in each])[edges_by_hop]
    out = SamplerOutput(
        torch.from_numpy(np.concatenate([batch.n_id for batch in each])[by_hop]),
        torch.from_numpy(row),
        torch.from_numpy(col),
        tensor_of(names),
        batch=torch.from_numpy(np.repeat(np.arange(len(each)), n_nodes)[by_hop]),
    )
    out.num_sampled_nodes, out.num_sampled_edges = nodes.sum(0).tolist(), edges.sum(0).tolist()
    return out


def _hop_order(counts: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Order by hop of entries that lie batch by batch; `counts` (batches × hops) are their numbers."""
    hops = np.tile(np.arange(counts.shape[1]), counts.shape[0])
    order: np.ndarray[Any, Any] = np.repeat(hops, counts.ravel()).argsort(kind="stable")
    return order


def tensor_of(array: "np.ndarray[Any, Any] | Tensor | None") -> Tensor | None:
    """Tensor over the memory of an array, if there is one; tensors are as they are."""
    return array if array is None or isinstance(array, Tensor) else torch.from_numpy(array)
