"""PyTorch Geometric: its loaders over girih's samplers, and loaders that sample ahead on threads.

- `NeighborSampler`: for PyG's own `NodeLoader` and `LinkLoader`; one line of a program changes.
- `NeighborLoader`, `LinkNeighborLoader`: PyG's argument names; the first makes batches ahead, on threads, and both do so
  on a GPU.
- `ClusterLoader`, `GraphSAINTNodeSampler`, `GraphSAINTEdgeSampler`, `GraphSAINTRandomWalkSampler`: batches of subgraphs.
- `graph_of`, `typed_graph_of`, `timed_graph_of`, `from_pyg`, `to_pyg`, `reorder`, `random_walks`; `Features` and `Edges`: PyG's feature and graph stores over girih's.

A graph is copied once, by `graph_of(data)`. Loaders of the same data share it: pass `graph=graph_of(data)` to each.
"""

from .graphs import Edges, Features, from_pyg, graph_of, random_walks, reorder, timed_graph_of, to_pyg
from .links import LinkNeighborLoader
from .loader import NeighborLoader
from .sampler import NeighborSampler
from .subgraphs import (
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)
from .typed import typed_graph_of

__all__ = [
    "ClusterLoader",
    "Edges",
    "Features",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NeighborSampler",
    "from_pyg",
    "graph_of",
    "random_walks",
    "reorder",
    "timed_graph_of",
    "to_pyg",
    "typed_graph_of",
]
