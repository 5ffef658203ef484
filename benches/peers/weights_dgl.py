"""Weights of girih in DGL's layers, and back.

    python weights_dgl.py FOLDER

`weights_exchange.py` says what FOLDER has; weights are `.safetensors`, of `girih export --format dgl`.
"""

import sys

import dgl
import torch
from dgl.nn.pytorch import APPNPConv, GATConv, GATv2Conv, GINConv, GraphConv, SAGEConv, SGConv
from torch.nn import Embedding, Linear, Module, ModuleList, ReLU, Sequential

from weights_exchange import Folder, shake


class Convolutions(Module):
    """Convolutions with an activation between them. Heads are concatenated, those of the last layer averaged."""

    def __init__(self, layers, activation):
        super().__init__()
        self.layers, self.activation = ModuleList(layers), activation

    def forward(self, graph, x):
        for i, layer in enumerate(self.layers):
            x = layer(graph, x if i == 0 else self.activation(x))
            if x.dim() == 3:
                x = x.mean(1) if i + 1 == len(self.layers) else x.flatten(1)
        return x


class Linears(Module):
    """A multi-layer perceptron, and a propagation of its output."""

    def __init__(self, sizes, propagate):
        super().__init__()
        self.layers = ModuleList(Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.propagate = propagate

    def forward(self, graph, x):
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else torch.relu(x))
        return self.propagate(graph, x)


class LightGcn(Module):
    """Embeddings of users and items, averaged over hops."""

    def __init__(self, nodes, width, hops):
        super().__init__()
        self.embedding, self.hops = Embedding(nodes, width), hops
        self.conv = GraphConv(width, width, weight=False, bias=False, allow_zero_in_degree=True)

    def forward(self, graph):
        terms = [self.embedding.weight]
        for _ in range(self.hops):
            terms.append(self.conv(graph, terms[-1]))
        return torch.stack(terms).mean(0)


def gin(inputs, outputs, hidden):
    return GINConv(Sequential(Linear(inputs, hidden), ReLU(), Linear(hidden, outputs)))


def models(features, classes):
    """The models by name, with the default settings of girih, and whether their graph has self-loops."""
    relu, elu = torch.relu, torch.nn.functional.elu
    attention = lambda conv: [conv(features, 8, num_heads=8), conv(64, classes, num_heads=1)]
    propagate = APPNPConv(k=10, alpha=0.1)
    return {
        "gcn": (Convolutions([GraphConv(features, 16), GraphConv(16, classes)], relu), True),
        "sgc": (Convolutions([SGConv(features, classes, k=2)], relu), True),
        "sage": (Convolutions([SAGEConv(features, 16, "mean"), SAGEConv(16, classes, "mean")], relu), False),
        "gat": (Convolutions(attention(GATConv), elu), True),
        "gatv2": (Convolutions(attention(GATv2Conv), elu), True),
        "gin": (Convolutions([gin(features, 16, 16), gin(16, classes, 16)], relu), False),
        "appnp": (Linears([features, 64, classes], propagate), True),
        "mlp": (Linears([features, 16, classes], lambda graph, x: x), False),
    }


def main():
    folder = Folder(sys.argv[1], "dgl", "safetensors")
    sources, destinations, x, classes = folder.data()
    plain = dgl.graph((sources, destinations), num_nodes=len(x))
    torch.manual_seed(2)
    for name, (module, loops) in models(x.shape[1], classes).items():
        graph = dgl.add_self_loop(plain) if loops else plain
        module = shake(module)
        if name == "gatv2":
            # The biases of both ends cancel in the scores.
            with torch.no_grad():
                for layer in module.layers:
                    layer.fc_dst.bias.copy_(-layer.fc_src.bias)
        folder.compare(name, module, lambda module: module(graph, x))
    if (folder.path / "ratings").exists():
        n_users, users, items = folder.ratings()
        state, _ = folder.read("lightgcn", "items")
        n_nodes, width = state["embedding.weight"].shape
        graph = dgl.to_bidirected(dgl.graph((users, items), num_nodes=n_nodes))
        folder.compare_items(shake(LightGcn(n_nodes, width, hops=3)), lambda module: module(graph))
    folder.end()


if __name__ == "__main__":
    main()
