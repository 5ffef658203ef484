"""Graphs and features of PyG as girih's, and back."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import (  # type: ignore[import-untyped,unused-ignore]
    Data,
    EdgeAttr,
    FeatureStore,
    GraphStore,
    HeteroData,
    TensorAttr,
)
from torch_geometric.data.graph_store import EdgeLayout  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.loader.utils import index_select  # type: ignore[import-untyped,unused-ignore]

import girih

from .._convert import masks_of
from .._edges import Duplicates, graph_of_edges


def host(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself on the CPU, or a copy of it there. Raises ValueError for a tensor without memory."""
    if tensor.is_meta:
        raise ValueError(f"{name} is a meta tensor, which has no elements; give a tensor on the CPU or a GPU")
    if tensor.is_sparse:
        raise ValueError(f"{name} is a sparse tensor; give edges as edge_index of shape (2, number of edges)")
    return tensor.detach().cpu()


def check_homogeneous(data: Any) -> None:
    """Refuses what is neither `Data` nor (FeatureStore, GraphStore) of one type of nodes.

    Raises NotImplementedError for `HeteroData`, TypeError for anything else.
    """
    if isinstance(data, HeteroData):
        raise NotImplementedError("HeteroData: this takes data of one type of nodes and edges; see data.to_homogeneous()")
    is_stores = isinstance(data, (tuple, list)) and len(data) == 2
    if isinstance(data, Data) or (is_stores and isinstance(data[1], GraphStore)):
        return
    raise TypeError(f"data is {type(data).__name__}; give a Data, or a pair (FeatureStore, GraphStore)")


def graph_of(data: Any, *, duplicates: Duplicates = "refuse") -> girih.Graph:
    """Graph of `data`, a `Data` or a pair (FeatureStore, GraphStore).

    The graph is a copy of the edges, and batches name an edge by its column of `edge_index`. Make one graph, and share
    it among loaders by `graph=`. Parallel edges are refused, or merged by `duplicates="merge"`: the first one stays.

    Raises NotImplementedError for heterogeneous data (`typed_graph_of`), ValueError for parallel edges and for data
    without edge_index, IndexError for an edge to a node that does not exist.
    """
    check_homogeneous(data)
    if not isinstance(data, Data):
        return _graph_of_store(data[1], duplicates)
    if data.edge_index is None and ("adj" in data or "adj_t" in data):
        raise ValueError("data has no edge_index; data with adj_t alone get one by torch_geometric.utils.to_edge_index")
    no_edges = torch.empty(2, 0, dtype=torch.int64)
    edge_index = no_edges if data.edge_index is None else host("edge_index", data.edge_index)
    return graph_of_edges(edge_index.numpy(), data.num_nodes, duplicates)


def timed_graph_of(data: Data, time_attr: str) -> girih.TimedGraph:
    """Graph of a `Data` with the times of its edges, or those of the nodes that edges leave.

    time_attr: name of an attribute of nodes or of edges, one integer each.

    Parallel edges stay, and batches name an edge by its column of `edge_index`.

    Raises ValueError for an attribute that is neither, TypeError for times that are no integers.
    """
    if not isinstance(data, Data):
        raise NotImplementedError("time_attr: only a Data has times by name; use girih.TimedGraph and girih.Sampler.timed")
    if time_attr not in data:
        raise ValueError(f"time_attr: data has no {time_attr!r}; it has {sorted(data.keys())}")
    edge_index = host("edge_index", data.edge_index)
    times = node_times(data, time_attr)
    if times is not None:
        times = times[edge_index[0].long()]
    elif data.is_edge_attr(time_attr):
        times = host(time_attr, data[time_attr]).reshape(-1)
    else:
        raise ValueError(f"time_attr: {time_attr!r} is no attribute of nodes or of edges; give one integer each")
    return girih.TimedGraph.from_edge_index(edge_index.numpy(), times.numpy(), data.num_nodes)


