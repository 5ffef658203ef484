"""LightGCN (He et al., SIGIR 2020) on sampled neighborhoods: recommends neighbors, with the loss of ranking (BPR).

    python lightgcn.py --data path/to/graph.npz --batch-size 2048
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import LGConv

import girih
import girih.pyg


class LightGCN(torch.nn.Module):
    def __init__(self, n_nodes, width, n_layers):
        super().__init__()
        self.embedding = torch.nn.Embedding(n_nodes, width)
        self.convs = torch.nn.ModuleList(LGConv() for _ in range(n_layers))
        torch.nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, n_id, edge_index):
        layers = [self.embedding(n_id)]
        for conv in self.convs:
            layers.append(conv(layers[-1], edge_index))
        return torch.stack(layers).mean(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=1000,degree=12")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=1024)
    options = parser.parse_args()

    torch.manual_seed(0)
    data = girih.pyg.to_pyg(girih.load(options.data, symmetrize=True).graph)
    # The line that changes: torch_geometric.loader.LinkNeighborLoader is girih.pyg.LinkNeighborLoader.
    loader = girih.pyg.LinkNeighborLoader(
        data, [20, 20], neg_sampling="triplet", batch_size=options.batch_size, shuffle=True
    )
    model = LightGCN(data.num_nodes, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            h = model(batch.n_id, batch.edge_index)
            better = (h[batch.src_index] * h[batch.dst_pos_index]).sum(-1)
            worse = (h[batch.src_index] * h[batch.dst_neg_index]).sum(-1)
            loss = -F.logsigmoid(better - worse).mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {float(loss):.3f}, ranked right {float((better > worse).float().mean()):.3f}")


if __name__ == "__main__":
    main()
