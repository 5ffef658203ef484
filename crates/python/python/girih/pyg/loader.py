"""`NeighborLoader`: batches of `Data`, sampled ahead by threads of girih."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.loader.utils import filter_custom_store, get_input_nodes  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.sampler import SamplerOutput  # type: ignore[import-untyped,unused-ignore]

import girih

from .._edges import Draws, Duplicates, IndexDtype
from .device import on_gpu
from .graphs import check_homogeneous, drawn_seed, host, selected
from .sampler import NeighborSampler, check_time, seed_times, tensor_of

_THREADS = "girih samples on threads of this process: give threads=, or use torch_geometric.loader.NodeLoader with \
node_sampler=girih.pyg.NeighborSampler(…) for worker processes"

# Arguments of torch's DataLoader that have no meaning here: the value that leaves them out, and the remedy.
_REFUSED: dict[str, tuple[Any, str]] = {
    "num_workers": (0, _THREADS),
    "prefetch_factor": (None, "each thread is two batches ahead; " + _THREADS),
    "persistent_workers": (False, _THREADS),
    "multiprocessing_context": (None, _THREADS),
    "worker_init_fn": (None, _THREADS),
    "timeout": (0, _THREADS),
    "batch_sampler": (None, "give sampler=, which lists positions in input_nodes, and batch_size="),
    "pin_memory_device": ("", "memory is pinned for CUDA; give pin_memory=True alone"),
}


def check_refused(options: dict[str, Any], of: str) -> None:
    """Raises NotImplementedError for an argument of torch's `DataLoader` without a meaning here, TypeError for others."""
    for name, value in options.items():
        if name in ("dataset", "collate_fn"):  # Lightning passes them, and PyG ignores them, too.
            continue
        if name not in _REFUSED:
            raise TypeError(f"{of} has no argument {name!r}")
        unset, remedy = _REFUSED[name]
        if value is not None and value != unset:
            raise NotImplementedError(f"{name}={value!r}: {remedy}")


