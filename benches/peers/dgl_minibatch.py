"""Steps of GraphSAGE (mean) in DGL on sampled neighbours of a folder in girih's own layout: sampling hop by hop with 32-bit ids,
gathering features, forward, loss, backward, Adam. A question is a number of steps."""
import os
import sys

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

from common import ids, serve, tensor

HIDDEN, BATCH_SIZE, LEARNING_RATE = int(sys.argv[2]), int(sys.argv[3]), 0.01

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder = sys.argv[1]
indptr, indices, labels, train = (ids(folder, name) for name in ("indptr", "indices", "labels", "train"))
features = tensor(folder, "features")
graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1).int()
graph.create_formats_()
fan_out = [int(k) for k in reversed(sys.argv[4].split(","))]
sampler = dgl.dataloading.NeighborSampler(fan_out, fused=False)
widths = [features.shape[1], *[HIDDEN] * (len(fan_out) - 1), int(labels.max()) + 1]
layers = torch.nn.ModuleList(SAGEConv(*pair, "mean") for pair in zip(widths, widths[1:]))
optimizer = torch.optim.Adam(layers.parameters(), lr=LEARNING_RATE)
order, taken = train[torch.randperm(len(train))], 0


def step():
    global taken
    seeds = order[torch.arange(taken, taken + BATCH_SIZE) % len(order)]
    taken += BATCH_SIZE
    inputs, _, blocks = sampler.sample_blocks(graph, seeds.int())
    hidden = features[inputs.long()]
    for at, (layer, block) in enumerate(zip(layers, blocks)):
        hidden = layer(block, hidden)
        if at + 1 < len(layers):
            hidden = F.relu(hidden)
    loss = F.cross_entropy(hidden, labels[seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def answer(question):
    def work():
        for _ in range(int(question[0])):
            step()

    return work


serve(f"dgl {dgl.__version__}", answer)
