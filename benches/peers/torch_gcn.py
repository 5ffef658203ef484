"""A full-batch epoch of a two-layer GCN in PyTorch on its first CUDA device: the plain program over torch.sparse, whose
products are cuSPARSE's. Arguments: a folder in girih's own layout, whose graph is symmetric and has self loops already,
then the numbers of features, hidden columns, classes and training nodes. Features, labels and training nodes are drawn
here: times do not depend on them. An epoch is forward pass, loss on the training nodes, backward pass and Adam; every
question is one, its text does not matter."""
import sys

import numpy as np
import torch
import torch.nn.functional as F

from common import serve

LEARNING_RATE = 0.01

torch.manual_seed(0)
device = torch.device("cuda")
folder = sys.argv[1]
n_features, hidden, n_classes, n_train = map(int, sys.argv[2:6])


def ids_on_device(name):
    """32-bit ids, with which cuSPARSE reads less."""
    return torch.from_numpy(np.load(f"{folder}/{name}.npy").astype(np.int32)).to(device)


def normalized():
    """`D^-½ (A + I) D^-½`, with a value for each entry."""
    indptr, indices = ids_on_device("indptr"), ids_on_device("indices")
    degrees = indptr.diff().long()
    scale = degrees.clamp(min=1).float().rsqrt()
    rows = torch.repeat_interleave(torch.arange(len(degrees), device=device), degrees)
    values = scale[rows] * scale[indices.long()]
    return torch.sparse_csr_tensor(indptr, indices, values, (len(degrees), len(degrees)))


graph = normalized()
n_nodes = graph.shape[0]
features = torch.randn(n_nodes, n_features, device=device)
labels = torch.randint(0, n_classes, (n_nodes,), device=device)
train = torch.randperm(n_nodes, device=device)[:n_train].sort().values
first = torch.nn.Linear(n_features, hidden, device=device)
second = torch.nn.Linear(hidden, n_classes, device=device)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=LEARNING_RATE, fused=True)


class Aggregate(torch.autograd.Function):
    """The product with the graph; a symmetric one is its own transpose."""

    @staticmethod
    def forward(_, x):
        return torch.sparse.mm(graph, x)

    @staticmethod
    def backward(_, grad):
        return torch.sparse.mm(graph, grad.contiguous())


def epoch():
    optimizer.zero_grad(set_to_none=True)
    logits = Aggregate.apply(second(torch.relu(Aggregate.apply(first(features)))))
    F.cross_entropy(logits[train], labels[train]).backward()
    optimizer.step()
    torch.cuda.synchronize()


torch.cuda.synchronize()
serve(f"torch {torch.__version__}", lambda _: epoch)
