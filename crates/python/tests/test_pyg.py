"""What the adapters for PyTorch Geometric have to hold.

The properties are those that PyG's own tests check of NeighborLoader, NodeLoader, LinkNeighborLoader, LinkLoader,
ClusterLoader and GraphSAINTSampler. These of them do not hold here:

- types and times: see `test_pyg_types.py`.
- the order of nodes: PyG's is that of first sight; here new nodes ascend in each hop.
- a fan-out of 0, and parallel edges: refused.
- worker processes of `girih.pyg.NeighborLoader` itself: it has threads. PyG's loaders over girih's sampler have them.
- `keep_orig_edges` and the equality of two native libraries are of PyG's inside.
"""

import copy
import gc
import os
import pickle

import numpy as np
import pytest

import girih

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch.nn.functional as F  # noqa: E402
from pyg_data import KINDS, E, N, check, link_loaders, loaders, random_data  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import ImbalancedSampler, LinkLoader, NodeLoader  # noqa: E402
from torch_geometric.nn import GraphSAGE  # noqa: E402

import girih.pyg as gp  # noqa: E402

# Nodes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_batches_hold_what_pyg_promises(kind, dtype):
    data = random_data(dtype=dtype)
    for loader in loaders(data, [5, 3], subgraph_type=kind, batch_size=20):
        assert len(loader) == 5 and str(loader)
        batches = list(loader)
        assert len(batches) == 5
        for i, batch in enumerate(batches):
            check(batch, data, kind)
            assert batch.batch_size == 20 and (batch.n_id[:20] == torch.arange(20 * i, 20 * i + 20)).all()
            assert (batch.input_id == torch.arange(20 * i, 20 * i + 20)).all()


def test_input_nodes_and_their_ids():
    data = random_data()
    ids = torch.tensor([50, 3, 99])
    for loader in loaders(data, [2], input_nodes=ids, batch_size=2):
        assert torch.cat([b.n_id[: b.batch_size] for b in loader]).tolist() == [50, 3, 99]
        assert torch.cat([b.input_id for b in loader]).tolist() == [0, 1, 2]  # positions
    for loader in loaders(data, [2], input_nodes=data.train_mask, batch_size=2):
        seeds = torch.cat([b.n_id[: b.batch_size] for b in loader])
        assert seeds.equal(data.train_mask.nonzero().view(-1)) and torch.cat([b.input_id for b in loader]).equal(seeds)
    for loader in loaders(data, [2], input_nodes=ids, input_id=torch.tensor([7, 8, 9]), batch_size=3):
        assert next(iter(loader)).input_id.tolist() == [7, 8, 9]
    for loader in loaders(data, [2], input_nodes=[50, 3], batch_size=3):
        assert next(iter(loader)).n_id[:2].tolist() == [50, 3]


def test_shuffle_and_drop_last():
    data = random_data()
    for loader in loaders(data, [2], batch_size=30, shuffle=True, drop_last=True):
        torch.manual_seed(1)
        assert len(loader) == len(list(loader)) == 3
        first, second = (torch.cat([b.input_id for b in loader]) for _ in range(2))
        assert first.unique().numel() == 90 and not first.equal(second)
        for batch in loader:
            assert batch.input_id.equal(batch.n_id[:30])


def test_all_neighbors_give_the_output_of_the_whole_graph():
    data = random_data()
    data.x = torch.rand(N, 8)
    model = GraphSAGE(8, 16, 2, 4).eval()
    whole = model(data.x, data.edge_index)
    for kind in ("directional", "induced"):
        for loader in loaders(data, [-1, -1], subgraph_type=kind, batch_size=30):
            for batch in loader:
                got = model(batch.x, batch.edge_index)[: batch.batch_size]
                assert torch.allclose(got, whole[batch.n_id[: batch.batch_size]], atol=1e-5)


def test_numbers_by_hop_serve_trim_to_layer():
    data = random_data()
    data.x = torch.rand(N, 8)
    model = GraphSAGE(8, 16, 3, 4).eval()
    for loader in loaders(data, [4, 3, 2], batch_size=10):
        for batch in loader:
            counts = batch.num_sampled_nodes, batch.num_sampled_edges
            full = model(batch.x, batch.edge_index)[: batch.batch_size]
            trimmed = model(
                batch.x, batch.edge_index, num_sampled_nodes_per_hop=counts[0], num_sampled_edges_per_hop=counts[1]
            )
            assert torch.allclose(full, trimmed[: batch.batch_size], atol=1e-5)


