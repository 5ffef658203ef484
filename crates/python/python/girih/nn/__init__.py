"""Layers of graph neural networks for PyTorch, computed by girih on the CPU and on CUDA GPUs.

Constructors, parameters and state dicts are those of PyTorch Geometric, which is not needed: a checkpoint of one loads
into the other. `forward(x, graph)` takes a `girih.Graph`, a `girih.Block`, a `girih.cuda.Block`, an `Adjacency`, or an
`edge_index`. Models of several layers, `GCN`, `GraphSAGE` and `GAT`, also take the blocks of a batch, one for each layer. An
`edge_index` is sorted on the host at each call: for training on a whole graph, make a `girih.Graph` once.
A layer computes where x is; a graph may be used on several devices.

Numbers are float32, and on GPUs also bfloat16, whose sums are float32. Others are computed in float32, and the result is
rounded once.
"""

from ._adjacency import Adjacency
from ._attention import GATConv, GATv2Conv
from ._convolutions import APPNP, GCNConv, GINConv, LGConv, SAGEConv, SGConv
from ._lightgcn import LightGCN
from ._models import GAT, GCN, GraphSAGE

__all__ = [
    "APPNP",
    "Adjacency",
    "GAT",
    "GATConv",
    "GATv2Conv",
    "GCN",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "LGConv",
    "LightGCN",
    "SAGEConv",
    "SGConv",
]