def node_times(data: Any, time_attr: str | None) -> Tensor | None:
    """Times of nodes, where the attribute is theirs."""
    if time_attr is None or not isinstance(data, Data) or time_attr not in data or not data.is_node_attr(time_attr):
        return None
    return host(time_attr, data[time_attr]).reshape(-1)


def shared_timed_graph(data: Any, time_attr: str | None, graph: Any) -> girih.TimedGraph:
    """The graph that a caller shares, or a new one of `data`. Raises ValueError if it is of other edges than `data`."""
    if graph is None:
        if isinstance(data, girih.TimedGraph):
            return data
        assert time_attr is not None
        return timed_graph_of(data, time_attr)
    if not isinstance(graph, girih.TimedGraph):
        raise TypeError(f"graph is {type(graph).__name__}; data with times needs timed_graph_of(data, time_attr)")
    if isinstance(data, Data) and (data.num_nodes, data.num_edges) != (graph.num_nodes, graph.num_edges):
        raise ValueError(f"graph is {graph}, but data has {data.num_nodes} nodes and {data.num_edges} edges")
    return graph


def from_pyg(
    data: Any, *, graph: Any = None, duplicates: Duplicates = "refuse", target: str | None = None
) -> girih.Dataset:
    """Data set of a `Data`: its graph, x, y, and train_mask, val_mask and test_mask if it has all three.

    Dense `x` of float32 is read in place. Several classes a node are rows of 0 and 1. The graph is `graph`, or a new one.
    A `HeteroData` gives the features of all types, and y and masks of the type `target`: the only one with `y`, unless it
    is named.

    Raises as `graph_of`, and ValueError for labels that are neither.
    """
    if isinstance(data, HeteroData):
        from .typed import shared_typed_graph

        target = _target(data) if target is None else target
        typed = shared_typed_graph(data, graph, duplicates)
        x = {of: _array(data[of].x) for of in data.node_types if data[of].get("x") is not None}
        return girih.Dataset.of_types(typed, target, x, *_labels(data[target]))
    if target is not None:
        raise ValueError("target is for a HeteroData; leave it out")
    made = shared_graph(data, graph, duplicates)
    if not isinstance(data, Data):
        raise TypeError("from_pyg takes a Data or a HeteroData; of stores, graph_of makes a graph")
    return girih.Dataset(made, _array(data.get("x")), *_labels(data))


def _target(data: HeteroData) -> str:
    """The only node type with labels."""
    labelled = [of for of in data.node_types if data[of].get("y") is not None]
    if len(labelled) != 1:
        raise ValueError(f"target: {len(labelled)} node types have y; name one of {', '.join(labelled or data.node_types)}")
    return str(labelled[0])


def _labels(data: Any) -> tuple[Any, Any]:
    """Labels, and training, validation and test nodes, of a `Data` or a node type; None for what is not there."""
    masks = [data.get(name) for name in ("train_mask", "val_mask", "test_mask")]
    split = None if any(mask is None or mask.dim() != 1 for mask in masks) else tuple(map(_array, masks))
    y = data.get("y")
    if y is not None and y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    return _array(y), split


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else host("attribute", tensor).numpy()


def shared_graph(data: Any, graph: girih.Graph | None, duplicates: Duplicates = "refuse") -> girih.Graph:
    """The graph that a caller shares, or a new one of `data`. Raises ValueError if it is of other nodes than `data`."""
    if graph is None:
        return graph_of(data, duplicates=duplicates)
    check_homogeneous(data)
    if isinstance(data, Data) and data.num_nodes != graph.num_nodes:
        raise ValueError(f"graph has {graph.num_nodes} nodes, but data has {data.num_nodes}; share graph_of(data)")
    return graph


def _graph_of_store(store: Any, duplicates: Duplicates) -> girih.Graph:
    if isinstance(store, Edges):
        return store.graph
    attrs = store.get_all_edge_attrs()
    if len(attrs) != 1 or attrs[0].edge_type is not None:
        raise NotImplementedError(
            f"a graph store of {len(attrs)} edge types: girih samples graphs of one type; store one, with edge_type=None"
        )
    if attrs[0].size is None:
        raise ValueError("the graph store does not know the number of nodes; put its edges with size=(n, n)")
    row, col, _ = store.coo()
    edge_index = torch.stack([host("row", row), host("col", col)])
    return graph_of_edges(edge_index.numpy(), max(attrs[0].size), duplicates)


