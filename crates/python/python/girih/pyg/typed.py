"""Graphs with types of `HeteroData`, and their samples."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import HeteroSamplerOutput  # type: ignore[import-untyped,unused-ignore]

import girih

from .._convert import typed_edges
from .._edges import Duplicates
from .graphs import host, put_labels

def typed_graph_of(data: HeteroData, *, duplicates: Duplicates = "refuse") -> girih.TypedGraph:
    """Graph of a `HeteroData`, with the names of its types.

    The graph is a copy of the edges, and batches name an edge by its column of the `edge_index` of its type. Make one
    graph, and share it among loaders by `graph=`. Parallel edges are refused, or merged by `duplicates="merge"`.

    Raises TypeError for what is no `HeteroData`, ValueError for parallel edges, types without a number of nodes and edges
    without edge_index, IndexError for an edge to a node that does not exist.
    """
    if not isinstance(data, HeteroData):
        raise TypeError(f"data is {type(data).__name__}; give a HeteroData, and a Data to graph_of")
    num_nodes = {}
    for of in data.node_types:
        n = data[of].num_nodes
        if n is None:
            raise ValueError(f"data has no number of nodes of type {of!r}; set data[{of!r}].num_nodes")
        num_nodes[of] = int(n)
    edges = {}
    for of in data.edge_types:
        if "edge_index" not in data[of]:
            raise ValueError(
                f"data has no edge_index of {of}; data with adj_t get one by torch_geometric.utils.to_edge_index"
            )
        edges[of] = host(f"edge_index of {of}", data[of].edge_index).numpy()
    return girih.TypedGraph(num_nodes, edges, duplicates=duplicates)


def shared_typed_graph(data: Any, graph: Any, duplicates: Duplicates) -> girih.TypedGraph:
    """The graph that a caller shares, or a new one. Raises ValueError if it is of other types or nodes than `data`."""
    if graph is None:
        return data if isinstance(data, girih.TypedGraph) else typed_graph_of(data, duplicates=duplicates)
    if not isinstance(graph, girih.TypedGraph):
        raise TypeError(f"graph is {type(graph).__name__}; HeteroData needs typed_graph_of(data)")
    if isinstance(data, HeteroData):
        found = {of: int(data[of].num_nodes) for of in data.node_types}
        if found != graph.num_nodes or set(data.edge_types) != set(graph.edge_types):
            raise ValueError(f"graph is {graph}, and data has other types or nodes; share typed_graph_of(data)")
    return graph


def to_hetero(source: girih.TypedGraph | girih.Dataset, *, features: bool) -> HeteroData:
    """`HeteroData` of a typed graph or of a data set with types."""
    graph = source if isinstance(source, girih.TypedGraph) else source.typed_graph
    assert graph is not None
    data = HeteroData()
    for of, n in graph.num_nodes.items():
        data[of].num_nodes = n
    for edges, edge_index in typed_edges(graph).items():
        data[edges].edge_index = torch.from_numpy(edge_index)
    if isinstance(source, girih.Dataset):
        for of, store in source.type_features.items() if features else ():
            data[of].x = torch.from_numpy(store.gather(np.arange(len(store))))
        assert source.target is not None
        put_labels(data[source.target], source, graph.num_nodes[source.target])
    return data


def typed_fan_outs(num_neighbors: Any, graph: girih.TypedGraph) -> Any:
    """Numbers of neighbors by hop: one list, or lists by edge type, from either or PyG's `NumNeighbors`."""
    if hasattr(num_neighbors, "get_values"):
        num_neighbors = num_neighbors.get_values(graph.edge_types)
    if isinstance(num_neighbors, dict):
        return {of: [int(n) for n in hops] for of, hops in num_neighbors.items()}
    return [int(n) for n in num_neighbors]


def hetero_output(batch: girih.TypedBatch) -> HeteroSamplerOutput:
    """PyG's view of a batch; its tensors keep the batch's memory. Edge types without an edge are there, and empty."""
    edges = {of: torch.from_numpy(array) for of, array in batch.edge_index.items()}
    names = batch.e_id
    out = HeteroSamplerOutput(
        node=tensors(batch.n_id),
        row={of: ends[0] for of, ends in edges.items()},
        col={of: ends[1] for of, ends in edges.items()},
        edge={of: None for of in edges} if names is None else tensors(names),
    )
    out.num_sampled_nodes, out.num_sampled_edges = batch.num_sampled_nodes, batch.num_sampled_edges
    return out


def tensors(arrays: dict[Any, "np.ndarray[Any, Any]"]) -> dict[Any, Tensor]:
    """Tensors over the memory of arrays."""
    return {of: torch.from_numpy(array) for of, array in arrays.items()}
