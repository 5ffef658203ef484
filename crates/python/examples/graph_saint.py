"""GraphSAINT with PyG's layers: batches are subgraphs of random walks; weights correct for what is drawn rarely.

    python graph_saint.py --data synth:reddit@0.05 --walks 1000
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphConv

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=10")
    parser.add_argument("--walks", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data)
    data = girih.pyg.to_pyg(dataset)
    degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    data.edge_weight = 1.0 / degrees[data.edge_index[1]]  # sums of weighted messages are means
    # The line that changes: torch_geometric.loader's class of this name is girih.pyg's, and needs no further library.
    loader = girih.pyg.GraphSAINTRandomWalkSampler(
        data, options.walks, walk_length=2, num_steps=10, sample_coverage=50, graph=dataset.graph
    )
    first = GraphConv(data.num_features, 64, aggr="add")
    second = GraphConv(64, dataset.num_classes, aggr="add")
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)

    def model(x, edge_index, edge_weight):
        return second(F.relu(first(x, edge_index, edge_weight)), edge_index, edge_weight)

    for epoch in range(options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.edge_norm * batch.edge_weight)
            losses = F.cross_entropy(out, batch.y, reduction="none") * batch.node_norm
            losses[batch.train_mask].sum().backward()
            optimizer.step()
        with torch.no_grad():
            is_right = model(data.x, data.edge_index, data.edge_weight).argmax(1) == data.y
        print(f"epoch {epoch}: validation {is_right[data.val_mask].float().mean():.3f}")
    print(f"test {is_right[data.test_mask].float().mean():.3f}")


if __name__ == "__main__":
    main()
