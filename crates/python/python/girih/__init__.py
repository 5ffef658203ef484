"""Graphs for training: sampling, orders, compressed features and whole training.

NumPy is all that this module needs. `girih.pyg` adapts it to PyTorch Geometric, `girih.dgl` to DGL.
"""

from ._girih import (
    Batch,
    Block,
    Dataset,
    Epoch,
    FeatureStore,
    Graph,
    Sampler,
    __version__,
    load,
    num_threads,
    random_walks,
    set_num_threads,
)
from ._convert import from_networkx, from_scipy, to_networkx, to_scipy
from ._loader import NeighborLoader, SubgraphLoader

__all__ = [
    "Batch",
    "Block",
    "Dataset",
    "Epoch",
    "FeatureStore",
    "Graph",
    "NeighborLoader",
    "Sampler",
    "SubgraphLoader",
    "__version__",
    "compress",
    "from_coo",
    "from_csr",
    "from_edge_index",
    "from_networkx",
    "from_scipy",
    "load",
    "num_threads",
    "random_walks",
    "set_num_threads",
    "to_networkx",
    "to_scipy",
]

from_edge_index = Graph.from_edge_index
from_csr = Graph.from_csr


def from_coo(sources, destinations, num_nodes=None, *, weights=None, duplicates="refuse") -> Graph:
    """Graph of the edges `sources[e] → destinations[e]`; the arguments are those of `from_edge_index`."""
    import numpy as np

    sources, destinations = np.asarray(sources), np.asarray(destinations)
    if sources.shape != destinations.shape or sources.ndim != 1:
        raise ValueError(
            f"sources and destinations have shapes {sources.shape} and {destinations.shape}; give one of each an edge"
        )
    return from_edge_index(np.stack([sources, destinations]), num_nodes, weights=weights, duplicates=duplicates)


def compress(x, codec: str, *, seed: int = 0) -> FeatureStore:
    """Rows of features as codes, such as `topk:8` or `int8`; `FeatureStore.gather` decodes the rows that it is asked for."""
    return (x if isinstance(x, FeatureStore) else FeatureStore(x)).encode(codec, seed=seed)
