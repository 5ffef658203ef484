"""Layers of `girih.nn` beside PyG's, graphs for both, and the comparison of their results; skips what imports it without PyG."""

import numpy as np
import pytest

import girih

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import girih.nn as gnn  # noqa: E402: needs torch

WIDTH = 12

# Each makes the same layer of `girih.nn` and of PyG, for WIDTH columns.
LAYERS = {
    "gcn": lambda nn: nn.GCNConv(WIDTH, 8),
    "gcn wide": lambda nn: nn.GCNConv(WIDTH, 40),
    "gcn without bias": lambda nn: nn.GCNConv(WIDTH, 8, bias=False),
    "gcn without loops": lambda nn: nn.GCNConv(WIDTH, 8, add_self_loops=False),
    "gcn without normalisation": lambda nn: nn.GCNConv(WIDTH, 8, normalize=False),
    "gcn improved": lambda nn: nn.GCNConv(WIDTH, 8, improved=True),
    "sage": lambda nn: nn.SAGEConv(WIDTH, 8),
    "sage wide": lambda nn: nn.SAGEConv(WIDTH, 40),
    "sage sum": lambda nn: nn.SAGEConv(WIDTH, 8, aggr="sum"),
    "sage normalised": lambda nn: nn.SAGEConv(WIDTH, 8, normalize=True, bias=False),
    "sage projected": lambda nn: nn.SAGEConv(WIDTH, 8, project=True, root_weight=False),
    "gat": lambda nn: nn.GATConv(WIDTH, 8),
    "gat heads": lambda nn: nn.GATConv(WIDTH, 5, heads=3),
    "gat mean of heads": lambda nn: nn.GATConv(WIDTH, 5, heads=4, concat=False, bias=False),
    "gat without loops": lambda nn: nn.GATConv(WIDTH, 5, heads=2, add_self_loops=False, negative_slope=0.1),
    "gat residual": lambda nn: nn.GATConv(WIDTH, 5, heads=2, residual=True),
    "gatv2": lambda nn: nn.GATv2Conv(WIDTH, 8),
    "gatv2 heads": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=3),
    "gatv2 mean of heads": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=4, concat=False, bias=False),
    "gatv2 shared": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=2, share_weights=True, add_self_loops=False),
    "gatv2 residual": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=2, residual=True),
    "gin": lambda nn: nn.GINConv(torch.nn.Sequential(torch.nn.Linear(WIDTH, 9), torch.nn.ReLU(), torch.nn.Linear(9, 8))),
    "gin trained": lambda nn: nn.GINConv(torch.nn.Linear(WIDTH, 8), eps=0.3, train_eps=True),
    "sgc": lambda nn: nn.SGConv(WIDTH, 8, K=3),
    "sgc without loops": lambda nn: nn.SGConv(WIDTH, 40, K=2, add_self_loops=False, bias=False),
    "appnp": lambda nn: nn.APPNP(K=4, alpha=0.15),
    "appnp without normalisation": lambda nn: nn.APPNP(K=2, alpha=0.3, normalize=False, add_self_loops=False),
    "lightgcn's": lambda nn: nn.LGConv(),
}
WEIGHTED = [name for name in LAYERS if name.startswith(("gcn", "sgc", "appnp", "lightgcn"))]
FEW = ["gcn", "sage", "gat heads", "gatv2 heads", "gin", "sgc"]


def random_edges(seed: int, n: int = 150, n_edges: int = 1200) -> torch.Tensor:
    """Edges of a directed graph with self loops and isolated nodes, in no order, without repeats."""
    made = torch.Generator().manual_seed(seed)
    edges = torch.unique(torch.randint(n - 5, (2, n_edges), generator=made), dim=1)
    return edges[:, torch.randperm(edges.shape[1], generator=made)]


def pair(name: str, seed: int = 0):
    """A layer here and PyG's, with parameters handed over both ways."""
    torch.manual_seed(seed)
    ours, theirs = LAYERS[name](gnn), LAYERS[name](pyg)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert [key for key, _ in ours.named_parameters()] == [key for key, _ in theirs.named_parameters()]
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def close(found: torch.Tensor, expected: torch.Tensor, bound: float = 1e-5, floor: float = 1e-6) -> None:
    """Equal shapes, and no difference above `bound` of the largest value."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    error = (found - expected).abs().max().item() if found.numel() else 0.0
    assert error <= bound * max(expected.abs().max().item(), floor), error


def agree(ours, theirs, here, there, inputs, bound: float = 1e-5, rows: int | None = None) -> None:
    """Results and gradients of inputs and parameters agree. `here` and `there` are the other arguments of both layers."""
    mine, peer = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    result, expected = (
        layer(own[0] if len(own) == 1 else tuple(own), *others)
        for layer, own, others in ((ours, mine, here), (theirs, peer, there))
    )
    expected = expected[:rows]
    close(result, expected, bound)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
    (result * direction).sum().backward()
    (expected * direction).sum().backward()
    for found, wanted in zip([*mine, *ours.parameters()], [*peer, *theirs.parameters()]):
        # A gradient that cancels out, as of a bias before a softmax, is noise of both.
        close(found.grad, wanted.grad, bound, floor=1.0)


def blocks_of(seed: int, n_seeds: int = 20, fan_out=(6, 4), **options):
    """Adjacencies of a sampled batch and its edges as PyG sees them; x of its nodes."""
    graph = girih.from_edge_index(random_edges(11, 400, 5000).numpy(), 400)
    batch = girih.Sampler(graph, list(fan_out), expand="per-layer", **options).sample(np.arange(n_seeds), seed=seed)
    blocks = batch.blocks()
    x = torch.randn(len(batch.n_id), WIDTH, generator=torch.Generator().manual_seed(seed))
    return blocks, x


def edges_of(block) -> torch.Tensor:
    indptr, indices, _ = block.csc()
    destinations = np.repeat(np.arange(block.num_dst), np.diff(indptr))
    return torch.from_numpy(np.stack([np.asarray(indices, dtype=np.int64), destinations]))
