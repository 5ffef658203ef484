"""GCN of PyG on Cora: PyG's own loop and NodeLoader; only the sampler is girih's.

    python gcn_cora.py --data path/to/cora
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GCN

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=8")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data)
    data = girih.pyg.to_pyg(dataset)
    # The line that changes: torch_geometric's NeighborSampler is girih's.
    sampler = girih.pyg.NeighborSampler(data, num_neighbors=[10, 10])
    loader = NodeLoader(
        data, node_sampler=sampler, input_nodes=data.train_mask, batch_size=options.batch_size, shuffle=True
    )
    model = GCN(data.num_features, 64, 2, dataset.num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(options.epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            is_right = model(data.x, data.edge_index).argmax(1) == data.y
        print(f"epoch {epoch}: validation {is_right[data.val_mask].float().mean():.3f}")
    print(f"test {is_right[data.test_mask].float().mean():.3f}")


if __name__ == "__main__":
    main()
