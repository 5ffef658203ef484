"""Data, checks and loaders that the tests of `girih.pyg` share."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, NodeLoader

import girih.pyg as gp

N, E = 100, 600
KINDS = ("directional", "bidirectional", "induced")


def random_data(seed=0, dtype=torch.int64):
    """Graph without parallel edges, whose attributes name nodes and edges."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(N * N, generator=generator)[:E]
    edge_index = torch.stack([pairs // N, pairs % N]).to(dtype)
    return Data(
        x=torch.arange(N).float().view(-1, 1).repeat(1, 3).contiguous(),
        y=torch.arange(N),
        train_mask=torch.arange(N) % 3 == 0,
        edge_index=edge_index,
        edge_attr=torch.arange(E),
        name="graph",
    )


def check(batch, data, kind="directional"):
    """Nodes, edges and attributes of a batch are those of the data."""
    n_id = batch.n_id.long()
    assert (batch.x[:, 0].long() == n_id).all() and (batch.y == n_id).all() and batch.name == "graph"
    assert (batch.train_mask == data.train_mask[n_id]).all()
    assert batch.edge_index.min() >= 0 and batch.edge_index.max() < batch.num_nodes == n_id.numel()
    assert (batch.e_id == batch.edge_attr).all()
    ends, named = n_id[batch.edge_index.long()], data.edge_index[:, batch.e_id].long()
    if kind == "bidirectional":  # the reverse of an edge has its name
        assert ((ends == named).all(0) | (ends == named.flip(0)).all(0)).all()
        pairs = set(map(tuple, batch.edge_index.t().tolist()))
        assert pairs == {(b, a) for a, b in pairs}
    else:
        assert (ends == named).all()
    if kind == "induced":
        is_in = torch.zeros(N, dtype=torch.bool).index_fill_(0, n_id, True)
        assert batch.num_edges == int(is_in[data.edge_index].all(0).sum())
    if kind == "directional":
        assert sum(batch.num_sampled_nodes) == n_id.numel() and sum(batch.num_sampled_edges) == batch.num_edges


def loaders(data, num_neighbors, **options):
    """PyG's loader over girih's sampler, and girih's own."""
    sampling = {key: options.pop(key) for key in ("subgraph_type", "replace", "weight_attr", "disjoint") if key in options}
    sampler = gp.NeighborSampler(data, num_neighbors, **sampling)
    yield NodeLoader(data, node_sampler=sampler, **options)
    yield gp.NeighborLoader(data, num_neighbors, **sampling, **options)


def link_loaders(data, kind="directional", **options):
    sampler = gp.NeighborSampler(data, [3, 2], subgraph_type=kind)
    yield LinkLoader(data, link_sampler=sampler, batch_size=100, **options)
    yield gp.LinkNeighborLoader(data, [3, 2], subgraph_type=kind, batch_size=100, **options)
