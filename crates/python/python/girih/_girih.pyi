"""Native half of girih. Arrays that are called views share the memory of their owner and keep it."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Adjacency",
    "Batch",
    "Block",
    "Checkpoint",
    "Dataset",
    "Epoch",
    "FeatureStore",
    "Graph",
    "BatchLoader",
    "CudaBatch",
    "CudaBlock",
    "CudaEpoch",
    "CudaFeatures",
    "CudaGraph",
    "CudaLoader",
    "CudaRequests",
    "DeviceArray",
    "ForwardPass",
    "Sampler",
    "TimedGraph",
    "TypedBatch",
    "TypedBlock",
    "TypedGraph",
    "TypedSampler",
    "__version__",
    "cuda_empty_cache",
    "cuda_memory",
    "cuda_nn_attention",
    "cuda_nn_attention_backward",
    "cuda_nn_sddmm",
    "cuda_nn_spmm",
    "cuda_set_memory_limit",
    "default_config",
    "load",
    "nn_attention",
    "nn_attention_backward",
    "nn_backward",
    "nn_forward",
    "nn_sddmm",
    "nn_spmm",
    "num_threads",
    "random_walks",
    "set_num_threads",
    "spy_png",
    "train",
]

__version__: str

_Draws = Literal["node", "layer", "labor"]
_Dtype = Literal["int64", "int32"]
_Path = str | os.PathLike[str]
_Duplicates = Literal["refuse", "merge", "sum", "keep"]
_Bound = Literal["seed", "path", "batch"]
_EdgeType = tuple[str, str, str]

@final
class Graph:
    """Directed graph. Row `v` of its CSR lists the sources of the edges that end in node `v`, ascending.

    Edges have names: their columns in the caller's `edge_index`, also after `reorder`. Batches name edges by them.
    """

    @staticmethod
    def from_edge_index(
        edge_index: ArrayLike,
        num_nodes: int | None = None,
        *,
        weights: ArrayLike | None = None,
        duplicates: _Duplicates = "refuse",
    ) -> Graph:
        """Graph of the edges `edge_index[0, e] → edge_index[1, e]`, in any order; any type of integers.

        num_nodes: the largest id plus one if it is not given.
        weights: one number an edge.
        duplicates: rule for an edge that is listed twice: "refuse"; "merge" keeps the first; "sum" adds up weights;
            "keep" counts it as often as it is listed.

        Raises IndexError for an id that no node has, ValueError for a repeated edge or another shape.
        """
    @staticmethod
    def from_csr(
        indptr: ArrayLike, indices: ArrayLike, *, weights: ArrayLike | None = None, duplicates: _Duplicates = "refuse"
    ) -> Graph:
        """Graph of a CSR whose row `v` lists the sources of the edges that end in `v`.

        int64 offsets and int32 sources are read in place, without a copy, if rows ascend; do not write to them then.
        Rows in another order are sorted, and edges are named by their positions in `indices`.

        Raises ValueError if the offsets are none, IndexError for a source that no node has.
        """
    @staticmethod
    def open(path: _Path) -> Graph:
        """Graph of a file or folder, as `load` reads it; girih's own folders are mapped, not read."""
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def is_mapped(self) -> bool:
        """Whether the graph lies in a file."""
    @property
    def csr(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Offsets (num_nodes + 1) and sources (num_edges): read-only views."""
    @property
    def weights(self) -> NDArray[np.float32] | None:
        """Weight of each edge, in the order of rows: a read-only view."""
    @property
    def edge_ids(self) -> NDArray[np.int64] | None:
        """Name of each edge, in the order of rows: a read-only view. None: the position is the name."""
    def edge_index(self) -> NDArray[np.int64]:
        """Sources and destinations (2 × num_edges), in the order of rows."""
    def reorder(self, order: str = "community", *, seed: int = 0, blocks: int = 1) -> tuple[Graph, NDArray[np.int64]]:
        """The same graph with nodes renamed, and the new id of each node.

        order: "community", "rcm", "degree", "slashburn", "metis", "parts", "auto", "random" or "none".
        blocks: nodes keep to equal ranges of ids, one for each rank.
        """
    def permute(self, new_ids: ArrayLike) -> Graph:
        """The graph whose node `new_ids[v]` is node `v` of this one."""
    def symmetrized(self) -> Graph:
        """Each edge in both directions; names are positions."""
    def is_symmetric(self) -> bool: ...
    def partition(self, num_parts: int, *, method: Literal["metis", "streaming"] = "metis") -> NDArray[np.int64]:
        """Part of each node, from 0; parts are of nearly equal sizes, with few edges between them."""
    def quality(self) -> dict[str, Any]:
        """How near neighbors are in this order: bandwidth, reuse of rows, share of edges in dense blocks."""
    def stats(self) -> dict[str, Any]:
        """Numbers of nodes, edges, self loops, isolated nodes and components; degrees; symmetry."""

@final
class TypedGraph:
    """Directed graph whose nodes and edges have types. An edge type is (source type, relation, destination type).

    Nodes have ids inside their type. Edges are named by their columns in the `edge_index` of their type.
    """

    def __new__(
        cls,
        num_nodes: Mapping[str, int],
        edge_index: Mapping[_EdgeType, ArrayLike],
        *,
        reverse_types: Mapping[_EdgeType, _EdgeType] | None = None,
        duplicates: _Duplicates = "refuse",
    ) -> TypedGraph:
        """Graph of the edges `edge_index[type][0, e] → edge_index[type][1, e]` of each type.

        num_nodes: number of nodes of each type.
        reverse_types: edge types that have the edges of another in the other direction; `exclude` leaves out both.
        duplicates: rule for an edge that is listed twice, see `Graph.from_edge_index`.

        Raises IndexError for an id that no node of the type has, ValueError for an end without a number of nodes, a
        repeated edge or another shape.
        """
    @property
    def num_nodes(self) -> dict[str, int]: ...
    @property
    def num_edges(self) -> dict[_EdgeType, int]: ...
    @property
    def node_types(self) -> list[str]: ...
    @property
    def edge_types(self) -> list[_EdgeType]: ...
    @property
    def csr(self) -> dict[_EdgeType, tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Offsets of destinations and sources of each edge type: read-only views."""
    @property
    def edge_ids(self) -> dict[_EdgeType, NDArray[np.int64] | None]:
        """Name of each edge, in the order of rows: read-only views. None: the position is the name."""
    def edge_index(self) -> dict[_EdgeType, NDArray[np.int64]]:
        """Sources and destinations (2 × edges) of each edge type, in the order of rows."""

@final
class TimedGraph:
    """Directed graph whose edges have times, and may repeat. They are named by their columns in `edge_index`."""

    @staticmethod
    def from_edge_index(
        edge_index: ArrayLike, times: ArrayLike, num_nodes: int | None = None, symmetrize: bool = False
    ) -> TimedGraph:
        """Graph of the edges `edge_index[0, e] → edge_index[1, e]` at `times[e]`, in any order.

        times: integers of any unit. Where nodes have times, an edge may have that of its source.
        num_nodes: the largest id plus one if it is not given.
        symmetrize: nodes see edges in both directions; a reversed edge has the name of the edge.

        Raises IndexError for an id that no node has, ValueError for another number of times, TypeError for times that are
        no integers.
        """
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def span(self) -> tuple[int, int] | None:
        """Earliest and latest time; None without edges."""
    def edge_index(self) -> NDArray[np.int64]:
        """Sources and destinations (2 × num_edges), by the names of edges."""
    def times(self) -> NDArray[np.int64]:
        """Time of each edge, by its name."""

@final
class Block:
    """Bipartite graph of one layer. Its destinations are the first `num_dst` of its sources."""

    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def n_id(self) -> NDArray[Any]:
        """Global ids of the sources, the destinations first."""
    @property
    def weights(self) -> NDArray[np.float32] | None:
        """Weight of each edge, for samplers that correct for edges they leave out; a view."""
    def csc(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
        """Offsets of destinations (num_dst + 1), sources by local id (num_edges), and names of edges."""

@final
class Batch:
    """Mini-batch. Arrays are views of its memory, which goes back to its sampler with the last of them.

    Copy what you keep: a list of batches holds the memory of all of them.
    """

    @property
    def edge_index(self) -> NDArray[Any]:
        """Sources and destinations by local id (2 × edges), hop after hop."""
    @property
    def n_id(self) -> NDArray[Any]:
        """Global ids: the seeds, then the nodes that each hop found."""
    @property
    def e_id(self) -> NDArray[np.int64] | None:
        """Name of each edge; None if the sampler was made with `edge_ids=False`."""
    @property
    def x(self) -> NDArray[np.float32] | None:
        """Feature rows of `n_id`, of loaders with features."""
    @property
    def weights(self) -> NDArray[np.float32] | None:
        """Weight of each edge, for samplers that correct for edges they leave out."""
    @property
    def batch(self) -> NDArray[np.int64] | None:
        """Position of the seed whose subgraph each node is in; None where seeds share their nodes."""
    @property
    def loss_weights(self) -> NDArray[np.float32] | None:
        """Weight of each node in the loss (GraphSAINT)."""
    @property
    def digest(self) -> int:
        """Digest of the blocks, as `girih sample` prints it: equal batches have equal ones."""
    @property
    def batch_size(self) -> int:
        """Number of seeds."""
    @property
    def number(self) -> int:
        """Number of the batch in its epoch."""
    @property
    def num_sampled_nodes(self) -> list[int]:
        """Number of seeds, then of the nodes that each hop found."""
    @property
    def num_sampled_edges(self) -> list[int]:
        """Number of edges that each hop drew."""
    def blocks(self) -> list[Block]:
        """A block for each layer, the inputs first."""

@final
class Sampler:
    """Sampler of mini-batches. A batch depends on graph, seeds and (seed, epoch, batch) alone."""

    def __new__(
        cls,
        graph: Graph,
        num_neighbors: Sequence[int],
        *,
        replace: bool = False,
        weights: ArrayLike | None = None,
        expand: Literal["once", "per-layer"] = "once",
        draws: _Draws = "node",
        index_dtype: _Dtype = "int64",
        edge_ids: bool = True,
    ) -> Sampler:
        """Draws some in-neighbors of each node, hop by hop.

        num_neighbors: for each hop, from the seeds outward; -1 for all.
        replace: an edge may be drawn several times.
        weights: chance of each edge, by its name, relative to the others of its destination; 0 for never.
        expand: "once": only nodes that are new draw in a hop (PyG). "per-layer": all nodes draw in each hop (DGL);
            such a batch is blocks, and no single list of edges.
        draws: for each "node", for all nodes of a "layer" together, or LABOR.
        index_dtype: type of `edge_index` and `n_id`.
        edge_ids: batches name their edges.
        """
    @staticmethod
    def layerwise(
        graph: Graph,
        sizes: Sequence[int],
        *,
        method: Literal["ladies", "fastgcn"] = "ladies",
        replace: bool = False,
        index_dtype: _Dtype = "int64",
    ) -> Sampler:
        """Draws `sizes[h]` nodes for the whole of hop h, from the seeds outward; batches are blocks."""
    @staticmethod
    def clusters(
        graph: Graph, cluster_of: ArrayLike, *, clusters_per_batch: int = 1, index_dtype: _Dtype = "int64"
    ) -> Sampler:
        """Some clusters at a time, with all edges among their nodes (Cluster-GCN). Takes no seeds.

        cluster_of: cluster of each node, counted from 0, as `Graph.partition` returns.
        """
    @staticmethod
    def saint(
        graph: Graph,
        size: int,
        *,
        method: Literal["nodes", "edges", "walks"] = "walks",
        walk_length: int = 2,
        num_presampled: int = 50,
        seed: int = 0,
        index_dtype: _Dtype = "int64",
    ) -> Sampler:
        """Subgraphs of `size` drawn nodes, edges or walks, with weights that correct for the rest (GraphSAINT). No seeds.

        num_presampled: subgraphs that the weights of walks are estimated from.
        """
    @staticmethod
    def timed(
        graph: TimedGraph,
        num_neighbors: Sequence[int],
        *,
        until: _Bound | None = None,
        before: _Bound | None = None,
        window: int | None = None,
        strategy: Literal["uniform", "last"] = "uniform",
        replace: bool = False,
        expand: Literal["once", "per-layer"] = "once",
        index_dtype: _Dtype = "int64",
        edge_ids: bool = True,
    ) -> Sampler:
        """Draws some earlier in-neighbors of each node, hop by hop. Each seed has a time; `sample` takes `times`.

        until, before: edges up to a bound, or before it. "seed" (the default of `until`): the time of the seed, in all
            hops, and a subgraph for each seed, whose position is `batch`. "path": in later hops the time of the edge just
            taken. "batch": the earliest time of the seeds, which then share their nodes.
        window: largest distance of an edge's time from the bound.
        strategy: "uniform", or "last" for the latest edges.
        """
    @property
    def graph(self) -> Any:
        """The graph, which has times where the sampler follows time."""
    @property
    def has_seeds(self) -> bool: ...
    def sample(
        self,
        seeds: ArrayLike | None = None,
        *,
        times: ArrayLike | None = None,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        exclude: ArrayLike | None = None,
    ) -> Batch:
        """Batch of these seeds: ids of nodes, or a mask of all nodes.

        A seed that is listed repeatedly has a copy each time, with equal neighbors.
        times: time of each seed, of samplers that follow time.
        exclude: names of edges that are not drawn.

        Raises IndexError for a seed that no node is.
        """

@final
class TypedBlock:
    """Edges of one layer by type. Destinations of a node type are the first of its sources."""

    @property
    def num_src(self) -> dict[str, int]: ...
    @property
    def num_dst(self) -> dict[str, int]: ...
    @property
    def num_edges(self) -> dict[_EdgeType, int]: ...
    @property
    def n_id(self) -> dict[str, NDArray[np.int64]]:
        """Ids inside the type of the sources, the destinations first."""
    def csc(self) -> dict[_EdgeType, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]]:
        """Offsets of destinations, sources by local id, and names of edges, of each edge type."""

@final
class TypedBatch:
    """Mini-batch of a typed graph. Arrays are views of its memory, which goes back to its sampler with the last of them."""

    @property
    def edge_index(self) -> dict[_EdgeType, NDArray[np.int64]]:
        """Sources and destinations by local id (2 × edges) of each edge type, hop after hop."""
    @property
    def n_id(self) -> dict[str, NDArray[np.int64]]:
        """Ids inside the type: the seeds, then the nodes that each hop found."""
    @property
    def e_id(self) -> dict[_EdgeType, NDArray[np.int64]] | None:
        """Name of each edge; None if the sampler was made with `edge_ids=False`."""
    @property
    def x(self) -> dict[str, NDArray[np.float32]]:
        """Feature rows of `n_id`, of the types that the loader has features of."""
    @property
    def digest(self) -> int:
        """Digest of the blocks, as `girih sample` prints it: equal batches have equal ones."""
    @property
    def batch_size(self) -> int:
        """Number of seeds."""
    @property
    def num_seeds(self) -> dict[str, int]:
        """Number of seeds of each type that has some."""
    @property
    def number(self) -> int:
        """Number of the batch in its epoch."""
    @property
    def num_sampled_nodes(self) -> dict[str, list[int]]:
        """Number of seeds, then of the nodes that each hop found, of each type."""
    @property
    def num_sampled_edges(self) -> dict[_EdgeType, list[int]]:
        """Number of edges that each hop drew, of each type."""
    def blocks(self) -> list[TypedBlock]:
        """A block for each layer, the inputs first."""

@final
class TypedSampler:
    """Sampler of neighbors by edge type. A batch depends on graph, seeds and (seed, epoch, batch) alone."""

    def __new__(
        cls,
        graph: TypedGraph,
        num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]],
        *,
        replace: bool = False,
        expand: Literal["once", "per-layer"] = "once",
        edge_ids: bool = True,
    ) -> TypedSampler:
        """Draws some in-neighbors of each node by each edge type, hop by hop.

        num_neighbors: for each hop, from the seeds outward; -1 for all, 0 to not follow the type. One list for all types,
            or lists by edge type, by relation ("writes") and, with "*", for all others.
        replace, expand, edge_ids: as in `Sampler`.
        """
    @property
    def graph(self) -> TypedGraph: ...
    def sample(
        self,
        seeds: tuple[str, ArrayLike] | Mapping[str, ArrayLike],
        *,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        exclude: Mapping[_EdgeType, ArrayLike] | None = None,
    ) -> TypedBatch:
        """Batch of these seeds, each listed once: a node type and ids (or a mask), or several types.

        exclude: names of edges that are not drawn, by type; those of reverse types are not drawn, either.

        Raises IndexError for a seed that no node is, ValueError for a repeated seed or an unknown type.
        """

