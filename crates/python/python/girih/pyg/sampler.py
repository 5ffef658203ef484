"""`NeighborSampler` for PyG's `NodeLoader` and `LinkLoader`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import (  # type: ignore[import-untyped,unused-ignore]
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler.neighbor_sampler import (  # type: ignore[import-untyped,unused-ignore]
    edge_sample,
    node_sample,
)

import girih

from .._edges import Draws, Duplicates, IndexDtype
from .graphs import drawn_seed, host, node_times, shared_graph, shared_timed_graph
from .typed import hetero_output, shared_typed_graph, typed_fan_outs


def fan_outs(num_neighbors: Any) -> list[int]:
    """Numbers of neighbors by hop, from a list or PyG's `NumNeighbors`.

    Raises ValueError for numbers by edge type.
    """
    values = getattr(num_neighbors, "values", num_neighbors)
    if isinstance(num_neighbors, dict) or isinstance(values, dict):
        raise ValueError("num_neighbors by edge type are for a HeteroData; give one list")
    return [int(count) for count in values]


def subgraph_kind(subgraph_type: Any, directed: bool) -> str:
    """"directional", "bidirectional" or "induced". Raises ValueError for another word."""
    return "induced" if not directed else str(SubgraphType(subgraph_type).value)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Sampler for `NodeLoader(data, node_sampler=…)` and `LinkLoader(data, link_sampler=…)`.

    data: a `Data`, a `HeteroData`, a pair (FeatureStore, GraphStore), or a graph of girih.
    num_neighbors: number of neighbors a hop, from the seeds outward; -1 for all. Of a `HeteroData` for each edge type, or
        lists by edge type; 0 there does not follow a type.
    subgraph_type: "directional"; "bidirectional", which adds the reverse of each edge; "induced", all edges among the
        nodes. Counts by hop are known for "directional" alone.
    replace: an edge may be drawn several times.
    disjoint: each seed has a subgraph of its own, whose number is `batch` of its nodes. Without times, seeds are sampled
        one by one: a batch of 1024 takes 20 to 30 ms.
    time_attr: name of the attribute of nodes or of edges that is their time, as integers. A seed then sees edges up to
        its own time alone, over all hops, or edges from nodes up to it; its subgraph is its own.
    temporal_strategy: "uniform", or "last" for the latest edges.
    before, window: True to leave out the seed's own time, too; largest distance from it.
    weight_attr: name of the attribute of edges (≥ 0) that draws are in proportion to.
    is_sorted, share_memory: accepted, without effect: the graph is girih's own copy.
    graph: a graph that was made of `data` before, to share it.
    duplicates: rule for parallel edges, see `graph_of`. With times, parallel edges stay.
    draws, index_dtype: as in `girih.Sampler`; PyG's layers want "int64".
    edge_ids: False where nobody reads `e_id` or attributes of edges: a batch then takes up to half the time.

    Draws follow torch's generator: `torch.manual_seed` decides, and workers differ as torch makes them differ.

    Raises NotImplementedError for times and weights of a `HeteroData`, and for its disjoint and induced subgraphs.
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
        graph: Any = None,
        duplicates: Duplicates = "refuse",
        draws: Draws = "node",
        index_dtype: IndexDtype = "int64",
        edge_ids: bool = True,
        before: bool = False,
        window: int | None = None,
    ) -> None:
        self.subgraph_type = subgraph_kind(subgraph_type, directed)
        self.is_timed = time_attr is not None or isinstance(data, girih.TimedGraph)
        self.is_typed = isinstance(data, (HeteroData, girih.TypedGraph))
        self.node_time: Tensor | None = None
        self._disjoint = disjoint
        if not self.is_timed and (temporal_strategy, before, window) != ("uniform", False, None):
            raise ValueError("temporal_strategy, before and window are for data with times; name them by time_attr")
        self._check_refused({
            "weight_attr": weight_attr is not None,
            f"draws={draws!r}": draws != "node",
            f"index_dtype={index_dtype!r}": self.is_typed and index_dtype != "int64",
        })  # fmt: skip
        self.graph: Any
        self.sampler: Any
        if self.is_typed:
            self.graph = shared_typed_graph(data, graph, duplicates)
            self.num_neighbors: Any = typed_fan_outs(num_neighbors, self.graph)
            self.sampler = girih.TypedSampler(self.graph, self.num_neighbors, replace=replace, edge_ids=edge_ids)
            return
        self.num_neighbors = fan_outs(num_neighbors)
        if self.is_timed:
            self.node_time = node_times(data, time_attr)
            self.graph = shared_timed_graph(data, time_attr, graph)
            rule: dict[str, Any] = {"before" if before else "until": "seed", "strategy": temporal_strategy, "window": window}
            self.sampler = girih.Sampler.timed(
                self.graph, self.num_neighbors, replace=replace, index_dtype=index_dtype, edge_ids=edge_ids, **rule
            )
            return
        if disjoint and self.subgraph_type == "induced":
            raise NotImplementedError("disjoint: induced subgraphs join the seeds' neighbors; leave one of both out")
        self.graph = data if isinstance(data, girih.Graph) else shared_graph(data, graph, duplicates)
        weights = None if weight_attr is None else _weights(data, weight_attr)
        self.sampler = girih.Sampler(
            self.graph, self.num_neighbors, replace=replace, weights=weights, draws=draws, index_dtype=index_dtype,
            edge_ids=edge_ids,
        )  # fmt: skip
        is_induced = self.subgraph_type == "induced"
        self._all = girih.Sampler(self.graph, [-1], index_dtype=index_dtype, edge_ids=edge_ids) if is_induced else None

    def _check_refused(self, refused: dict[str, bool]) -> None:
        """Raises NotImplementedError for what girih does not have for types or times, by its name."""
        if not (self.is_typed or self.is_timed):
            return
        what = "a HeteroData" if self.is_typed else "data with times"
        refused |= {
            'subgraph_type="induced"': self.subgraph_type == "induced",
            "time_attr": self.is_typed and self.is_timed,
            "disjoint=True": self.is_typed and self._disjoint,
        }
        for name in (name for name, is_set in refused.items() if is_set):
            raise NotImplementedError(f"{name}: girih does not have it for {what}; leave it out, or use PyG's loader")

    @property
    def disjoint(self) -> bool:
        """Whether each seed has a subgraph of its own."""
        return self._disjoint or self.is_timed

    @property
    def is_sampled_singly(self) -> bool:
        """Whether seeds are sampled one by one."""
        return self._disjoint and not self.is_timed

    def _sample(self, seeds: Any, time: Any = None) -> Any:
        """Sample of seeds (by node type, of a `HeteroData`), which have times where sampling follows time."""
        if self.is_typed:
            given = {of: host(f"{of} input_nodes", nodes).numpy() for of, nodes in seeds.items()}
            return self.output_of(self.sampler.sample(given, seed=drawn_seed()))
        seeds = host("input_nodes", seeds)
        if self.is_sampled_singly and seeds.numel() > 0:
            return self.disjoint_output(seeds, drawn_seed())
        time = seed_times(self, seeds, time, "time of the seeds")
        times = {} if time is None else {"times": time.numpy()}
        return self.output_of(self.sampler.sample(seeds.numpy(), seed=drawn_seed(), **times))

    def disjoint_output(self, seeds: Tensor, seed: int) -> SamplerOutput:
        """Subgraph of its own for each of the seeds, of which there is at least one."""
        each = [self.sampler.sample(seeds[i : i + 1].numpy(), seed=seed, batch=i) for i in range(seeds.numel())]
        out = joined(each)
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def output_of(self, batch: Any) -> Any:
        """PyG's view of a batch; its tensors keep the batch's memory."""
        if self.is_typed:
            out = hetero_output(batch)
            return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out
        node = torch.from_numpy(batch.n_id)
        if not self.is_timed and self._all is not None:
            return induced(self._all, node)
        edge_index = torch.from_numpy(batch.edge_index)
        out = SamplerOutput(node, edge_index[0], edge_index[1], tensor_of(batch.e_id), tensor_of(batch.batch))
        out.num_sampled_nodes, out.num_sampled_edges = batch.num_sampled_nodes, batch.num_sampled_edges
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> Any:
        """Sample of the neighbors of nodes; called by `NodeLoader`."""
        check_time(self, index.time, "input_time")
        return node_sample(index, self._sample)

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> Any:
        """Sample of the neighbors of both ends of edges; called by `LinkLoader`."""
        check_time(self, index.time, "edge_label_time")
        if self.is_timed and index.time is None:
            raise ValueError("edge_label_time is missing: each link is looked at from a time of its own")
        return edge_sample(index, self._sample, self.graph.num_nodes, self.disjoint, self.node_time, neg_sampling)

    @property
    def edge_permutation(self) -> None:
        """None: edges of batches are columns of `edge_index` already."""
        return None

    def __repr__(self) -> str:
        return f"girih.pyg.NeighborSampler({self.graph}, num_neighbors={self.num_neighbors})"


def check_time(sampler: NeighborSampler, time: Any, name: str) -> None:
    """Raises ValueError where seeds have times, but sampling follows none."""
    if time is not None and not sampler.is_timed:
        raise ValueError(f"{name}: the sampler follows no time; name the times of data by time_attr, or leave {name} out")


def seed_times(sampler: NeighborSampler, seeds: Tensor, given: Any, name: str) -> Tensor | None:
    """Times of seeds: those that are given, or those of the nodes; None where sampling follows no time.

    Raises ValueError for a wrong number of times, or where there are none.
    """
    check_time(sampler, given, name)
    if not sampler.is_timed:
        return None
    if given is not None:
        times = host(name, torch.as_tensor(given))
        if times.shape != seeds.shape:
            raise ValueError(f"{name} has shape {tuple(times.shape)} for {seeds.numel()} seeds; give one time each")
        return times
    if sampler.node_time is None:
        raise ValueError(f"{name} is missing: times of edges do not tell the times of the seeds")
    return sampler.node_time[seeds]


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
