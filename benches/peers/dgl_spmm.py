"""DGL's SpMM on a folder in girih's own layout. A question is `WIDTH copy` (plain sums of neighbours) or `WIDTH scaled`
(the operand scaled before and the result after, as its GraphConv normalises: the operation that girih times)."""
import functools
import os
import sys

import dgl
import torch

from common import ids, serve

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder = sys.argv[1]
indptr, indices = (ids(folder, name) for name in ("indptr", "indices"))
graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)
scale = graph.in_degrees().clamp(min=1).float().pow(-0.5).unsqueeze(1)


@functools.cache
def operand(width):
    return torch.randn(graph.num_nodes(), width)


def answer(question):
    x = operand(int(question[0]))
    if question[1] == "copy":
        return lambda: dgl.ops.copy_u_sum(graph, x)
    return lambda: dgl.ops.copy_u_sum(graph, x * scale) * scale


with torch.no_grad():
    serve(f"dgl {dgl.__version__}", answer)