def to_pyg(source: girih.Graph | girih.TypedGraph | girih.Dataset, *, features: bool = True) -> Any:
    """`Data` of a graph or of a data set: edge_index, and x, y, train_mask, val_mask, test_mask, edge_weight if known.

    A typed graph, or a data set with types, is a `HeteroData`; y and masks are those of the target. Edges are in the order of the caller's `edge_index`, where the graph was made of one. `x` is a copy of dense rows;
    compressed and mapped rows are better left out by `features=False`, and read through `NeighborLoader(x=…)`.
    """
    if isinstance(source, girih.TypedGraph) or (isinstance(source, girih.Dataset) and source.typed_graph is not None):
        from .typed import to_hetero

        return to_hetero(source, features=features)
    graph = source.graph if isinstance(source, girih.Dataset) else source
    edge_index, weights = torch.from_numpy(graph.edge_index()), graph.weights
    order = None if graph.edge_ids is None else np.argsort(graph.edge_ids, kind="stable")
    if order is not None:
        edge_index = edge_index.index_select(1, torch.from_numpy(order))
    data = Data(edge_index=edge_index, num_nodes=graph.num_nodes)
    if weights is not None:
        data.edge_weight = torch.from_numpy(weights.copy() if order is None else weights[order])
    if not isinstance(source, girih.Dataset):
        return data
    if features and source.features is not None:
        data.x = torch.from_numpy(source.features.gather(np.arange(graph.num_nodes)))
    put_labels(data, source, graph.num_nodes)
    return data


def put_labels(store: Any, source: girih.Dataset, num_nodes: int) -> None:
    """Puts y, train_mask, val_mask and test_mask of a data set, where they are known."""
    if source.y is not None:
        store.y = torch.from_numpy(source.y.copy())
    for name, mask in masks_of(source, num_nodes).items():
        store[name] = torch.from_numpy(mask)


def selected(value: Any, index: Tensor, dim: int) -> Any:
    """Entries of an attribute; `index_select` is several times as fast as `value[index]`."""
    if isinstance(value, Tensor):
        return value.index_select(dim, index if value.is_cpu else index.to(value.device))
    return index_select(value, index, dim=dim)


def reorder(data: Data, order: str = "community", *, seed: int = 0) -> tuple[Data, Tensor]:
    """The same data with nodes renamed, and the new id of each node (int64).

    All attributes of nodes are renamed together, and all that list nodes: `edge_index`, and others with "index" in their
    name, as PyG has it. Edges keep their columns, so attributes of edges stay. Row `v` of a result `out` for the old node
    `v` is `out[new_id_of_old[v]]`.

    Raises NotImplementedError for heterogeneous data and stores, ValueError for an order that girih does not have, and
    for data with adj_t, whose edges have no columns.
    """
    check_homogeneous(data)
    if not isinstance(data, Data):
        raise NotImplementedError("reorder renames a Data; make one of the stores")
    if "adj_t" in data or "adj" in data:
        raise ValueError("data has adj_t; make edge_index of it by torch_geometric.utils.to_edge_index, and remove it")
    _, new = graph_of(data, duplicates="merge").reorder(order, seed=seed)
    new_of_old = torch.from_numpy(new)
    old_of_new = new_of_old.argsort()
    renamed = copy.copy(data)
    for key, value in data._store.items():
        if isinstance(value, Tensor) and ("index" in key or key == "face"):
            renamed[key] = new_of_old.to(value.device)[value.long()].to(value.dtype)
        elif key != "num_nodes" and data.is_node_attr(key):
            renamed[key] = selected(value, old_of_new, data.__cat_dim__(key, value))
    return renamed, new_of_old


