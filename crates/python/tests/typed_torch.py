"""A program that uses girih with PyTorch and PyG, for the check of its types; it is not run."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data  # type: ignore[import-untyped,unused-ignore]

import girih
import girih.nn
import girih.pyg


class Net(torch.nn.Module):
    """GCN, GAT and SAGE, one after the other."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first = girih.nn.GCNConv(width, 16, normalize="sampled")
        self.second = girih.nn.GATConv((16, 16), 8, heads=2, dropout=0.1)
        self.third = girih.nn.SAGEConv(16, classes, aggr="sum")

    def forward(self, x: Tensor, graph: girih.nn.Adjacency) -> Tensor:
        """Logits of all nodes."""
        hidden = self.first.forward(x, graph, activation="relu")
        return self.third.forward(self.second.forward((hidden, hidden), graph).relu(), graph)


def on_the_cpu(data: Data, graph: girih.Graph) -> float:
    """Batches of `Data`, and a layer over each."""
    features = girih.FeatureStore(np.zeros((graph.num_nodes, 8), dtype=np.float32))
    loader = girih.pyg.NeighborLoader(data, [5, 5], None, batch_size=32, shuffle=True, graph=graph, x=features, threads=2)
    net, total = Net(8, 3), 0.0
    for batch in loader:
        adjacency = girih.nn.Adjacency(batch.edge_index, (batch.num_nodes, batch.num_nodes))
        out: Tensor = net(batch.x, adjacency)
        total += float(out[: batch.batch_size].sum())
    return total / len(loader)


def on_a_gpu(graph: girih.Graph, x: Tensor) -> tuple[Tensor, int]:
    """Batches on a GPU; a layer takes their blocks."""
    import girih.cuda as cuda

    rows = cuda.FeatureStore(x, "cuda", placement="host", cache=0.1, graph=graph)
    loader = cuda.NeighborLoader(cuda.Graph(graph, "cuda"), torch.arange(100), [5], batch_size=10, features=rows, replace=True)
    layer = girih.nn.GINConv(torch.nn.Linear(x.shape[1], 4)).to(rows.device)
    made: list[Tensor] = []
    for batch in loader:
        if batch.x is not None:
            made.append(layer.forward(batch.x, batch.blocks()[0]))
    used, kept = cuda.memory()
    return torch.cat(made), kept - used


def recommended(graph: girih.Graph) -> Tensor:
    """The three best nodes for each node."""
    model = girih.nn.LightGCN(graph.num_nodes, 16, num_layers=2)
    weight: Tensor = model.alpha
    bias: torch.nn.Parameter | None = girih.nn.GCNConv(4, 4, bias=False).bias
    return model.recommend(graph, k=3) if bias is None else weight
