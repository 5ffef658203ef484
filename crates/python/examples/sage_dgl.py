"""GraphSAGE of DGL: girih's loader yields DGL's blocks.

    python sage_dgl.py --data synth:products@0.01
"""

import argparse

import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

import girih
import girih.dgl


class Sage(torch.nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in zip(widths, widths[1:]))

    def forward(self, blocks, h):
        for conv, block in zip(self.convs, blocks):
            h = conv(block, h)
            h = h if conv is self.convs[-1] else F.relu(h)
        return h


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=2000,degree=10")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = girih.load(options.data)
    train, _, test = (torch.from_numpy(ids) for ids in dataset.split)
    labels = torch.from_numpy(dataset.y)
    common = {"features": dataset.features, "batch_size": options.batch_size}
    # The line that changes: dgl.dataloading.DataLoader with its NeighborSampler is girih.dgl.NeighborLoader.
    loader = girih.dgl.NeighborLoader(dataset.graph, train, [5, 10], shuffle=True, **common)
    model = Sage(dataset.features.shape[1], 64, dataset.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for _, output_nodes, blocks in loader:
            loss = F.cross_entropy(model(blocks, blocks[0].srcdata["feat"]), labels[output_nodes])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {float(loss):.3f}")
    right = 0
    with torch.no_grad():
        for _, output_nodes, blocks in girih.dgl.NeighborLoader(dataset.graph, test, [5, 10], **common):
            right += int((model(blocks, blocks[0].srcdata["feat"]).argmax(1) == labels[output_nodes]).sum())
    print(f"test {right / len(test):.3f}")


if __name__ == "__main__":
    main()