@final
class BatchLoader:
    """Native part of `NeighborLoader` and `SubgraphLoader`."""

    def __new__(
        cls,
        sampler: Sampler | TypedSampler,
        seeds: ArrayLike | tuple[str, ArrayLike] | None,
        *,
        batch_size: int = 1024,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        threads: int = 1,
        num_batches: int | None = None,
        features: FeatureStore | dict[str, FeatureStore] | None = None,
        times: ArrayLike | None = None,
    ) -> BatchLoader: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Epoch: ...
    def epoch(self, number: int, *, first: int = 0) -> Epoch: ...

@final
class Epoch(Iterator[Any]):
    """Batches of one epoch, in order: `Batch`, or `TypedBatch` of a typed graph. Its threads end with it."""

    def __iter__(self) -> Epoch: ...
    def __next__(self) -> Any: ...
    def __len__(self) -> int: ...
    def close(self) -> None:
        """Ends the epoch and its threads before its last batch."""

@final
class FeatureStore:
    """Rows of features, one for each node: dense, sparse or compressed, in memory or mapped."""

    def __new__(cls, rows: ArrayLike) -> FeatureStore:
        """Rows of an array (nodes × width). Contiguous float32 is read in place; other numbers are converted."""
    @staticmethod
    def open(path: _Path, *, verify: bool = False) -> FeatureStore:
        """Store of a file, mapped: codes are read when they are needed. `verify` checks all of them first."""
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def codec(self) -> str | None:
        """Name of the codec; None for rows as they are."""
    @property
    def row_bytes(self) -> int | None:
        """Bytes of a stored row; None where rows differ."""
    @property
    def rows(self) -> NDArray[np.float32] | None:
        """All rows as they lie, a read-only view; None unless they are dense."""
    def encode(self, codec: str, *, seed: int = 0) -> FeatureStore:
        """Compressed copy, by a codec that is fitted to a sample: "topk:8", "int8", "int4", "f16", "pca:32", …"""
    def save(self, path: _Path) -> None:
        """Writes a compressed store to a file, for `open`."""
    def gather(self, ids: ArrayLike, out: Any = None) -> Any:
        """Rows of `ids` (len(ids) × width), decoded: a new array, or `out`, an array or CPU tensor of float32."""
    def errors(self, rows: ArrayLike) -> dict[str, float]:
        """Errors of the codec on a sample of `rows`: mean cosine, relative and largest error."""
    def __len__(self) -> int: ...