def test_numbers_by_hop_of_a_known_graph():
    # 0 ← 1, 2; 1 ← 3; 2 ← 3, 4; 3 ← 0
    edges = torch.tensor([[1, 2, 3, 3, 4, 0], [0, 0, 1, 2, 2, 3]])
    data = Data(edge_index=edges, num_nodes=6)
    for loader in loaders(data, [-1, -1], input_nodes=torch.tensor([0, 5]), batch_size=2):
        batch = next(iter(loader))
        assert batch.num_sampled_nodes == [2, 2, 2] and batch.num_sampled_edges == [2, 3]
        assert batch.n_id.tolist() == [0, 5, 1, 2, 3, 4]  # the isolated node 5 keeps its row


def test_repeated_seeds_and_imbalanced_sampler():
    data = random_data()
    seeds = torch.tensor([4, 4, 9])
    for kind in KINDS:
        for loader in loaders(data, [-1], input_nodes=seeds, batch_size=3, subgraph_type=kind):
            batch = next(iter(loader))
            check(batch, data, "repeated" if kind == "induced" else kind)
            assert batch.n_id[:3].tolist() == [4, 4, 9] and batch.input_id.tolist() == [0, 1, 2]
            if kind == "directional":
                degrees = torch.bincount(batch.edge_index[1], minlength=3)[:3]
                assert degrees.tolist() == torch.bincount(data.edge_index[1], minlength=N)[seeds].tolist()
    labels = (torch.arange(N) >= 90).long()
    for loader in loaders(data, [2], sampler=ImbalancedSampler(labels), batch_size=50):
        torch.manual_seed(0)
        drawn = torch.cat([b.n_id[: b.batch_size] for b in loader])
        assert drawn.numel() == N and 25 < int((drawn >= 90).sum()) < 75


@pytest.mark.parametrize("kind", ["directional", "bidirectional"])
def test_disjoint_seeds_have_subgraphs_of_their_own(kind):
    data = random_data()
    seeds = torch.tensor([7, 7, 31, 50])
    for loader in loaders(data, [3, 2], disjoint=True, subgraph_type=kind, input_nodes=seeds, batch_size=4):
        torch.manual_seed(0)
        batch = next(iter(loader))
        check(batch, data, kind)
        assert batch.n_id[:4].tolist() == seeds.tolist() and batch.batch[:4].tolist() == [0, 1, 2, 3]
        assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()
        for tree in range(4):
            nodes = batch.n_id[batch.batch == tree]
            assert nodes.unique().numel() == nodes.numel()
        if kind == "directional":  # hop by hop, as trim_to_layer wants it
            ends = np.cumsum([0, *batch.num_sampled_nodes])
            edges = np.cumsum([0, *batch.num_sampled_edges])
            for hop in range(2):
                to = batch.edge_index[1, edges[hop] : edges[hop + 1]]
                assert ((to >= ends[hop]) & (to < ends[hop + 1])).all()
    own = gp.NeighborLoader(data, [2, 2], disjoint=True, batch_size=30, shuffle=True)
    first, second = ([b.edge_attr for b in own.epoch(k)] for k in (0, 0))
    assert len(first) == len(own) and all(a.equal(b) for a, b in zip(first, second, strict=True))
    assert not first[0].equal(next(iter(own.epoch(1))).edge_attr)
    check(own(torch.tensor([3])), data)


def test_disjoint_links():
    data = random_data()
    for negatives in ({"mode": "binary", "amount": 1}, {"mode": "triplet", "amount": 2}):
        loader = gp.LinkNeighborLoader(data, [2, 2], disjoint=True, neg_sampling=negatives, batch_size=50)
        batch = next(iter(loader))
        check(batch, data)
        if negatives["mode"] == "binary":
            assert batch.n_id[batch.edge_label_index][:, :50].equal(data.edge_index[:, :50])
            ends = batch.batch[batch.edge_label_index]
            assert ends[0].equal(ends[1])
        else:
            assert batch.n_id[batch.src_index].equal(data.edge_index[0, :50])
            assert batch.dst_neg_index.shape == (50, 2)