class NeighborLoader:
    """Batches of PyG's `Data` with sampled neighbors; the arguments of PyG's `NeighborLoader`, and girih's own.

    data: a `Data`, a `HeteroData`, or a pair (FeatureStore, GraphStore) of one type of nodes. Its attributes of nodes and
        edges come with each batch.
    num_neighbors: number of neighbors a hop, from the seeds outward; -1 for all. Of a `HeteroData` for each edge type, or
        lists by edge type; 0 there does not follow a type.
    input_nodes: ids (also repeated ones), a mask of all nodes, or None for all nodes. Of a `HeteroData` a node type, or
        the pair of one and ids or a mask.
    input_time: time of each input node; without it, that of the node itself, where `time_attr` is of nodes.
    batch_size, shuffle, drop_last, sampler: as in torch's `DataLoader`; `sampler` lists positions in `input_nodes`.
    generator: it decides on order and draws; without it `seed` and the number of the epoch do.
    pin_memory: batches lie in pinned memory, where CUDA is there; rows of `x` are decoded straight into it.
    graph: `graph_of(data)`, to share one among loaders; `typed_graph_of(data)` of a `HeteroData`, and
        `timed_graph_of(data, time_attr)` with times.
    x: a `girih.FeatureStore` (or rows), which batches have as `x` instead of `data.x`; the threads decode its rows. Of a
        `HeteroData` a dict of them by node type.
    threads: number of threads that sample ahead; 0 to sample when a batch is asked for.
    device: a GPU, such as "cuda", or a `girih.cuda.Graph`: sampling, rows of `x` and attributes are there, made ahead of
        the step; `threads` and `pin_memory` have no part in it. Batches are the same, on any device.
    placement, cache: of the rows of `x` for a GPU; see `girih.cuda.FeatureStore`. `x` may be one.
    draws, index_dtype, edge_ids, time_attr, temporal_strategy, before, window: as in `NeighborSampler`.

    Batches have the attributes of `data`, and n_id, e_id, input_id, batch_size, num_sampled_nodes, num_sampled_edges.
    Each `iter()` is the next epoch. A batch depends on (seed, epoch, batch) alone.

    Raises NotImplementedError by name for arguments that girih does not have, or not for this data.
    """

    input_id: Tensor | None
    input_time: Tensor | None
    x: Any

    def __new__(cls, data: Any = None, *args: Any, **options: Any) -> "NeighborLoader":
        """Loader of the kind of data: a `HeteroData` has one of its own."""
        if cls is NeighborLoader and isinstance(data, HeteroData):
            from .hetero import HeteroNeighborLoader

            cls = HeteroNeighborLoader
        return super().__new__(cls)

    def __init__(
        self,
        data: Any,
        num_neighbors: Any = None,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Data], Any] | None = None,
        transform_sampler_output: Callable[[SamplerOutput], SamplerOutput] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        *,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        generator: torch.Generator | None = None,
        pin_memory: bool = False,
        input_id: Tensor | None = None,
        custom_cls: Any = None,
        graph: girih.Graph | girih.TypedGraph | girih.TimedGraph | None = None,
        x: Any = None,
        threads: int = 1,
        seed: int = 0,
        draws: Draws = "node",
        index_dtype: IndexDtype = "int64",
        edge_ids: bool = True,
        duplicates: Duplicates = "refuse",
        before: bool = False,
        window: int | None = None,
        device: Any = None,
        placement: str = "device",
        cache: float = 0.0,
        **refused: Any,
    ) -> None:
        if not isinstance(data, HeteroData):
            check_homogeneous(data)
        check_refused(refused, "NeighborLoader")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle exclude each other: the sampler decides on the order")
        if neighbor_sampler is None:
            if num_neighbors is None:
                raise TypeError("num_neighbors is missing: one number a hop, such as [15, 10, 5]")
            neighbor_sampler = NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                directed=directed, graph=graph, duplicates=duplicates, draws=draws, index_dtype=index_dtype,
                edge_ids=edge_ids, before=before, window=window,
            )  # fmt: skip
        elif not isinstance(neighbor_sampler, NeighborSampler):
            raise TypeError("neighbor_sampler is not girih's; torch_geometric.loader.NodeLoader takes samplers of others")
        check_time(neighbor_sampler, input_time, "input_time")
        self.data, self.node_sampler = data, neighbor_sampler
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        self.batch_size, self.shuffle, self.drop_last = 1 if batch_size is None else batch_size, bool(shuffle), drop_last
        self.sampler, self.generator, self.custom_cls = sampler, generator, custom_cls
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.threads, self.seed, self._epoch = threads, seed, 0
        self._on_gpu = on_gpu(data, neighbor_sampler, device, x, placement=placement, cache=cache)
        if self._on_gpu is not None:
            x = None
        self.input_time = input_time
        self._take_seeds(input_nodes, input_id)
        if self._on_gpu is not None and self.input_id is not None:
            self.input_id = self.input_id.to(self._on_gpu.device)
        self._take_rows(x)

    def _take_seeds(self, input_nodes: Any, input_id: Tensor | None) -> None:
        graph = self.node_sampler.graph
        if isinstance(input_nodes, Tensor) and input_nodes.dtype == torch.bool and input_nodes.numel() != graph.num_nodes:
            raise ValueError(f"input_nodes is a mask of {input_nodes.numel()} nodes, but there are {graph.num_nodes}")
        if input_nodes is None:
            nodes, ids = torch.arange(graph.num_nodes), None
        else:
            _, nodes, ids = get_input_nodes(self.data, input_nodes, input_id)
        self.input_nodes = host("input_nodes", nodes)
        self.input_id = None if ids is None else host("input_id", ids)
        self.input_time = seed_times(self.node_sampler, self.input_nodes, self.input_time, "input_time")
        # A wrong id, batch_size or number of threads is told now, and not in the first epoch.
        self._loader(self.input_nodes, 0)

    def _take_rows(self, x: Any) -> None:
        if isinstance(x, Tensor):
            x = host("x", x).numpy()
        self.x = x if x is None or isinstance(x, girih.FeatureStore) else girih.FeatureStore(x)
        if self.x is not None and len(self.x) != self.node_sampler.graph.num_nodes:
            raise ValueError(f"x has {len(self.x)} rows for {self.node_sampler.graph.num_nodes} nodes")

    def _native_seeds(self, seeds: Tensor) -> Any:
        return seeds.numpy()

    def _loader(self, seeds: Tensor, seed: int, features: Any = None, times: Tensor | None = None) -> Any:
        if self._on_gpu is not None:
            return self._on_gpu.loader(seeds, self.batch_size, self.drop_last, seed)
        if times is None and self.input_time is not None:
            times = self.input_time
        return girih.NeighborLoader(
            self.node_sampler.sampler,
            self._native_seeds(seeds),
            times=None if times is None else times.numpy(),
            batch_size=self.batch_size,
            shuffle=False,
            drop_last=self.drop_last,
            seed=seed,
            threads=self.threads,
            features=features,
        )

    def __len__(self) -> int:
        n = self.input_nodes.numel() if self.sampler is None else len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        self._epoch += 1
        return self.epoch(self._epoch - 1)

    def epoch(self, number: int, *, first: int = 0) -> Iterator[Any]:
        """Epoch by its number, from batch `first` on, for a training that goes on after a stop."""
        positions, seed = self._order(number)
        seeds = self.input_nodes if positions is None else self.input_nodes[positions]
        times = self.input_time if positions is None or self.input_time is None else self.input_time[positions]
        store = self._store()
        if self.node_sampler.is_sampled_singly:
            return self._made_disjoint(number, first, positions, seed)
        is_ahead = not self.pin_memory and self.transform_sampler_output is None
        batches = self._loader(seeds, seed, store if is_ahead else None, times).epoch(number, first=first)
        return self._made(batches, positions, store)

    def _store(self) -> Any:
        """Rows of `x` on the host: those of the argument, or of `data.x` where they lie."""
        if self._on_gpu is not None:
            return None
        if self.x is not None or not isinstance(self.data, Data):
            return self.x
        return lent_rows(self.data._store.get("x"), self.node_sampler.graph.num_nodes)

    def _made(self, batches: girih.Epoch, positions: Tensor | None, store: Any) -> Iterator[Any]:
        device = None if self._on_gpu is None else self._on_gpu.device
        if device is not None and positions is not None:
            # Once an epoch: a copy for each batch would wait for the GPU.
            positions = positions.to(device)
        for batch in batches:
            start = batch.number * self.batch_size
            stop = start + batch.batch_size
            at = torch.arange(start, stop, device=device) if positions is None else positions[start:stop]
            yield self._data_of(batch, at, store)

    def _made_disjoint(self, epoch: int, first: int, positions: Tensor | None, seed: int) -> Iterator[Any]:
        n = self.input_nodes.numel() if positions is None else positions.numel()
        for number in range(first, n // self.batch_size if self.drop_last else -(-n // self.batch_size)):
            start, stop = number * self.batch_size, min((number + 1) * self.batch_size, n)
            at = torch.arange(start, stop) if positions is None else positions[start:stop]
            key = _generator(seed, epoch, number)
            yield self._of_output(self.node_sampler.disjoint_output(self.input_nodes[at], drawn_seed(key)), at)

    def _order(self, epoch: int) -> tuple[Tensor | None, int]:
        """Positions in `input_nodes` (None: as they are), and the seed of draws."""
        seed, generator = self.seed, self.generator
        if generator is not None:
            seed = drawn_seed(generator)
        elif self.shuffle:
            generator = _generator(self.seed, epoch)
        if self.sampler is not None:
            return torch.as_tensor(list(self.sampler), dtype=torch.int64), seed
        if self.shuffle:
            return torch.randperm(self.input_nodes.numel(), generator=generator), seed
        return None, seed

    def __call__(self, index: Any) -> Any:
        """Batch of the seeds at these positions in `input_nodes`; draws follow torch's generator."""
        if self._on_gpu is not None:
            raise NotImplementedError("batches of a GPU come in epochs; call a loader without device= for single ones")
        at = torch.as_tensor(index, dtype=torch.int64)
        seed = drawn_seed(self.generator)
        if self.node_sampler.is_sampled_singly and at.numel() > 0:
            return self._of_output(self.node_sampler.disjoint_output(self.input_nodes[at], seed), at)
        times = {} if self.input_time is None else {"times": self.input_time[at].numpy()}
        batch = self.node_sampler.sampler.sample(self._native_seeds(self.input_nodes[at]), seed=seed, **times)
        return self._data_of(batch, at, self._store())

    def _data_of(self, batch: Any, at: Tensor, store: girih.FeatureStore | None) -> Any:
        if self.node_sampler.subgraph_type != "directional":
            return self._of_output(self.node_sampler.output_of(batch), at, brought=batch.x)
        edge_index, node, x = (tensor_of(array) for array in (batch.edge_index, batch.n_id, batch.x))
        assert edge_index is not None and node is not None
        out = SamplerOutput(node, edge_index[0], edge_index[1], tensor_of(batch.e_id))
        out.num_sampled_nodes, out.num_sampled_edges = batch.num_sampled_nodes, batch.num_sampled_edges
        if self._on_gpu is None:
            out.batch = tensor_of(batch.batch)
        if self.transform_sampler_output is not None:
            return self._of_output(out, at, brought=x)
        return self._finished(out, edge_index, at, store, x)

    def _of_output(self, out: SamplerOutput, at: Tensor, brought: Any = None) -> Any:
        out.metadata = (self._ids(at), None if self.input_time is None else self.input_time[at])
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        return self._finished(out, torch.stack([out.row, out.col]), at, self._store(), brought)

    def _ids(self, at: Tensor) -> Tensor:
        return at if self.input_id is None else self.input_id[at]

    def _finished(
        self, out: SamplerOutput, edge_index: Tensor, at: Tensor, store: girih.FeatureStore | None, brought: Any
    ) -> Any:
        if self._on_gpu is not None:
            data = self._on_gpu.filtered(out, edge_index)
            if brought is not None:
                data.x = brought
        else:
            data = self._filtered(out, edge_index, has_x=store is not None)
        if store is not None:
            data.x = self._rows(brought, out.node, store)
        data.n_id, data.input_id, data.batch_size = out.node, self._ids(at), at.numel()
        if out.edge is not None:
            data.e_id = out.edge
        if out.batch is not None:
            data.batch = out.batch
        if self.input_time is not None:
            data.seed_time = self.input_time[at]
        data.num_sampled_nodes, data.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        if self.pin_memory and self._on_gpu is None:
            data = data.pin_memory()
        return data if self.transform is None else self.transform(data)

    def _rows(self, brought: Any, node: Tensor, store: girih.FeatureStore) -> Tensor:
        """Rows of `x`: those that the threads brought, or decoded here."""
        # Where seeds are repeated, the threads bring the rows of distinct nodes.
        if brought is not None and len(brought) == node.numel():
            return brought if isinstance(brought, Tensor) else torch.from_numpy(brought)
        rows = torch.empty(node.numel(), store.shape[1], pin_memory=self.pin_memory)
        store.gather(node.numpy(), out=rows)
        return rows

    def _filtered(self, out: SamplerOutput, edge_index: Tensor, *, has_x: bool) -> Data:
        """`data` with the attributes of the sampled nodes and edges, but `x` where there is one already."""
        if not isinstance(self.data, Data):
            node, edge = out.node.long(), out.edge
            return filter_custom_store(*self.data, node, edge_index[0], edge_index[1], edge, self.custom_cls)
        data = copy.copy(self.data)
        device = edge_index.device if self.data.edge_index is None else self.data.edge_index.device
        data.edge_index = edge_index.to(device)
        for key, value in self.data._store.items():
            if key == "edge_index":
                continue
            if key == "num_nodes":
                data.num_nodes = out.node.numel()
            elif key == "x" and has_x:
                continue
            elif self.data.is_node_attr(key):
                data[key] = selected(value, out.node, self.data.__cat_dim__(key, value))
            elif self.data.is_edge_attr(key) and out.edge is None:
                del data[key]
            elif self.data.is_edge_attr(key):
                data[key] = selected(value, out.edge, self.data.__cat_dim__(key, value))
        return data

    def __repr__(self) -> str:
        return f"girih.pyg.NeighborLoader({self.node_sampler.graph}, batches={len(self)})"


def lent_rows(x: Any, num_nodes: int) -> girih.FeatureStore | None:
    """Rows of an attribute where they lie; None for what is no plain matrix of float32 on the host, a row for each node."""
    if not isinstance(x, Tensor) or x.dtype != torch.float32 or x.dim() != 2 or x.requires_grad or x.shape[1] == 0:
        return None
    if not x.is_cpu or not x.is_contiguous() or len(x) != num_nodes:
        return None
    return girih.FeatureStore(x.numpy())


def _generator(*key: int) -> torch.Generator:
    """Generator of a seed, an epoch and more."""
    mixed = 0
    for part in key:
        mixed = (mixed * 0x9E3779B97F4A7C15 + part + 1) % (1 << 63)
    return torch.Generator().manual_seed(mixed)