@final
class Dataset:
    """Graph, features, labels and splits of one set of nodes."""

    def __new__(
        cls,
        graph: Graph,
        x: FeatureStore | ArrayLike | None = None,
        y: ArrayLike | None = None,
        split: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        *,
        name: str = "data",
    ) -> Dataset:
        """Data of arrays, for `train`.

        x: a row of features for each node (nodes × width).
        y: the class of each node, -1 if it is unknown; or a row of 0 and 1 for each node (nodes × classes).
        split: training, validation and test nodes, as ids or as masks.

        Raises ValueError for a wrong number of rows or a wrong label, IndexError for a node that does not exist.
        """
    @staticmethod
    def of_types(
        graph: TypedGraph,
        target: str,
        x: Mapping[str, FeatureStore | ArrayLike] | None = None,
        y: ArrayLike | None = None,
        split: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        *,
        name: str = "data",
    ) -> Dataset:
        """Data of a graph with types, for `train`.

        target: node type that `y` and `split` are of.
        x: rows of features by node type; types without rows learn some.
        """
    @property
    def name(self) -> str: ...
    @property
    def graph(self) -> Graph:
        """The graph; of data with types, all edges over global ids, without their types."""
    @property
    def typed_graph(self) -> TypedGraph | None:
        """Graph with types of nodes and edges; None if the data has none."""
    @property
    def timed_graph(self) -> TimedGraph | None:
        """Edges with times; None if the data has none."""
    @property
    def target(self) -> str | None:
        """Node type that `y` and `split` are of; None if the data has no types."""
    @property
    def type_features(self) -> dict[str, FeatureStore]:
        """Features of each node type that has some."""
    @property
    def features(self) -> FeatureStore | None: ...
    @property
    def x(self) -> NDArray[np.float32] | None:
        """Dense features, a read-only view; None if there are none, or they are not dense."""
    @property
    def y(self) -> NDArray[Any] | None:
        """Class of each node (int64, -1 if unknown), or a row of 0 and 1 for each node (float32)."""
    @property
    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Ids of training, validation and test nodes of the first split."""
    @property
    def num_splits(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def notes(self) -> list[str]:
        """Notes of the loader: data left out, made up or doubtful."""
    def reorder(self, order: str = "community", *, seed: int = 0) -> tuple[Dataset, NDArray[np.int64]]:
        """The same data with nodes renamed, and the new id of each node."""
    def save(self, path: _Path) -> None:
        """Writes girih's own folder, which `load` maps."""

