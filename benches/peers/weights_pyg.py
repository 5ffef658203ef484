"""Weights of girih in PyG's layers, and back.

    python weights_pyg.py FOLDER

`weights_exchange.py` says what FOLDER has; weights are `.npz`, of `girih export --format npz`.
"""

import sys

import torch
from torch.nn import Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.nn import APPNP, GATConv, GATv2Conv, GCNConv, GINConv, LightGCN, SAGEConv, SGConv

from weights_exchange import Folder, shake


class Convolutions(Module):
    """Convolutions with an activation between them."""

    def __init__(self, convs, activation):
        super().__init__()
        self.convs, self.activation = ModuleList(convs), activation

    def forward(self, x, edges):
        for i, conv in enumerate(self.convs):
            x = conv(x if i == 0 else self.activation(x), edges)
        return x


class Linears(Module):
    """A multi-layer perceptron, and a propagation of its output."""

    def __init__(self, sizes, propagate):
        super().__init__()
        self.lins = ModuleList(Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.propagate = propagate

    def forward(self, x, edges):
        for i, lin in enumerate(self.lins):
            x = lin(x if i == 0 else torch.relu(x))
        return self.propagate(x, edges)


def gin(inputs, outputs, hidden):
    return GINConv(Sequential(Linear(inputs, hidden), ReLU(), Linear(hidden, outputs)))


def models(features, classes):
    """The models by name, with the default settings of girih."""
    relu, elu = torch.relu, torch.nn.functional.elu
    attention = lambda conv: [conv(features, 8, heads=8), conv(64, classes, heads=1, concat=False)]
    return {
        "gcn": Convolutions([GCNConv(features, 16), GCNConv(16, classes)], relu),
        "sgc": Convolutions([SGConv(features, classes, K=2)], relu),
        "sage": Convolutions([SAGEConv(features, 16), SAGEConv(16, classes)], relu),
        "gat": Convolutions(attention(GATConv), elu),
        "gatv2": Convolutions(attention(GATv2Conv), elu),
        "gin": Convolutions([gin(features, 16, 16), gin(16, classes, 16)], relu),
        "appnp": Linears([features, 64, classes], APPNP(K=10, alpha=0.1)),
        "mlp": Linears([features, 16, classes], lambda x, edges: x),
    }


def main():
    folder = Folder(sys.argv[1], "pyg", "npz")
    sources, destinations, x, classes = folder.data()
    edges = torch.stack([sources, destinations])
    torch.manual_seed(1)
    for name, module in models(x.shape[1], classes).items():
        score_bias = lambda param: name == "gatv2" and ".lin_" in param and "bias" in param
        folder.compare(name, shake(module, score_bias), lambda module: module(x, edges))
    if (folder.path / "ratings").exists():
        n_users, users, items = folder.ratings()
        edges = torch.cat([torch.stack([users, items]), torch.stack([items, users])], dim=1)
        state, _ = folder.read("lightgcn", "items")
        n_nodes, width = state["embedding.weight"].shape
        module = shake(LightGCN(n_nodes, width, num_layers=len(state["alpha"]) - 1))
        folder.compare_items(module, lambda module: module.get_embedding(edges))
    folder.end()


if __name__ == "__main__":
    main()
