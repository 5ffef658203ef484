"""Epochs of GraphSAGE (mean) on sampled neighbours of a folder in girih's own layout: WholeGraph samples, relabels and gathers on
the CUDA device, which holds graph and features, and PyG's layers follow. A question is `epoch`."""
import os
import random
import socket
import sys

import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.nn import SAGEConv

try:
    import librmm
    # WholeGraph is linked with it, and its wheel keeps it in a folder of its own.
    librmm.load_library()
except ModuleNotFoundError:
    pass
import pylibwholegraph
import pylibwholegraph.torch as wholegraph

from common import ids, serve, tensor

HIDDEN, BATCH_SIZE, LEARNING_RATE = int(sys.argv[2]), int(sys.argv[3]), 0.01

torch.manual_seed(0)
random.seed(0)
# A world of one process; what is not set is told on standard output, which is for answers.
with socket.socket() as probe:
    probe.bind(("localhost", 0))
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", str(probe.getsockname()[1]))
world, _ = wholegraph.init_torch_env_and_create_wm_comm(0, 1, 0, 1, wm_log_level="error")
# The first kind reads rows without NCCL.
kind = next(kind for kind in ("continuous", "chunked", "distributed") if world.support_type_location(kind, "cuda"))


def placed(values):
    """The values in a tensor of WholeGraph in the device's memory."""
    store = wholegraph.create_wholememory_tensor(world, kind, "cuda", list(values.shape), values.dtype, None)
    of_this_process, _ = store.get_local_tensor()
    of_this_process.copy_(values)
    return store


folder = sys.argv[1]
indptr, indices, labels, train = (ids(folder, name) for name in ("indptr", "indices", "labels", "train"))
# Rows are destinations: their neighbours send.
graph = wholegraph.GraphStructure()
graph.set_csr_graph(placed(indptr), placed(indices.int()))
features = placed(tensor(folder, "features"))
labels, train = labels.cuda(), train.int().cuda()
fan_out = [int(k) for k in sys.argv[4].split(",")]
widths = [features.shape[1], *[HIDDEN] * (len(fan_out) - 1), int(labels.max()) + 1]
layers = torch.nn.ModuleList(SAGEConv(*pair) for pair in zip(widths, widths[1:])).cuda()
optimizer = torch.optim.Adam(layers.parameters(), lr=LEARNING_RATE)


def step(seeds):
    # From the inputs to the seeds: the nodes of each hop, which start with those of the next, and edges between them.
    nodes, edges, _, _ = graph.multilayer_sample_without_replacement(seeds, fan_out)
    hidden = features.gather(nodes[0])
    for at, layer in enumerate(layers):
        hidden = layer((hidden, hidden[:len(nodes[at + 1])]), edges[at].long())
        if at + 1 < len(layers):
            hidden = F.relu(hidden)
    loss = F.cross_entropy(hidden, labels[seeds.long()])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def epoch():
    for seeds in train[torch.randperm(len(train), device="cuda")].split(BATCH_SIZE):
        step(seeds)
    torch.cuda.synchronize()


# What is missing is said before anything is timed.
step(train[:BATCH_SIZE])
serve(f"wholegraph {pylibwholegraph.__version__} under pyg {torch_geometric.__version__}", lambda question: epoch)
wholegraph.finalize()