@final
class Checkpoint:
    """State of a run of training: parameters, settings and progress."""

    @staticmethod
    def open(path: _Path) -> Checkpoint:
        """Checkpoint of a file that `train` or `girih train` wrote."""
    @staticmethod
    def from_weights(
        config: str,
        weights: dict[str, NDArray[np.float32]],
        *,
        library: str = "pyg",
        data: Dataset | None = None,
        multi_label: bool = False,
    ) -> Checkpoint: ...
    @property
    def _config(self) -> str: ...
    @property
    def epoch(self) -> int:
        """Number of epochs done."""
    @property
    def best_epoch(self) -> int | None: ...
    def save(self, path: _Path) -> None: ...
    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Best parameters by girih's names."""
    def state_dict(self, library: Literal["pyg", "dgl"] | str = "pyg") -> dict[str, NDArray[np.float32]]:
        """Best parameters as a state dict of another library's layers."""
    def _apply(self, data: Dataset, *, device: str = "auto") -> tuple[NDArray[np.float32], str]: ...
    def embeddings(self, data: Dataset, *, device: str = "auto") -> NDArray[np.float32]:
        """Embedding of every node (nodes × width), without new training."""

def load(
    spec: _Path,
    *,
    codec: str | None = None,
    symmetrize: bool | None = None,
    split: int | None = None,
    seed: int = 0,
    labels: _Path | None = None,
    target: str | None = None,
    reverse: bool | Literal["add", "merge", "no"] | None = None,
    columns: str | None = None,
    times: bool = False,
    edge_features: Sequence[str] | None = None,
) -> Dataset:
    """Data set of a path, whose format is recognised, or of `synth:NAME[@SCALE][,key=value…]`.

    The options are those of `girih train`. `times` reads the times of an edge list, in the column that its header or
    `columns="source,target,time"` names, and `edge_features` names columns beside them. `reverse` adds the reverse of each
    edge type; "merge" gives edges inside one node type their other direction instead. `target` is the node type with labels.

    Raises FileNotFoundError, MemoryError for generated data that does not fit, or ValueError that names the file.
    """

