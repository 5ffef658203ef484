"""GraphSAGE of PyG on Products: girih's loader samples and gathers ahead, on threads.

    python sage_products.py --data path/to/ogbn_products --epochs 10
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:products@0.001")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help='"cuda" makes batches on the GPU, too')
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data)
    data, graph = girih.pyg.to_pyg(dataset), dataset.graph
    common = {"graph": graph, "batch_size": options.batch_size, "threads": options.threads, "edge_ids": False}
    if options.device != "cpu":
        from girih import cuda

        common["device"] = cuda.Graph(graph, options.device)
    # The line that changes: torch_geometric.loader.NeighborLoader is girih.pyg.NeighborLoader, with threads= for num_workers=.
    train = girih.pyg.NeighborLoader(data, [15, 10, 5], data.train_mask, shuffle=True, **common)
    test = girih.pyg.NeighborLoader(data, [15, 10, 5], data.test_mask, **common)
    model = GraphSAGE(data.num_features, options.hidden, 3, dataset.num_classes, dropout=0.5).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(options.epochs):
        model.train()
        for batch in train:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {float(loss):.3f}")
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in test:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            right += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
    print(f"test {right / int(data.test_mask.sum()):.3f}")


if __name__ == "__main__":
    main()
