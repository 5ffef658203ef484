"""Graphs of the edge lists of other libraries, and the words that arguments have."""

from typing import Any, Literal, TypeAlias

import numpy as np

from ._girih import Graph

Duplicates: TypeAlias = Literal["refuse", "merge", "sum", "keep"]
Draws: TypeAlias = Literal["node", "layer", "labor"]
IndexDtype: TypeAlias = Literal["int64", "int32"]


def graph_of_edges(edge_index: Any, num_nodes: int, duplicates: Duplicates) -> Graph:
    """Graph of edges (2, E), which are named by their columns.

    Edges that lie by destination already are named by position, so that no batch has to look names up.
    """
    graph = Graph.from_edge_index(edge_index, num_nodes, duplicates=duplicates)
    names = graph.edge_ids
    if names is not None and np.array_equal(names, np.arange(names.size)):
        return Graph.from_csr(*graph.csr)
    return graph