def random_walks(
    graph: Graph,
    starts: ArrayLike,
    length: int,
    *,
    p: float | None = None,
    q: float | None = None,
    restart: float = 0.0,
    stop: float = 0.0,
    weights: ArrayLike | None = None,
    seed: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A walk from each of `starts`, against the direction of edges: offsets, and nodes.

    Walk i is `nodes[indptr[i]:indptr[i + 1]]`; it ends early at a node without in-neighbors.
    p, q: return and in-out parameters of node2vec. restart, stop: chance at each step. weights: by edge name.
    """

def default_config(task: str = "nodes", model: str = "gcn") -> str: ...
def train(
    dataset: Dataset,
    config: str,
    device: str,
    out: _Path,
    *,
    checkpoint_every: int | None = None,
    resume: bool = False,
    on_event: Callable[[str], bool | None] | None = None,
) -> str: ...
def spy_png(graphs: Sequence[Graph]) -> bytes:
    """PNG of the adjacencies of graphs, side by side on one scale."""

def num_threads() -> int:
    """Number of threads of whole operations, such as orders, gathers and training."""

def set_num_threads(n: int) -> None:
    """Sets the number of threads of whole operations; 0: one a core."""

_Rows = NDArray[np.float32]
_Operands = tuple[_Rows, _Rows, _Rows | None, _Rows]

@final
class Adjacency:
    """Graph, block or list of edges under the number that operators of `girih.nn` know it by."""

    @staticmethod
    def of_graph(graph: Graph) -> Adjacency: ...
    @staticmethod
    def of_block(block: Block) -> Adjacency: ...
    @staticmethod
    def of_edges(edge_index: ArrayLike, num_src: int, num_dst: int) -> Adjacency: ...
    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @staticmethod
    def of_cuda_block(block: CudaBlock) -> Adjacency: ...
    @property
    def number(self) -> int: ...
    @property
    def sizes(self) -> tuple[int, int]: ...
    @property
    def handle(self) -> NDArray[np.int64]:
        """The number, in memory of this object."""
    def ends(self, loops: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sources and destinations of the entries of the pattern, in the order of rows."""
    def edges(self, loops: bool) -> NDArray[np.int64]:
        """For each entry of the pattern, the position of its edge in the caller's order."""

def nn_spmm(graph: tuple[int, str], transpose: bool, weights: _Rows | None, x: _Rows, out: _Rows) -> None: ...
def nn_sddmm(graph: tuple[int, str], x: _Rows, y: _Rows, out: _Rows) -> None: ...
def nn_attention(
    graph: tuple[int, str], options: tuple[int, float, float, int], operands: _Operands, results: tuple[_Rows, _Rows]
) -> None: ...
def nn_attention_backward(
    graph: tuple[int, str],
    options: tuple[int, float, float, int],
    operands: _Operands,
    results: tuple[_Rows, _Rows, _Rows],
    grads: _Operands,
) -> None: ...

_At = tuple[int, int]
# Tensors of PyTorch, which this package does not need.
_TorchTensor = Any
_GivenLayer = tuple[
    tuple[int, str] | None, tuple[_TorchTensor, _TorchTensor | None, _TorchTensor | None], tuple[bool, bool, float, int]
]

@final
class ForwardPass:
    """Forward pass that a backward pass may follow."""

    @property
    def handle(self) -> NDArray[np.int64]:
        """Number of the pass, in memory of this object."""

def nn_forward(
    at: _At | None, x: _TorchTensor, layers: Sequence[_GivenLayer], out: _TorchTensor, keeps: bool
) -> ForwardPass | None: ...
def nn_backward(
    number: int,
    tensors: Sequence[_TorchTensor | None],
    grad: _TorchTensor,
    of_x: _TorchTensor | None,
    grads: Sequence[tuple[_TorchTensor | None, _TorchTensor | None, _TorchTensor | None]],
) -> None: ...

# What follows is there in builds with CUDA.


@final
class DeviceArray:
    """Array on a GPU, which `torch.from_dlpack` and its like take over without a copy."""

    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...

@final
class CudaGraph:
    """Graph from which a GPU samples; see `girih.cuda.Graph`."""

    def __new__(cls, graph: Graph, at: _At, on_host: bool) -> CudaGraph: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def device(self) -> int: ...

@final
class CudaFeatures:
    """Rows of features that a GPU gathers; see `girih.cuda.FeatureStore`."""

    def __new__(
        cls, store: FeatureStore, at: _At, placed: tuple[str, float], dtype: str, graph: Graph | None
    ) -> CudaFeatures: ...
    def gather(self, ids: ArrayLike) -> DeviceArray: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> int: ...
    def __len__(self) -> int: ...

@final
class CudaBatch:
    """Mini-batch on a GPU; see `girih.cuda.Batch`."""

    @property
    def edge_index(self) -> DeviceArray: ...
    @property
    def n_id(self) -> DeviceArray: ...
    @property
    def nodes(self) -> DeviceArray: ...
    @property
    def e_id(self) -> DeviceArray | None: ...
    @property
    def x(self) -> tuple[DeviceArray, int] | None: ...
    @property
    def has_list(self) -> bool: ...
    @property
    def is_wide(self) -> bool: ...
    @property
    def is_list(self) -> bool: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def num_sampled_nodes(self) -> list[int]: ...
    @property
    def num_sampled_edges(self) -> list[int]: ...
    @property
    def digest(self) -> int: ...
    def blocks(self) -> list[CudaBlock]: ...

@final
class CudaBlock:
    """Bipartite graph of one layer on a GPU: destinations are the first of the sources."""

    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def nodes(self) -> DeviceArray: ...

@final
class CudaEpoch:
    """Batches of one epoch on a GPU, in order."""

    def __iter__(self) -> CudaEpoch: ...
    def __len__(self) -> int: ...
    def __next__(self) -> CudaBatch: ...
    def seeds(self) -> NDArray[np.int64]:
        """Seeds of the batches, in their order."""
    def close(self) -> None: ...

@final
class CudaLoader:
    """Batches of an epoch after the other on a GPU; see `girih.cuda.NeighborLoader`."""

    def __new__(
        cls,
        graph: CudaGraph,
        sampler: Sampler,
        seeds: ArrayLike | None,
        order: tuple[int, bool, bool, int],
        features: CudaFeatures | None,
    ) -> CudaLoader: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> CudaEpoch: ...
    def epoch(self, number: int, *, first: int = 0) -> CudaEpoch: ...
    def requests(self) -> CudaRequests:
        """Batches that are requested one by one, of at most batch_size seeds."""

@final
class CudaRequests:
    """Batches on a GPU whose seeds come one by one. Each comes once the two behind it are requested, or `finish` is called."""

    def __iter__(self) -> CudaRequests: ...
    def __next__(self) -> CudaBatch: ...
    def request(self, seeds: ArrayLike, seed: int) -> None:
        """Requests a batch of distinct seeds. Raises IndexError for a seed that is no node."""
    def finish(self) -> None: ...
    def close(self) -> None: ...

def cuda_memory(ordinal: int) -> tuple[int, int]: ...
def cuda_empty_cache(ordinal: int) -> None: ...
def cuda_set_memory_limit(ordinal: int, bytes: int) -> None: ...

_Tensor = tuple[int, int, int, bool]
_Tensors = tuple[_Tensor, _Tensor, _Tensor | None, _Tensor]

def cuda_nn_spmm(
    at: _At, graph: tuple[int, str], transpose: bool, weights: _Tensor | None, x: _Tensor, out: _Tensor
) -> None: ...
def cuda_nn_sddmm(at: _At, graph: tuple[int, str], x: _Tensor, y: _Tensor, out: _Tensor) -> None: ...
def cuda_nn_attention(
    at: _At,
    graph: tuple[int, str],
    options: tuple[int, float, float, int],
    given: _Tensors,
    results: tuple[_Tensor, _Tensor],
) -> None: ...
def cuda_nn_attention_backward(
    at: _At,
    graph: tuple[int, str],
    options: tuple[int, float, float, int],
    given: _Tensors,
    results: tuple[_Tensor, _Tensor, _Tensor],
    grads: _Tensors,
) -> None: ...
