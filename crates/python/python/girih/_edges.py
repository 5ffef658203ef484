"""Graphs of the edge lists of other libraries, and the words that arguments have."""

from typing import Any, Literal, TypeAlias

from ._girih import Graph

Duplicates: TypeAlias = Literal["refuse", "merge", "sum", "keep"]
Draws: TypeAlias = Literal["node", "layer", "labor"]
IndexDtype: TypeAlias = Literal["int64", "int32"]


def graph_of_edges(edge_index: Any, num_nodes: int, duplicates: Duplicates) -> Graph:
    """Graph of edges (2, E), which are named by their columns."""
    return Graph.from_edge_index(edge_index, num_nodes, duplicates=duplicates)