def random_walks(
    data: Any, start: Tensor, walk_length: int, *, p: float = 1.0, q: float = 1.0, seed: int | None = None
) -> Tensor:
    """Walks of `walk_length` steps from the nodes of `start`, of shape (n, walk_length + 1), as of torch_cluster.

    Walks over `Data` follow the direction of edges, over a `Graph` they go from a node to one of its in-neighbors; make
    the graph once where walks are asked for often. A walk that finds no neighbor stays where it is. `p` and `q` are
    node2vec's. Without `seed`, torch's generator decides.
    """
    graph = data
    if not isinstance(data, girih.Graph):
        check_homogeneous(data)
        flipped = host("edge_index", data.edge_index).flip(0)
        graph = girih.from_edge_index(flipped.numpy(), data.num_nodes, duplicates="merge")
    node2vec = {} if p == q == 1.0 else {"p": p, "q": q}
    seed = drawn_seed() if seed is None else seed
    indptr, nodes = girih.random_walks(graph, host("start", start).numpy(), walk_length, seed=seed, **node2vec)
    at = np.minimum(indptr[:-1, None] + np.arange(walk_length + 1), indptr[1:, None] - 1)
    return torch.from_numpy(nodes[at])


def drawn_seed(generator: torch.Generator | None = None) -> int:
    """Seed that torch's generator draws."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class Features(FeatureStore):  # type: ignore[misc]
    """PyG's feature store over rows of girih: `Features({"x": girih.FeatureStore(…), "y": y})`.

    Rows of a `girih.FeatureStore`, such as compressed or mapped ones, are decoded when they are asked for; a tensor or an
    array is indexed. All attributes belong to the one type of nodes.
    """

    def __init__(self, tables: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.tables: dict[str, Any] = {}
        for name, table in (tables or {}).items():
            self.tables[name] = torch.from_numpy(table) if isinstance(table, np.ndarray) else table

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        if attr.index is not None and attr.index != slice(None):
            raise NotImplementedError(f"rows of {attr.attr_name!r} cannot be replaced one by one; put all of them")
        self.tables[attr.attr_name] = torch.from_numpy(tensor) if isinstance(tensor, np.ndarray) else tensor
        return True

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        table, index = self.tables.get(attr.attr_name), attr.index
        if table is None:
            return None
        if index is None or isinstance(index, (slice, int)):
            index = torch.arange(len(table))[index if index is not None else slice(None)]
        index = torch.as_tensor(index)
        if isinstance(table, Tensor):
            return table[index.to(table.device)]
        return torch.from_numpy(table.gather(index.reshape(-1).cpu().numpy()))

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self.tables.pop(attr.attr_name, None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        table = self.tables.get(attr.attr_name)
        return None if table is None else tuple(table.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Names of all attributes."""
        return [TensorAttr(None, name) for name in self.tables]

    def __repr__(self) -> str:
        return f"girih.pyg.Features({list(self.tables)})"


class Edges(GraphStore):  # type: ignore[misc]
    """PyG's graph store over one graph of girih, in the layouts CSC and COO. Its edges cannot be replaced.

    Edges are numbered as they lie, by destination; girih's own samplers name them as the caller did.
    """

    def __init__(self, graph: girih.Graph) -> None:
        super().__init__()
        self.graph = graph

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise NotImplementedError("a graph of girih does not change; make another Edges of another graph")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise NotImplementedError("a graph of girih does not change; make another Edges of another graph")

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.edge_type is not None or edge_attr.layout == EdgeLayout.CSR:
            return None
        indptr, indices = self.graph.csr
        colptr, row = torch.from_numpy(indptr.copy()), torch.from_numpy(indices.astype(np.int64))
        if edge_attr.layout == EdgeLayout.COO:
            return row, torch.arange(self.graph.num_nodes).repeat_interleave(colptr.diff())
        return row, colptr

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The one set of edges."""
        n = self.graph.num_nodes
        return [EdgeAttr(None, EdgeLayout.CSC, is_sorted=True, size=(n, n))]

    def __repr__(self) -> str:
        return f"girih.pyg.Edges({self.graph})"
