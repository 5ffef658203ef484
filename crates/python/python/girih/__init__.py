"""Graphs for training: sampling, orders, compressed features and whole training.

NumPy is all that this module needs. `girih.pyg` adapts it to PyTorch Geometric, `girih.dgl` to DGL.
"""

from typing import Literal as _Literal

import numpy as _np
import numpy.typing as _npt

from ._girih import (
    Batch,
    Block,
    Checkpoint,
    Dataset,
    Epoch,
    FeatureStore,
    Graph,
    Sampler,
    TimedGraph,
    TypedBatch,
    TypedBlock,
    TypedGraph,
    TypedSampler,
    __version__,
    load,
    num_threads,
    random_walks,
    set_num_threads,
)
from ._convert import from_networkx, from_scipy, to_networkx, to_scipy
from ._loader import NeighborLoader, SubgraphLoader
from ._plots import Picture, spy
from ._train import Applied, Outcome, Run, apply, checkpoint_of_weights, config, settings_of, train

__all__ = [
    "Applied",
    "Batch",
    "Block",
    "Checkpoint",
    "Dataset",
    "Epoch",
    "FeatureStore",
    "Graph",
    "NeighborLoader",
    "Outcome",
    "Picture",
    "Run",
    "Sampler",
    "SubgraphLoader",
    "TimedGraph",
    "TypedBatch",
    "TypedBlock",
    "TypedGraph",
    "TypedSampler",
    "__version__",
    "apply",
    "checkpoint_of_weights",
    "compress",
    "config",
    "from_coo",
    "from_csr",
    "from_edge_index",
    "from_networkx",
    "from_scipy",
    "load",
    "num_threads",
    "random_walks",
    "set_num_threads",
    "settings_of",
    "spy",
    "to_networkx",
    "to_scipy",
    "train",
]

from_edge_index = Graph.from_edge_index
from_csr = Graph.from_csr


def from_coo(
    sources: _npt.ArrayLike,
    destinations: _npt.ArrayLike,
    num_nodes: int | None = None,
    *,
    weights: _npt.ArrayLike | None = None,
    duplicates: _Literal["refuse", "merge", "sum", "keep"] = "refuse",
) -> Graph:
    """Graph of the edges `sources[e] → destinations[e]`; the other arguments are those of `from_edge_index`."""
    start, end = _np.asarray(sources), _np.asarray(destinations)
    if start.shape != end.shape or start.ndim != 1:
        raise ValueError(f"sources and destinations have shapes {start.shape} and {end.shape}; give one of each an edge")
    return from_edge_index(_np.stack([start, end]), num_nodes, weights=weights, duplicates=duplicates)


def compress(x: _npt.ArrayLike | FeatureStore, codec: str, *, seed: int = 0) -> FeatureStore:
    """Rows of features as codes, such as "topk:8" or "int8"; `FeatureStore.gather` decodes the rows that it is asked for."""
    return (x if isinstance(x, FeatureStore) else FeatureStore(x)).encode(codec, seed=seed)
