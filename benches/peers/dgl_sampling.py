"""DGL's neighbour sampler on a folder in girih's own layout: `FOLDER` holds a graph and the array `seeds`. A question is
`FAN-OUT,… BATCH-SIZE N FIRST IDS`: N batches from seed FIRST on, fan-outs from the seeds outward, IDS int32 (unfused) or
int64 (fused, whose 32-bit form gives wrong blocks)."""
import os
import sys

import dgl
import torch

from common import ids, serve

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder = sys.argv[1]
indptr, indices, seeds = (ids(folder, name) for name in ("indptr", "indices", "seeds"))
long_ids = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)
graphs = {"int32": long_ids.int(), "int64": long_ids}
for graph in graphs.values():
    graph.create_formats_()
seeds = seeds[torch.randperm(len(seeds))]


def answer(question):
    fan_out, batch_size, n_batches, first = question[0], int(question[1]), int(question[2]), int(question[3])
    graph, is_fused = graphs[question[4]], question[4] == "int64"
    sampler = dgl.dataloading.NeighborSampler([int(k) for k in reversed(fan_out.split(","))], fused=is_fused)
    wanted = [torch.arange(first + i * batch_size, first + (i + 1) * batch_size) % len(seeds) for i in range(n_batches)]
    batches = [seeds[rows].to(graph.idtype) for rows in wanted]

    def work():
        for batch in batches:
            sampler.sample_blocks(graph, batch)

    return work


serve(f"dgl {dgl.__version__}", answer)
