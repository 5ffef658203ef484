"""A full-batch epoch of a two-layer GCN in DGL on a folder in girih's own layout, whose graph has self loops already:
forward, loss on the training nodes, backward, Adam. Every question is one epoch; its text does not matter."""
import os
import sys

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv

from common import ids, serve, tensor

HIDDEN, DROPOUT, LEARNING_RATE = int(sys.argv[2]), 0.5, 0.01

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder = sys.argv[1]
indptr, indices, labels, train = (ids(folder, name) for name in ("indptr", "indices", "labels", "train"))
features = tensor(folder, "features")
graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)
graph.create_formats_()  # The transpose for the backward pass: prepared once, like girih's.
first, second = GraphConv(features.shape[1], HIDDEN), GraphConv(HIDDEN, int(labels.max()) + 1)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=LEARNING_RATE)


def epoch():
    hidden = F.dropout(F.relu(first(graph, features)), DROPOUT)
    loss = F.cross_entropy(second(graph, hidden)[train], labels[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


serve(f"dgl {dgl.__version__}", lambda _: epoch)
