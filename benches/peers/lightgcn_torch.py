"""LightGCN in PyTorch on a folder in girih's own layout, as the authors' program trains it (He et al., SIGIR 2020): every
batch propagates over the whole graph with one `torch.sparse.mm` a layer, stacks the layers and takes their mean, then
ranks; Adam on all embeddings. A question is the number of batches to train; drawing an epoch's triples, one by one as
they do, is a question of its own: `draw`, with the number of triples."""
import os
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F

from common import ids, serve

LAYERS, WIDTH, BATCH, LEARNING_RATE, DECAY = 3, 64, 2048, 1e-3, 1e-4

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
folder, n_users = sys.argv[1], int(sys.argv[2])
indptr, indices = ids(folder, "indptr"), ids(folder, "indices")
n_nodes = len(indptr) - 1
n_items = n_nodes - n_users

degrees = (indptr[1:] - indptr[:-1]).float()
rows = torch.repeat_interleave(torch.arange(n_nodes), indptr[1:] - indptr[:-1])
scale = degrees.clamp(min=1).rsqrt()
places = torch.stack([rows, indices])
graph = torch.sparse_coo_tensor(places, scale[rows] * scale[indices], (n_nodes, n_nodes)).coalesce()

users = torch.nn.Embedding(n_users, WIDTH)
items = torch.nn.Embedding(n_items, WIDTH)
torch.nn.init.normal_(users.weight, std=0.1)
torch.nn.init.normal_(items.weight, std=0.1)
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=LEARNING_RATE)

items_of_user = [(indices[indptr[u]:indptr[u + 1]] - n_users).tolist() for u in range(n_users)]
met_by_user = [set(met) for met in items_of_user]


def draw(n_triples):
    """A user, an item it met and one it did not, `n_triples` times."""
    triples = []
    for user in np.random.randint(0, n_users, n_triples):
        met = random.choice(items_of_user[user])
        other = random.randrange(n_items)
        while other in met_by_user[user]:
            other = random.randrange(n_items)
        triples.append((user, met, other))
    return torch.tensor(np.array(triples))


def propagate():
    """The embeddings of users and of items, averaged over the layers."""
    embedding = torch.cat([users.weight, items.weight])
    layers = [embedding]
    for _ in range(LAYERS):
        embedding = torch.sparse.mm(graph, embedding)
        layers.append(embedding)
    return torch.split(torch.stack(layers, dim=1).mean(dim=1), [n_users, n_items])


def train_batch(user, met, other):
    """One step; the penalty is on the embeddings of the batch before propagation."""
    all_users, all_items = propagate()
    behind = (all_users[user] * (all_items[other] - all_items[met])).sum(dim=1)
    own = users(user), items(met), items(other)
    penalty = sum(rows.square().sum() for rows in own) / (2 * len(user))
    loss = F.softplus(behind).mean() + DECAY * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


triples = draw(BATCH * 64)


def train(n_batches):
    for batch in range(n_batches):
        start = batch * BATCH % (len(triples) - BATCH)
        train_batch(*triples[start:start + BATCH].unbind(dim=1))


def answer(question):
    work = draw if question[0] == "draw" else train
    return lambda: work(int(question[-1]))


serve(f"torch {torch.__version__}", answer)
