"""Epochs of GraphSAGE (mean) in PyG on sampled neighbours of a folder in girih's own layout: NeighborLoader on processes of the
host, features gathered there, layers on the CUDA device. A question is `epoch`."""
import os
import sys

import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from common import ids, serve, tensor

if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
    # The loader's processes would fail instead, and keep this one waiting.
    sys.exit("NeighborLoader needs pyg-lib or torch-sparse")
HIDDEN, BATCH_SIZE, LEARNING_RATE = int(sys.argv[2]), int(sys.argv[3]), 0.01
# Two cores are left to the process that trains.
WORKERS = max(len(os.sched_getaffinity(0)) - 2, 1)

torch.manual_seed(0)
folder = sys.argv[1]
indptr, indices, labels, train = (ids(folder, name) for name in ("indptr", "indices", "labels", "train"))
rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr[1:] - indptr[:-1])
# Rows are destinations: their neighbours send.
data = Data(x=tensor(folder, "features"), y=labels, edge_index=torch.stack([indices, rows]))
fan_out = [int(k) for k in sys.argv[4].split(",")]
loader = NeighborLoader(data, num_neighbors=fan_out, input_nodes=train, batch_size=BATCH_SIZE, shuffle=True,
                        num_workers=WORKERS, persistent_workers=True, pin_memory=True, filter_per_worker=True)
widths = [data.x.shape[1], *[HIDDEN] * (len(fan_out) - 1), int(labels.max()) + 1]
layers = torch.nn.ModuleList(SAGEConv(*pair) for pair in zip(widths, widths[1:])).cuda()
optimizer = torch.optim.Adam(layers.parameters(), lr=LEARNING_RATE)


def epoch():
    for batch in loader:
        batch = batch.to("cuda", non_blocking=True)
        hidden = batch.x
        for at, layer in enumerate(layers):
            hidden = layer(hidden, batch.edge_index)
            if at + 1 < len(layers):
                hidden = F.relu(hidden)
        loss = F.cross_entropy(hidden[:batch.batch_size], batch.y[:batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


# What is missing is said before anything is timed; the processes stay.
next(iter(loader))
serve(f"pyg {torch_geometric.__version__} ({WORKERS} processes)", lambda question: epoch)
