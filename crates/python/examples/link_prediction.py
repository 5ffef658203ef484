"""Link prediction of PyG: which pairs of nodes are edges? A tenth of the edges is held out.

    python link_prediction.py --data path/to/cora
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE
from torch_geometric.transforms import RandomLinkSplit

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=8")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512)
    options = parser.parse_args()

    torch.manual_seed(0)
    data = girih.pyg.to_pyg(girih.load(options.data))
    split = RandomLinkSplit(num_val=0.0, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
    train, _, test = split(data)
    # The line that changes: torch_geometric.loader.LinkNeighborLoader is girih.pyg.LinkNeighborLoader.
    loader = girih.pyg.LinkNeighborLoader(
        train, [20, 10], train.edge_label_index, train.edge_label, neg_sampling="binary",
        batch_size=options.batch_size, shuffle=True,
    )  # fmt: skip
    model = GraphSAGE(data.num_features, 64, 2, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            h = model(batch.x, batch.edge_index)
            source, destination = batch.edge_label_index
            score = (h[source] * h[destination]).sum(-1)
            loss = F.binary_cross_entropy_with_logits(score, batch.edge_label.clamp(max=1))
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {float(loss):.3f}")
    with torch.no_grad():
        h = model(test.x, test.edge_index)
        source, destination = test.edge_label_index
        score = (h[source] * h[destination]).sum(-1)
        edges, others = score[test.edge_label == 1], score[test.edge_label == 0]
        print(f"area under the curve {float((edges[:, None] > others[None]).float().mean()):.3f}")


if __name__ == "__main__":
    main()
