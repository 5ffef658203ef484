"""A full-batch epoch of a two-layer GAT, 8 heads of 8 columns and then one head, in DGL or PyG on a folder in girih's own
layout, whose graph has self loops already: forward, loss on the training nodes, backward, Adam. Arguments: the folder, and
`dgl` or `pyg`. Every question is one epoch; its text does not matter."""
import os
import sys

import torch
import torch.nn.functional as F

from common import ids, serve, tensor

HEADS, HIDDEN, DROPOUT, LEARNING_RATE = 8, 8, 0.6, 0.005

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder, library = sys.argv[1:3]
indptr, indices, labels, train = (ids(folder, name) for name in ("indptr", "indices", "labels", "train"))
features = tensor(folder, "features")
classes = int(labels.max()) + 1

if library == "dgl":
    import dgl
    from dgl.nn import GATConv

    name = f"dgl {dgl.__version__}"
    edges = torch.arange(len(indices))  # Edge operations of DGL need their numbers.
    graph = dgl.graph(("csc", (indptr, indices, edges)), num_nodes=len(indptr) - 1)
    graph.create_formats_()  # The transpose for the backward pass: prepared once, like girih's.
    first = GATConv(features.shape[1], HIDDEN, HEADS, feat_drop=0.0, attn_drop=DROPOUT)
    second = GATConv(HEADS * HIDDEN, classes, 1, feat_drop=DROPOUT, attn_drop=DROPOUT)

    def forward():
        hidden = F.elu(first(graph, features).flatten(1))
        return second(graph, hidden).mean(1)
else:
    import torch_geometric
    from torch_geometric.nn import GATConv

    name = f"pyg {torch_geometric.__version__}"
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    edges = torch.stack([indices, rows])
    first = GATConv(features.shape[1], HIDDEN, HEADS, dropout=DROPOUT, add_self_loops=False)
    second = GATConv(HEADS * HIDDEN, classes, 1, concat=False, dropout=DROPOUT, add_self_loops=False)

    def forward():
        hidden = F.elu(first(features, edges))
        return second(F.dropout(hidden, DROPOUT), edges)


optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=LEARNING_RATE)


def epoch():
    loss = F.cross_entropy(forward()[train], labels[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


serve(name, lambda _: epoch)
