"""Graphs of SciPy and NetworkX, and back."""

from typing import Any, Literal

import numpy as np

from ._girih import Dataset, Graph, TypedGraph


def from_scipy(
    matrix: Any, *, weighted: bool = False, duplicates: Literal["refuse", "merge", "sum", "keep"] = "refuse"
) -> Graph:
    """Graph of a sparse matrix of SciPy: entry (i, j) is the edge i → j. Values become weights if `weighted`.

    Raises ValueError if the matrix is not square.
    """
    coo = matrix.tocoo()
    if coo.shape[0] != coo.shape[1]:
        raise ValueError(f"the matrix has shape {coo.shape}; rows and columns have to be the same nodes")
    weights = coo.data.astype(np.float32) if weighted else None
    return Graph.from_edge_index(np.stack([coo.row, coo.col]), coo.shape[0], weights=weights, duplicates=duplicates)


def to_scipy(graph: Graph) -> Any:
    """Sparse matrix of SciPy, in CSR form: entry (i, j) is the edge i → j, with its weight or 1."""
    from scipy.sparse import csc_array  # type: ignore[import-untyped,unused-ignore]

    indptr, indices = graph.csr
    values = graph.weights if graph.weights is not None else np.ones(graph.num_edges, dtype=np.float32)
    return csc_array((values, indices, indptr), shape=(graph.num_nodes, graph.num_nodes)).tocsr()


def from_networkx(graph: Any, *, weight: str | None = None) -> Graph:
    """Graph of NetworkX. Node `list(graph)[v]` is node v. Undirected edges become one edge each way.

    `weight` names the attribute of edges that is their weight; an edge without it has weight 1.
    """
    number = {node: v for v, node in enumerate(graph)}
    pairs = [(number[u], number[v], 1.0 if weight is None else d.get(weight, 1.0)) for u, v, d in graph.edges(data=True)]
    if not graph.is_directed():
        pairs += [(v, u, w) for u, v, w in pairs if u != v]
    edges = np.array([pair[:2] for pair in pairs], dtype=np.int64).reshape(-1, 2).T
    weights = np.array([pair[2] for pair in pairs], dtype=np.float32) if weight is not None else None
    return Graph.from_edge_index(edges, len(number), weights=weights)


def to_networkx(graph: Graph) -> Any:
    """Directed graph of NetworkX, whose nodes are 0, 1, 2, …; weights are the attribute `weight`."""
    import networkx  # type: ignore[import-untyped,unused-ignore]

    made = networkx.DiGraph()
    made.add_nodes_from(range(graph.num_nodes))
    sources, destinations = graph.edge_index().tolist()
    if graph.weights is None:
        made.add_edges_from(zip(sources, destinations))
    else:
        made.add_weighted_edges_from(zip(sources, destinations, graph.weights.tolist()))
    return made


def masks_of(source: Dataset, num_nodes: int) -> dict[str, Any]:
    """train_mask, val_mask and test_mask of the first split, if there is one: a boolean for each of `num_nodes` nodes."""
    masks: dict[str, Any] = {}
    for name, nodes in zip(("train_mask", "val_mask", "test_mask"), source.split or ()):
        masks[name] = np.zeros(num_nodes, dtype=bool)
        masks[name][nodes] = True
    return masks


def typed_edges(graph: TypedGraph) -> dict[tuple[str, str, str], Any]:
    """Sources and destinations (2 × edges) of each edge type, in the order of the caller's list."""
    names, edges = graph.edge_ids, {}
    for of, edge_index in graph.edge_index().items():
        named = names[of]
        order = slice(None) if named is None else np.argsort(named, kind="stable")
        edges[of] = np.ascontiguousarray(edge_index[:, order])
    return edges
