"""DGL: its graphs and blocks over girih's sampler.

girih lists fan-outs from the seeds outward, DGL from the inputs. `girih.dgl` takes DGL's order: `[5, 10, 15]` draws 15
neighbors of each seed. `girih.NeighborLoader` and `girih.Sampler` take `[15, 10, 5]` for the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dgl  # type: ignore[import-untyped,unused-ignore]
import numpy as np
import torch
from dgl import graph_index, heterograph_index
from dgl.heterograph import DGLBlock  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

import girih

from ._convert import masks_of, typed_edges
from ._edges import Draws, Duplicates, IndexDtype, graph_of_edges
from ._loader import NeighborLoader as _BatchLoader


def graph_of(graph: Any, *, duplicates: Duplicates = "refuse") -> girih.Graph:
    """Graph of a `dgl.DGLGraph` of one type of nodes and edges; batches name edges by their DGL ids.

    Parallel edges are refused, or merged by `duplicates="merge"`: the first one stays. Make one graph, and share it.

    Raises ValueError for heterographs (`typed_graph_of`) and for parallel edges, TypeError for what is no graph of DGL.
    """
    if not isinstance(graph, dgl.DGLGraph):
        raise TypeError(f"graph is {type(graph).__name__}; give a dgl.DGLGraph")
    if graph.is_block:
        raise ValueError("graph is a block; girih samples graphs whose sources and destinations are the same nodes")
    if not graph.is_homogeneous:
        raise ValueError(f"a heterograph with {len(graph.canonical_etypes)} types of edges; give it to typed_graph_of")
    source, destination = graph.cpu().edges(order="eid")
    edge_index = torch.stack([source, destination]).numpy()
    return graph_of_edges(edge_index, graph.num_nodes(), duplicates)


def typed_graph_of(graph: Any, *, duplicates: Duplicates = "refuse") -> girih.TypedGraph:
    """Graph of a heterograph of DGL, with the names of its types; batches name edges by their DGL ids.

    Parallel edges are refused, or merged by `duplicates="merge"`.

    Raises TypeError for what is no graph of DGL, ValueError for blocks and for parallel edges.
    """
    if not isinstance(graph, dgl.DGLGraph):
        raise TypeError(f"graph is {type(graph).__name__}; give a dgl.DGLGraph")
    if graph.is_block:
        raise ValueError("graph is a block; girih samples graphs whose sources and destinations are the same nodes")
    num_nodes = {of: graph.num_nodes(of) for of in graph.ntypes}
    on_cpu = graph.cpu()
    edges = {of: torch.stack(on_cpu.edges(etype=of, order="eid")).numpy() for of in graph.canonical_etypes}
    return girih.TypedGraph(num_nodes, edges, duplicates=duplicates)


def from_dgl(graph: Any, *, duplicates: Duplicates = "refuse") -> girih.Dataset:
    """Data set of a `dgl.DGLGraph`: `ndata["feat"]`, `ndata["label"]`, and train_mask, val_mask and test_mask if it has all.

    Raises as `graph_of`.
    """
    made, nodes = graph_of(graph, duplicates=duplicates), graph.ndata
    arrays = {name: nodes[name].detach().cpu().numpy() for name in nodes}
    masks: list[Any] = [arrays.get(name) for name in ("train_mask", "val_mask", "test_mask")]
    split = None if any(mask is None for mask in masks) else tuple(mask.astype(bool) for mask in masks)
    return girih.Dataset(made, arrays.get("feat"), arrays.get("label"), split)


def to_dgl(source: girih.Graph | girih.TypedGraph | girih.Dataset) -> Any:
    """`dgl.DGLGraph` of a graph or of a data set; ids of edges are the caller's, where he gave them without gaps.

    A typed graph, or a data set with types, is a heterograph; labels and masks are those of the target.

    Weights are `edata["weight"]`. Of a data set, dense features are `ndata["feat"]` (a copy), and `ndata` has label,
    train_mask, val_mask and test_mask, where they are known.
    """
    if isinstance(source, girih.TypedGraph) or (isinstance(source, girih.Dataset) and source.typed_graph is not None):
        return _to_heterograph(source)
    graph = source.graph if isinstance(source, girih.Dataset) else source
    indptr, indices = graph.csr
    names, empty = graph.edge_ids, torch.empty(0, dtype=torch.int64)
    ids = empty
    if names is not None and names.size > 0 and int(names.max()) < names.size:
        ids = torch.from_numpy(names.copy())
    # DGL keeps the arrays it is given, and girih's are read only.
    csc = torch.from_numpy(indptr.copy()), torch.from_numpy(indices.astype(np.int64)), ids
    made = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
    if graph.weights is not None:
        weights = torch.empty(graph.num_edges)
        weights[ids if ids.numel() else slice(None)] = torch.from_numpy(graph.weights.copy())
        made.edata["weight"] = weights
    if isinstance(source, girih.Dataset):
        if source.x is not None:
            made.ndata["feat"] = torch.from_numpy(source.x.copy())
        _put_labels(made.ndata, source, graph.num_nodes)
    return made


def _put_labels(data: Any, source: girih.Dataset, num_nodes: int) -> None:
    """Puts label, train_mask, val_mask and test_mask of a data set, where they are known."""
    if source.y is not None:
        data["label"] = torch.from_numpy(source.y.copy())
    for name, mask in masks_of(source, num_nodes).items():
        data[name] = torch.from_numpy(mask)


def _to_heterograph(source: girih.TypedGraph | girih.Dataset) -> Any:
    graph = source if isinstance(source, girih.TypedGraph) else source.typed_graph
    assert graph is not None
    edges = {of: tuple(map(torch.from_numpy, edge_index)) for of, edge_index in typed_edges(graph).items()}
    made = dgl.heterograph(edges, num_nodes_dict=graph.num_nodes)
    if isinstance(source, girih.Dataset):
        for of, store in source.type_features.items():
            if store.rows is not None:
                made.nodes[of].data["feat"] = torch.from_numpy(store.rows.copy())
        _put_labels(made.nodes[source.target].data, source, graph.num_nodes[source.target or ""])
    return made


def to_blocks(batch: girih.Batch | girih.TypedBatch) -> list[Any]:
    """`DGLBlock`s of a batch in the order of layers, with `dgl.NID` of nodes and `dgl.EID` of edges.

    Ids are int64, or int32 where the sampler has `index_dtype="int32"`. The tensors keep the batch's memory. A sampler
    with `expand="per-layer"` draws as DGL does: anew in each layer.

    Raises ValueError for a batch that is a subgraph, or whose seeds are listed repeatedly.
    """
    if isinstance(batch, girih.TypedBatch):
        return [_typed_block(block) for block in batch.blocks()]
    return [_block(block) for block in batch.blocks()]


def _typed_block(block: girih.TypedBlock) -> Any:
    relations = block.csc()
    edges: Any = {of: ("csc", (torch.from_numpy(ends), torch.from_numpy(ids), [])) for of, (ends, ids, _) in relations.items()}
    made = dgl.create_block(edges, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst, idtype=torch.int64)
    for of, n_id in block.n_id.items():
        ids = torch.from_numpy(n_id)
        made.srcnodes[of].data[dgl.NID], made.dstnodes[of].data[dgl.NID] = ids, ids[: block.num_dst[of]]
    for relation, (_, _, names) in relations.items():
        if names is not None:
            made.edges[relation].data[dgl.EID] = torch.from_numpy(names)
    return made


def _block(block: girih.Block) -> Any:
    indptr, indices, names = block.csc()
    n_id = torch.from_numpy(block.n_id)
    made = _made_block(torch.from_numpy(indptr), torch.from_numpy(indices), block.num_src, block.num_dst)
    made.srcdata[dgl.NID], made.dstdata[dgl.NID] = n_id, n_id[: block.num_dst]
    if names is not None:
        made.edata[dgl.EID] = torch.from_numpy(names if n_id.dtype == torch.int64 else names.astype(np.int32))
    if block.weights is not None:
        made.edata["weight"] = torch.from_numpy(block.weights)
    return made


# One type of edges from node type 0, the sources, to node type 1, the destinations.
_ONE_TYPE = graph_index.from_coo(2, [0], [1], True)


def _made_block(indptr: Tensor, indices: Tensor, num_src: int, num_dst: int) -> Any:
    """What `dgl.create_block(("csc", …))` makes, in a sixth of its time: that reads all ids again to check them."""
    # Without ids, edges are numbered as they lie.
    no_ids, formats = indices.new_empty(0), ["coo", "csr", "csc"]
    edges = heterograph_index.create_unitgraph_from_csr(2, num_src, num_dst, indptr, indices, no_ids, formats, True)
    counts = dgl.utils.toindex([num_src, num_dst], "int64")
    index = heterograph_index.create_heterograph_from_relations(_ONE_TYPE, [edges], counts)
    return DGLBlock(index, (["_N"], ["_N"]), ["_E"])


class NeighborLoader:
    """Batches `(input_nodes, output_nodes, blocks)`, as DGL's `DataLoader` with its `NeighborSampler` yields them.

    graph: a `dgl.DGLGraph`, or `graph_of(g)` or `typed_graph_of(g)`, to share one among loaders.
    seeds: ids of nodes, or a mask of all nodes. Of a heterograph, a dict of one node type: `{"paper": ids}`.
    fanouts: number of neighbors a layer in DGL's order, the inputs first; -1 for all. Of a heterograph also dicts of
        numbers by edge type.
    prob: name of the attribute of edges (≥ 0) that draws are in proportion to; the graph is then DGL's.
    replace: an edge may be drawn several times.
    batch_size, shuffle, drop_last: as in DGL.
    features: a `girih.FeatureStore` or rows; `blocks[0].srcdata["feat"]` has those of the inputs, brought by the threads.
        Of a heterograph, a dict of them by node type.
    threads, seed, index_dtype, draws: as in `girih.NeighborLoader`; a batch depends on (seed, epoch, batch) alone.
    edge_ids: False where nobody reads `dgl.EID`: a batch then takes up to half the time.

    Raises NotImplementedError for num_workers: threads are instead of worker processes; and for prob, draws and
    index_dtype of heterographs.
    """

    def __init__(
        self,
        graph: Any,
        seeds: Any,
        fanouts: Sequence[Any],
        *,
        prob: str | None = None,
        replace: bool = False,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        features: Any = None,
        threads: int = 1,
        seed: int = 0,
        index_dtype: IndexDtype = "int64",
        draws: Draws = "node",
        edge_ids: bool = True,
        duplicates: Duplicates = "refuse",
        num_workers: int = 0,
    ) -> None:
        if num_workers:
            raise NotImplementedError("num_workers: girih samples on threads of this process; give threads=")
        options: dict[str, Any] = {}
        if isinstance(graph, girih.TypedGraph) or (isinstance(graph, dgl.DGLGraph) and not graph.is_homogeneous):
            _check_typed(prob, draws, index_dtype)
            self.graph: Any = graph if isinstance(graph, girih.TypedGraph) else typed_graph_of(graph, duplicates=duplicates)
            seeds, num_neighbors = _typed_seeds(seeds), _typed_fan_outs(fanouts, self.graph)
        else:
            options = dict(weights=self._weights(graph, prob), index_dtype=index_dtype, draws=draws)
            self.graph = graph if isinstance(graph, girih.Graph) else graph_of(graph, duplicates=duplicates)
            num_neighbors = list(fanouts)[::-1]
            seeds = seeds.cpu() if isinstance(seeds, Tensor) else seeds
        self.loader = _BatchLoader(
            self.graph,
            seeds,
            num_neighbors,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            threads=threads,
            features=features,
            expand="per-layer",
            replace=replace,
            edge_ids=edge_ids,
            **options,
        )

    @staticmethod
    def _weights(graph: Any, prob: str | None) -> Any:
        """Chances of the edges, if they have some."""
        if prob is None:
            return None
        if isinstance(graph, girih.Graph) or prob not in graph.edata:
            raise ValueError(f"prob: no attribute {prob!r} of edges; give a dgl.DGLGraph that has it in edata")
        return graph.edata[prob].cpu().reshape(-1).float().numpy()

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Any, Any, list[Any]]]:
        for batch in self.loader:
            blocks = to_blocks(batch)
            if isinstance(batch, girih.TypedBatch):
                for of, rows in batch.x.items():
                    blocks[0].srcnodes[of].data["feat"] = torch.from_numpy(rows)
                yield blocks[0].srcdata[dgl.NID], blocks[-1].dstdata[dgl.NID], blocks
                continue
            if (x := batch.x) is not None:
                blocks[0].srcdata["feat"] = torch.from_numpy(x)
            yield blocks[0].srcdata[dgl.NID], blocks[-1].dstdata[dgl.NID], blocks


def _check_typed(prob: str | None, draws: str, index_dtype: str) -> None:
    """Raises NotImplementedError for what girih does not have for heterographs, by its name."""
    refused = {"prob": prob is not None, f"draws={draws!r}": draws != "node", f"index_dtype={index_dtype!r}": index_dtype != "int64"}
    for name in (name for name, is_set in refused.items() if is_set):
        raise NotImplementedError(f"{name}: girih does not have it for heterographs; leave it out")


def _typed_seeds(seeds: Any) -> tuple[str, Any]:
    """Node type of the seeds, and the seeds."""
    if not isinstance(seeds, dict) or len(seeds) != 1:
        raise ValueError('seeds of a heterograph are a dict of one node type, such as {"paper": ids}')
    [(of, nodes)] = seeds.items()
    return of, nodes.cpu() if isinstance(nodes, Tensor) else nodes


def _typed_fan_outs(fanouts: Sequence[Any], graph: girih.TypedGraph) -> Any:
    """Fan-outs from the seeds outward: one list, or lists by edge type."""
    outward = list(fanouts)[::-1]
    if not any(isinstance(of_layer, dict) for of_layer in outward):
        return outward
    by_type: dict[Any, list[int]] = {}
    for of in graph.edge_types:
        for of_layer in outward:
            number = of_layer.get(of, of_layer.get(of[1])) if isinstance(of_layer, dict) else of_layer
            if number is None:
                raise ValueError(f"fanouts: a layer says nothing of the edge type {of}; 0 does not follow it")
            by_type.setdefault(of, []).append(int(number))
    return by_type
