"""Loaders of subgraphs: clusters, and GraphSAINT's samples."""

import copy
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data  # type: ignore[import-untyped,unused-ignore]

import girih

from .graphs import check_homogeneous, host, selected, shared_graph
from .loader import check_refused
from .sampler import induced


def _subgraph(data: Data, node: Tensor, edge_index: Tensor, edge: Tensor) -> Data:
    """`data` with some nodes, and edges among them."""
    out = copy.copy(data)
    for key, value in data._store.items():
        if key == "edge_index":
            out.edge_index = edge_index
        elif key == "num_nodes":
            out.num_nodes = node.numel()
        elif data.is_node_attr(key):
            out[key] = selected(value, node, data.__cat_dim__(key, value))
        elif data.is_edge_attr(key):
            out[key] = selected(value, edge, data.__cat_dim__(key, value))
    out.n_id, out.e_id = node, edge
    return out


def _checked(data: Any) -> Data:
    check_homogeneous(data)
    if not isinstance(data, Data):
        raise NotImplementedError("loaders of subgraphs read a Data; make one of the stores")
    return data


class ClusterLoader(torch.utils.data.DataLoader[Data]):
    """Batches of clusters and all edges among their nodes (Chiang et al., Cluster-GCN, KDD 2019).

    It is PyG's `ClusterData` and `ClusterLoader` in one: each epoch has every cluster once.

    data: a `Data`, symmetric for clusters of METIS.
    num_parts: number of clusters.
    cluster_of: cluster of each node (n), if there are clusters already.
    method: "metis", or "streaming" for graphs that METIS is too slow for.
    graph: `graph_of(data)`, to share one among loaders.
    kwargs: of torch's `DataLoader`; `batch_size` is the number of clusters of a batch.

    Batches have the attributes of `data`, and n_id and e_id. Raises ValueError if `cluster_of` is not one number a node.
    """

    def __init__(
        self,
        data: Any,
        num_parts: int | None = None,
        *,
        cluster_of: Tensor | None = None,
        method: Literal["metis", "streaming"] = "metis",
        graph: girih.Graph | None = None,
        **kwargs: Any,
    ) -> None:
        self.data = _checked(data)
        self.graph = shared_graph(data, graph)
        if (num_parts is None) == (cluster_of is None):
            raise TypeError("give num_parts, or cluster_of, and not both")
        if num_parts is not None:
            cluster_of = torch.from_numpy(self.graph.partition(num_parts, method=method))
        assert cluster_of is not None
        self.cluster_of = host("cluster_of", cluster_of)
        if self.cluster_of.shape != (self.graph.num_nodes,) or int(self.cluster_of.min()) < 0:
            raise ValueError(f"cluster_of has shape {tuple(self.cluster_of.shape)}; give a number from 0 on for each node")
        counts = torch.bincount(self.cluster_of, minlength=num_parts or 0)
        self._ends = counts.cumsum(0).tolist()
        self._nodes = self.cluster_of.argsort(stable=True)
        self._all = girih.Sampler(self.graph, [-1])
        for name in ("dataset", "collate_fn"):
            kwargs.pop(name, None)
        super().__init__(range(counts.numel()), collate_fn=self._collate, **kwargs)  # type: ignore[arg-type]

    def _collate(self, clusters: list[int]) -> Data:
        begins = [0, *self._ends]
        node = torch.cat([self._nodes[begins[int(c)] : begins[int(c) + 1]] for c in clusters])
        out = induced(self._all, node)
        assert out.edge is not None
        return _subgraph(self.data, node, torch.stack([out.row, out.col]), out.edge)


class GraphSAINTSampler:
    """Base of GraphSAINT's samplers (Zeng et al., ICLR 2020): subgraphs, with weights that correct for what is left out.

    data: a `Data`.
    batch_size: number of nodes, edges or walks that are drawn for a subgraph.
    num_steps: number of batches of an epoch.
    sample_coverage: 0 for batches without weights; else they have `node_norm` and `edge_norm`, as PyG's. Those of nodes
        and edges are exact; those of walks are counted in so many samples a node.
    graph, threads, seed: as in `NeighborLoader`.

    The weighted loss `(loss * batch.node_norm).sum()` estimates the mean over all nodes. Messages that are multiplied by
    `edge_norm` and summed estimate the sum over all edges; for means multiply by 1 / in-degree, too. Batches have the attributes of `data`, and n_id and e_id.

    Raises NotImplementedError for save_dir and for worker processes.
    """

    _method: Literal["nodes", "edges", "walks"]

    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        walk_length: int = 2,
        graph: girih.Graph | None = None,
        threads: int = 1,
        seed: int = 0,
        **refused: Any,
    ) -> None:
        if save_dir is not None:
            raise NotImplementedError("save_dir: weights of nodes and edges are exact, those of walks are counted anew")
        refused.pop("shuffle", None)  # no order to shuffle
        check_refused(refused, type(self).__name__)
        self.data = _checked(data)
        self.graph = shared_graph(data, graph)
        self.sample_coverage, self.num_steps = sample_coverage, num_steps
        n_drawn = max(1, batch_size) * (walk_length + 1)
        n_presampled = max(1, -(-self.graph.num_nodes * sample_coverage // n_drawn))
        self.sampler = girih.Sampler.saint(
            self.graph,
            batch_size,
            method=self._method,
            walk_length=walk_length,
            num_presampled=n_presampled,
            seed=seed,
        )
        self.loader = girih.SubgraphLoader(self.sampler, num_steps, seed=seed, threads=threads)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[Data]:
        return map(self._data_of, self.loader)

    def _data_of(self, batch: girih.Batch) -> Data:
        node, edge = torch.from_numpy(batch.n_id), torch.from_numpy(batch.e_id)
        out = _subgraph(self.data, node, torch.from_numpy(batch.edge_index), edge)
        if self.sample_coverage > 0:
            out.node_norm, out.edge_norm = torch.from_numpy(batch.loss_weights), torch.from_numpy(batch.weights)
        return out


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Subgraphs of nodes, drawn in proportion to their degrees; see `GraphSAINTSampler`."""

    _method = "nodes"


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Subgraphs of the ends of drawn edges; see `GraphSAINTSampler`."""

    _method = "edges"


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Subgraphs of the nodes of walks of `walk_length` steps; see `GraphSAINTSampler`."""

    _method = "walks"

    def __init__(
        self,
        data: Any,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            data, batch_size, num_steps, sample_coverage, save_dir, log, walk_length=walk_length, **options
        )
