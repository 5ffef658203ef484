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

from ._edges import Draws, Duplicates, IndexDtype, graph_of_edges
from ._loader import NeighborLoader as _BatchLoader


def graph_of(graph: Any, *, duplicates: Duplicates = "refuse") -> girih.Graph:
    """Graph of a `dgl.DGLGraph` of one type of nodes and edges; batches name edges by their DGL ids.

    Parallel edges are refused, or merged by `duplicates="merge"`: the first one stays. Make one graph, and share it.

    Raises NotImplementedError for heterographs, TypeError for what is no graph of DGL, ValueError for parallel edges.
    """
    if not isinstance(graph, dgl.DGLGraph):
        raise TypeError(f"graph is {type(graph).__name__}; give a dgl.DGLGraph")
    if graph.is_block:
        raise ValueError("graph is a block; girih samples graphs whose sources and destinations are the same nodes")
    if not graph.is_homogeneous:
        raise NotImplementedError(
            f"a heterograph with {len(graph.canonical_etypes)} types of edges: girih samples graphs of one type; use "
            "dgl.to_homogeneous(graph)"
        )
    source, destination = graph.cpu().edges(order="eid")
    edge_index = torch.stack([source, destination]).numpy()
    return graph_of_edges(edge_index, graph.num_nodes(), duplicates)


def from_dgl(graph: Any, *, duplicates: Duplicates = "refuse") -> girih.Dataset:
    """Data set of a `dgl.DGLGraph`: `ndata["feat"]`, `ndata["label"]`, and train_mask, val_mask and test_mask if it has all.

    Raises as `graph_of`.
    """
    made, nodes = graph_of(graph, duplicates=duplicates), graph.ndata
    arrays = {name: nodes[name].detach().cpu().numpy() for name in nodes}
    masks: list[Any] = [arrays.get(name) for name in ("train_mask", "val_mask", "test_mask")]
    split = None if any(mask is None for mask in masks) else tuple(mask.astype(bool) for mask in masks)
    return girih.Dataset(made, arrays.get("feat"), arrays.get("label"), split)


def to_dgl(source: girih.Graph | girih.Dataset) -> Any:
    """`dgl.DGLGraph` of a graph or of a data set; ids of edges are the caller's, where he gave them without gaps.

    Weights are `edata["weight"]`. Of a data set, dense features are `ndata["feat"]` (a copy), and `ndata` has label,
    train_mask, val_mask and test_mask, where they are known.
    """
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
        if source.y is not None:
            made.ndata["label"] = torch.from_numpy(source.y.copy())
        for name, nodes in zip(("train_mask", "val_mask", "test_mask"), source.split or ()):
            mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(nodes)] = True
            made.ndata[name] = mask
    return made


def to_blocks(batch: girih.Batch) -> list[Any]:
    """`DGLBlock`s of a batch in the order of layers, with `dgl.NID` of nodes and `dgl.EID` of edges.

    Ids are int64, or int32 where the sampler has `index_dtype="int32"`. The tensors keep the batch's memory. A sampler
    with `expand="per-layer"` draws as DGL does: anew in each layer.

    Raises ValueError for a batch that is a subgraph, or whose seeds are listed repeatedly.
    """
    return [_block(block) for block in batch.blocks()]


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

    graph: a `dgl.DGLGraph`, or `graph_of(g)`, to share one among loaders.
    seeds: ids of nodes, or a mask of all nodes.
    fanouts: number of neighbors a layer in DGL's order, the inputs first; -1 for all.
    prob: name of the attribute of edges (≥ 0) that draws are in proportion to; the graph is then DGL's.
    replace: an edge may be drawn several times.
    batch_size, shuffle, drop_last: as in DGL.
    features: a `girih.FeatureStore` or rows; `blocks[0].srcdata["feat"]` has those of the inputs, brought by the threads.
    threads, seed, index_dtype, draws: as in `girih.NeighborLoader`; a batch depends on (seed, epoch, batch) alone.
    edge_ids: False where nobody reads `dgl.EID`: a batch then takes up to half the time.

    Raises NotImplementedError for num_workers: threads are instead of worker processes.
    """

    def __init__(
        self,
        graph: Any,
        seeds: Any,
        fanouts: Sequence[int],
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
        weights = None
        if prob is not None:
            if isinstance(graph, girih.Graph) or prob not in graph.edata:
                raise ValueError(f"prob: no attribute {prob!r} of edges; give a dgl.DGLGraph that has it in edata")
            weights = graph.edata[prob].cpu().reshape(-1).float().numpy()
        self.graph = graph if isinstance(graph, girih.Graph) else graph_of(graph, duplicates=duplicates)
        if isinstance(seeds, Tensor):
            seeds = seeds.cpu()
        self.loader = _BatchLoader(
            self.graph,
            seeds,
            list(fanouts)[::-1],
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            threads=threads,
            features=features,
            expand="per-layer",
            replace=replace,
            weights=weights,
            index_dtype=index_dtype,
            draws=draws,
            edge_ids=edge_ids,
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, list[Any]]]:
        for batch in self.loader:
            blocks = to_blocks(batch)
            if (x := batch.x) is not None:
                blocks[0].srcdata["feat"] = torch.from_numpy(x)
            yield blocks[0].srcdata[dgl.NID], blocks[-1].dstdata[dgl.NID], blocks
