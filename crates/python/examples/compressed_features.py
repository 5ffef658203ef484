"""Features as codes: 16 bytes a row where 100 numbers take 400. The same model learns from both.

    python compressed_features.py --data synth:products@0.01 --codec topk:8
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import girih
import girih.pyg


def trained(data, store, dataset, options):
    """Accuracy on the test nodes of a model that reads the rows of `store`."""
    torch.manual_seed(0)
    common = {"graph": dataset.graph, "batch_size": 256, "edge_ids": False}
    # The line that changes: x=store, and the loader's threads decode the rows of each batch.
    loader = girih.pyg.NeighborLoader(data, [10, 10], data.train_mask, x=store, shuffle=True, **common)
    test = girih.pyg.NeighborLoader(data, [10, 10], data.test_mask, x=store, **common)
    model = GraphSAGE(store.shape[1], 64, 2, dataset.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    with torch.no_grad():
        right = [
            model(batch.x, batch.edge_index)[: batch.batch_size].argmax(1) == batch.y[: batch.batch_size]
            for batch in test
        ]
    return float(torch.cat(right).float().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=10")
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    dataset = girih.load(options.data)
    data = girih.pyg.to_pyg(dataset, features=False)
    for store in (dataset.features, girih.compress(dataset.features, options.codec)):
        size = f"{store.row_bytes or 4 * store.shape[1]} bytes a row"
        print(f"{store.codec or 'as they are'}, {size}: test {trained(data, store, dataset, options):.3f}")


if __name__ == "__main__":
    main()
