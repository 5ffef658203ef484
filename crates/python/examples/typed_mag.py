"""GraphSAGE over types, on ogbn-mag: PyG's `to_hetero` and its loop; the loader is girih's.

    python typed_mag.py --data path/to/mag
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv, to_hetero

import girih
import girih.pyg


class Sage(torch.nn.Module):
    def __init__(self, hidden, classes):
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), hidden), SAGEConv((-1, -1), classes)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:ogbn-mag@0.002,classes=8")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data)
    data, of = girih.pyg.to_pyg(dataset), dataset.target
    for name in data.node_types:
        if "x" not in data[name]:
            data[name].x = torch.randn(data[name].num_nodes, 32)  # features of its own for each node, not learned here
    # The line that changes: torch_geometric.loader.NeighborLoader is girih's.
    loader = girih.pyg.NeighborLoader(
        data, [10, 5], (of, data[of].train_mask), batch_size=options.batch_size, shuffle=True, threads=2
    )
    model = to_hetero(Sage(64, dataset.num_classes), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # widths
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            n = batch[of].batch_size
            F.cross_entropy(model(batch.x_dict, batch.edge_index_dict)[of][:n], batch[of].y[:n]).backward()
            optimizer.step()
        with torch.no_grad():
            is_right = model(data.x_dict, data.edge_index_dict)[of].argmax(1) == data[of].y
        print(f"epoch {epoch}: validation {is_right[data[of].val_mask].float().mean():.3f}")
    print(f"test {is_right[data[of].test_mask].float().mean():.3f}")


if __name__ == "__main__":
    main()