def test_replacement_and_weights():
    data = random_data()
    for loader in loaders(data, [30], replace=True, batch_size=N):
        batch = next(iter(loader))
        check(batch, data)
        with_neighbors = int((torch.bincount(data.edge_index[1], minlength=N) > 0).sum())
        assert batch.num_edges == 30 * with_neighbors > batch.e_id.unique().numel()
    data.edge_weight = (torch.arange(E) % 2).float()
    for loader in loaders(data, [3], weight_attr="edge_weight", batch_size=N):
        batch = next(iter(loader))
        assert (batch.e_id % 2 == 1).all() and (batch.edge_weight == 1).all()


def test_transforms_and_call():
    data = random_data()

    def mark(batch):
        batch.mark = True
        return batch

    def without_edges(out):
        out = copy.copy(out)
        out.row, out.col, out.edge = out.row[:0], out.col[:0], out.edge[:0]
        return out

    for loader in loaders(data, [3], transform=mark, transform_sampler_output=without_edges, batch_size=5):
        for batch in loader:
            assert batch.mark and batch.num_edges == 0 and (batch.x[:, 0].long() == batch.n_id).all()
    for loader in loaders(data, [3], batch_size=5):
        batch = loader(torch.tensor([8, 2]))
        check(batch, data)
        assert batch.n_id[:2].tolist() == [8, 2] == batch.input_id.tolist() and batch.batch_size == 2


def test_mapped_array_as_features(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(N * 4, dtype=np.float32).reshape(N, 4))
    data = random_data()
    rows = np.load(tmp_path / "x.npy", mmap_mode="r+")
    data.x = torch.from_numpy(rows)
    for loader in loaders(data, [3], batch_size=40):
        for batch in loader:
            assert batch.x.equal(data.x[batch.n_id])


# Workers, seeds, processes


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("filter_per_worker", [True, False])
def test_worker_processes(context, filter_per_worker):
    data = random_data()
    sampler = gp.NeighborSampler(data, [4, 2])
    options = {"num_workers": 2, "multiprocessing_context": context, "filter_per_worker": filter_per_worker}
    loader = NodeLoader(data, node_sampler=sampler, batch_size=25, shuffle=True, **options)
    seen = []
    for batch in loader:
        check(batch, data)
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.cat(seen).sort().values.equal(torch.arange(N))
    links = LinkLoader(data, link_sampler=sampler, neg_sampling="binary", batch_size=300, **options)
    for batch in links:
        check(batch, data)
        assert batch.edge_label_index.shape == (2, 600)


def test_torch_decides_on_draws():
    data = random_data()
    loader = NodeLoader(data, node_sampler=gp.NeighborSampler(data, [2, 2]), batch_size=50)

    def edges(seed, workers=0):
        torch.manual_seed(seed)
        loader.num_workers = workers
        return torch.cat([b.e_id for b in loader])

    assert edges(1).equal(edges(1)) and not edges(1).equal(edges(2))
    # Two workers get one batch each, of other seeds: as torch makes them differ.
    torch.manual_seed(0)
    same = NodeLoader(data, node_sampler=loader.node_sampler, input_nodes=[5] * 4, batch_size=2, num_workers=2)
    first, second = (b.e_id for b in same)
    assert not first.equal(second)


def test_epochs_by_number_and_threads():
    data = random_data()

    def runs(**options):
        loader = gp.NeighborLoader(data, [2, 2], batch_size=30, shuffle=True, **options)
        return [torch.cat([b.edge_attr for b in loader]) for _ in range(2)], loader

    (first, second), loader = runs(threads=0)
    assert not first.equal(second)
    for threads in (1, 3):
        assert all(a.equal(b) for a, b in zip(runs(threads=threads)[0], (first, second)))
    assert torch.cat([b.edge_attr for b in loader.epoch(1)]).equal(second)
    rest = torch.cat([b.edge_attr for b in loader.epoch(1, first=2)])
    assert second[-rest.numel() :].equal(rest)
    assert not runs(seed=1)[0][0].equal(first)
    generators = [torch.Generator().manual_seed(s) for s in (5, 5, 6)]
    a, b, c = (runs(generator=g)[0][0] for g in generators)
    assert a.equal(b) and not a.equal(c)


