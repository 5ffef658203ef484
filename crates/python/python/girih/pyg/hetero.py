"""`NeighborLoader` of `HeteroData`."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData  # type: ignore[import-untyped,unused-ignore]
from torch_geometric.loader.utils import get_input_nodes  # type: ignore[import-untyped,unused-ignore]

import girih

from .graphs import host, selected
from .loader import NeighborLoader, lent_rows


class HeteroNeighborLoader(NeighborLoader):
    """`NeighborLoader` of `HeteroData`, which that class makes by itself."""

    input_type: str
    x: Any

    def _take_seeds(self, input_nodes: Any, input_id: Tensor | None) -> None:
        if input_nodes is None or isinstance(input_nodes, Tensor):
            raise ValueError('input_nodes of a HeteroData is a node type, or ("paper", ids or a mask)')
        of, nodes = (input_nodes, None) if isinstance(input_nodes, str) else input_nodes
        counts = self.node_sampler.graph.num_nodes
        if of not in counts:
            raise ValueError(f"input_nodes: there is no node type {of!r}; data has {', '.join(counts)}")
        if isinstance(nodes, Tensor) and nodes.dtype == torch.bool and nodes.numel() != counts[of]:
            raise ValueError(f"input_nodes is a mask of {nodes.numel()} nodes, but {of} has {counts[of]}")
        self.input_type, found, ids = get_input_nodes(self.data, (of, nodes), input_id)
        self.input_nodes = host("input_nodes", found)
        self.input_id = None if ids is None else host("input_id", ids)
        self._loader(self.input_nodes, 0)

    def _take_rows(self, x: Any) -> None:
        if x is not None and not isinstance(x, dict):
            raise TypeError('x of a HeteroData is rows by node type, such as {"paper": store}')
        counts = self.node_sampler.graph.num_nodes
        self.x = {}
        for of, rows in (x or {}).items():
            if of not in counts:
                raise ValueError(f"x: there is no node type {of!r}; data has {', '.join(counts)}")
            rows = host(f"x of {of}", rows).numpy() if isinstance(rows, Tensor) else rows
            self.x[of] = rows if isinstance(rows, girih.FeatureStore) else girih.FeatureStore(rows)
            if len(self.x[of]) != counts[of]:
                raise ValueError(f"x of {of} has {len(self.x[of])} rows for {counts[of]} nodes")

    def _store(self) -> Any:
        """Rows of `x` by node type: those of the argument, or of `data[type].x` where they lie."""
        own = {of: lent_rows(self.data[of].get("x"), n) for of, n in self.node_sampler.graph.num_nodes.items()}
        return {of: rows for of, rows in (own | self.x).items() if rows is not None}

    def _native_seeds(self, seeds: Tensor) -> Any:
        return self.input_type, seeds.numpy()

    def _data_of(self, batch: Any, at: Tensor, store: Any) -> Any:
        out, brought = self.node_sampler.output_of(batch), batch.x
        out.metadata = (self._ids(at), None)
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        data = self._filtered_types(out, set(store))
        for of, rows in store.items():
            data[of].x = self._rows(brought.get(of), out.node[of], rows)
        for of, ids in out.node.items():
            data[of].n_id = ids
        for of, ids in (out.edge or {}).items():
            if ids is not None:
                data[of].e_id = ids
        data.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
        data.set_value_dict("num_sampled_edges", out.num_sampled_edges)
        target = data[self.input_type]
        target.input_id, target.batch_size = self._ids(at), at.numel()
        if self.pin_memory:
            data = data.pin_memory()
        return data if self.transform is None else self.transform(data)

    def _filtered_types(self, out: Any, has_x: set[str]) -> HeteroData:
        """`data` with the attributes of the sampled nodes and edges, but `x` of types in `has_x`."""
        data = copy.copy(self.data)
        for of in self.data.node_types:
            store, node = self.data[of], out.node[of]
            for key, value in store.items():
                if key == "num_nodes":
                    data[of].num_nodes = node.numel()
                elif store.is_node_attr(key) and not (key == "x" and of in has_x):
                    data[of][key] = selected(value, node, self.data.__cat_dim__(key, value, store))
        for of in self.data.edge_types:
            store, edge = self.data[of], out.edge[of]
            for key, value in list(store.items()):
                if key == "edge_index":
                    data[of].edge_index = torch.stack([out.row[of], out.col[of]]).to(value.device)
                elif store.is_edge_attr(key) and edge is None:
                    del data[of][key]
                elif store.is_edge_attr(key):
                    data[of][key] = selected(value, edge, self.data.__cat_dim__(key, value, store))
        return data
