"""Weights of girih in PyG's layers, and back.

    python weights_pyg.py FOLDER

FOLDER has `data`, a girih folder of an undirected graph with dense features, and for each model `MODEL.npz`, as
`girih export --format npz` writes it, and `MODEL-logits.npy` of `girih predict --logits`. Models have their default
settings and two layers. The script loads each file into PyG's layers, compares logits, and writes `MODEL-pyg.npz` with
new weights of PyG, and `MODEL-pyg-logits.npy`, for `girih import`.
"""

import pathlib
import sys

import numpy
import torch
from torch.nn import Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.nn import APPNP, GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, SGConv


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
    folder = pathlib.Path(sys.argv[1])
    read = lambda name: numpy.load(folder / "data" / f"{name}.npy")
    indptr, sources = read("indptr"), read("indices")
    destinations = numpy.repeat(numpy.arange(len(indptr) - 1), numpy.diff(indptr).astype(numpy.int64))
    edges = torch.from_numpy(numpy.stack([sources.astype(numpy.int64), destinations]))
    x = torch.from_numpy(read("features").astype(numpy.float32))
    classes = numpy.load(folder / "gcn-logits.npy").shape[1]
    torch.manual_seed(1)
    worst = 0.0
    for name, model in models(x.shape[1], classes).items():
        model.eval()
        with torch.no_grad():
            for param in model.parameters():
                # Biases start at zero in PyG, where an error of their place would not show.
                param.add_(0.1 * torch.randn_like(param))
            for bias in [p for n, p in model.named_parameters() if name == "gatv2" and ".lin_" in n and "bias" in n]:
                bias.zero_()
            state = {key: value.numpy() for key, value in model.state_dict().items()}
            numpy.savez(folder / f"{name}-pyg.npz", **state)
            numpy.save(folder / f"{name}-pyg-logits.npy", model(x, edges).numpy())
            given = numpy.load(folder / f"{name}.npz")
            model.load_state_dict({key: torch.from_numpy(given[key]) for key in given.files})
            expected = numpy.load(folder / f"{name}-logits.npy")
            off = float(numpy.abs(model(x, edges).numpy() - expected).max() / max(1.0, numpy.abs(expected).max()))
        worst = max(worst, off)
        print(f"{name}: {len(given.files)} tensors, largest difference of logits {off:.2e}")
    sys.exit(0 if worst < 1e-5 else f"logits differ by {worst:.2e}")


if __name__ == "__main__":
    main()