def test_pickles_and_shared_graphs():
    data = random_data()
    graph = gp.graph_of(data)
    one, other = (gp.NeighborLoader(data, [3], batch_size=10, graph=graph) for _ in range(2))
    assert one.node_sampler.graph is other.node_sampler.graph is graph
    for a, b in zip(one, other, strict=True):  # two loaders side by side
        assert a.e_id.equal(b.e_id)
    for made in (gp.NeighborLoader(data, [3], batch_size=10), gp.NeighborSampler(data, [3], "induced")):
        copied = pickle.loads(pickle.dumps(made))
        if isinstance(made, gp.NeighborLoader):
            assert all(a.e_id.equal(b.e_id) for a, b in zip(copied, made, strict=True))
        else:
            check(next(iter(NodeLoader(data, node_sampler=copied, batch_size=9))), data, "induced")


def test_tensors_outlive_loader_and_graph():
    data = random_data()
    loader = gp.NeighborLoader(data, [4, 2], batch_size=20)
    kept = list(loader)
    held = [(b.edge_index.clone(), b.n_id.clone(), b.x.clone()) for b in kept]
    reference = data.clone()
    del loader, data
    gc.collect()
    for batch, (edge_index, n_id, x) in zip(kept, held):
        assert batch.edge_index.equal(edge_index) and batch.n_id.equal(n_id) and batch.x.equal(x)
        check(batch, reference)
    row = kept[0].edge_index[0]
    before = row.clone()
    del kept, batch
    gc.collect()
    assert row.equal(before)


# Links


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amount", [None, 0.5, 2.0])
def test_links_and_binary_negatives(kind, amount):
    data = random_data()
    for loader in link_loaders(data, kind, neg_sampling_ratio=amount):
        seen = 0
        for batch in loader:
            check(batch, data, kind)
            n = batch.input_id.numel()
            ends = batch.n_id[batch.edge_label_index]
            assert ends[:, :n].equal(data.edge_index[:, batch.input_id])
            if amount is not None:
                assert batch.edge_label.tolist() == [1.0] * n + [0.0] * int(np.ceil(n * amount))
            assert batch.edge_label_index.shape[1] == n + int(np.ceil(n * (amount or 0)))
            seen += n
        assert seen == E


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets(amount):
    data = random_data()
    for loader in link_loaders(data, neg_sampling={"mode": "triplet", "amount": amount}, shuffle=True):
        for batch in loader:
            check(batch, data)
            pairs = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
            assert pairs.equal(data.edge_index[:, batch.input_id])
            assert batch.dst_neg_index.shape == ((100,) if amount == 1 else (100, amount))
            assert "edge_label_index" not in batch


def test_labels_of_links_and_no_edges():
    data = random_data()
    labels = torch.arange(E) % 3
    for loader in link_loaders(data, edge_label=labels, neg_sampling="binary"):
        batch = next(iter(loader))
        assert batch.edge_label[:100].equal(labels[:100] + 1) and (batch.edge_label[100:] == 0).all()
    bare = Data(num_nodes=20)
    loader = gp.LinkNeighborLoader(bare, [2], torch.randint(20, (2, 10)), batch_size=5)
    assert all(batch.num_nodes <= 10 and batch.edge_label_index.shape == (2, 5) for batch in loader)


# Training


def cora():
    folder = os.environ.get("GIRIH_DATA")
    if not folder or not os.path.isdir(os.path.join(folder, "cora")):
        pytest.skip("GIRIH_DATA names no folder with cora")
    return gp.to_pyg(girih.load(os.path.join(folder, "cora")))


@pytest.mark.parametrize("own", [False, True])
def test_cora_reaches_the_accuracy_of_pyg(own):
    data = cora()
    data.x = data.x / data.x.sum(1, keepdim=True).clamp(min=1)
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 64, 2, int(data.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    options = {"input_nodes": data.train_mask, "batch_size": 70, "shuffle": True}
    train = list(loaders(data, [10, 10], **options))[own]
    best = (0.0, 0.0)
    for _ in range(40):
        model.train()
        for batch in train:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(data.x, data.edge_index).argmax(1) == data.y
        validation = float(right[data.val_mask].float().mean())
        if validation > best[0]:  # the first of equal epochs, so that the test nodes have no say
            best = (validation, float(right[data.test_mask].float().mean()))
    assert best[1] > 0.77, best
