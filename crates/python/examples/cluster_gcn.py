"""Cluster-GCN with PyG's layers: a batch is some clusters of METIS and the edges among their nodes.

    python cluster_gcn.py --data synth:reddit@0.05 --parts 100
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=10")
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data, symmetrize=True)
    data = girih.pyg.to_pyg(dataset)
    # The line that changes: ClusterData and ClusterLoader of torch_geometric are one here, and need no further library.
    loader = girih.pyg.ClusterLoader(data, options.parts, graph=dataset.graph, batch_size=4, shuffle=True)
    model = GCN(data.num_features, 64, 2, dataset.num_classes, dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        model.train()
        for batch in loader:
            if not batch.train_mask.any():
                continue
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)
            F.cross_entropy(out[batch.train_mask], batch.y[batch.train_mask]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            is_right = model(data.x, data.edge_index).argmax(1) == data.y
        print(f"epoch {epoch}: validation {is_right[data.val_mask].float().mean():.3f}")
    print(f"test {is_right[data.test_mask].float().mean():.3f}")


if __name__ == "__main__":
    main()
