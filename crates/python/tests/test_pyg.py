"""What the adapters for PyTorch Geometric have to hold.

The properties are those that PyG's own tests check of NeighborLoader, NodeLoader, LinkNeighborLoader, LinkLoader,
ClusterLoader and GraphSAINTSampler. These of them do not hold here:

- heterogeneous data, `disjoint`, and all that follows time (`time_attr`, `input_time`, `edge_label_time`,
  `temporal_strategy`): refused by name.
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
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import ImbalancedSampler, LinkLoader, NodeLoader  # noqa: E402
from torch_geometric.nn import GraphSAGE  # noqa: E402
from torch_geometric.testing import MyFeatureStore, MyGraphStore  # noqa: E402

import girih.pyg as gp  # noqa: E402

N, E = 100, 600
KINDS = ("directional", "bidirectional", "induced")


def random_data(seed=0, dtype=torch.int64):
    """Graph without parallel edges, whose attributes name nodes and edges."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(N * N, generator=generator)[:E]
    edge_index = torch.stack([pairs // N, pairs % N]).to(dtype)
    return Data(
        x=torch.arange(N).float().view(-1, 1).repeat(1, 3).contiguous(),
        y=torch.arange(N),
        train_mask=torch.arange(N) % 3 == 0,
        edge_index=edge_index,
        edge_attr=torch.arange(E),
        name="graph",
    )


def check(batch, data, kind="directional"):
    """Nodes, edges and attributes of a batch are those of the data."""
    n_id = batch.n_id.long()
    assert (batch.x[:, 0].long() == n_id).all() and (batch.y == n_id).all() and batch.name == "graph"
    assert (batch.train_mask == data.train_mask[n_id]).all()
    assert batch.edge_index.min() >= 0 and batch.edge_index.max() < batch.num_nodes == n_id.numel()
    assert (batch.e_id == batch.edge_attr).all()
    ends, named = n_id[batch.edge_index.long()], data.edge_index[:, batch.e_id].long()
    if kind == "bidirectional":  # the reverse of an edge has its name
        assert ((ends == named).all(0) | (ends == named.flip(0)).all(0)).all()
        pairs = set(map(tuple, batch.edge_index.t().tolist()))
        assert pairs == {(b, a) for a, b in pairs}
    else:
        assert (ends == named).all()
    if kind == "induced":
        is_in = torch.zeros(N, dtype=torch.bool).index_fill_(0, n_id, True)
        assert batch.num_edges == int(is_in[data.edge_index].all(0).sum())
    if kind == "directional":
        assert sum(batch.num_sampled_nodes) == n_id.numel() and sum(batch.num_sampled_edges) == batch.num_edges


def loaders(data, num_neighbors, **options):
    """PyG's loader over girih's sampler, and girih's own."""
    sampling = {key: options.pop(key) for key in ("subgraph_type", "replace", "weight_attr") if key in options}
    sampler = gp.NeighborSampler(data, num_neighbors, **sampling)
    yield NodeLoader(data, node_sampler=sampler, **options)
    yield gp.NeighborLoader(data, num_neighbors, **sampling, **options)


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


def link_loaders(data, kind="directional", **options):
    sampler = gp.NeighborSampler(data, [3, 2], subgraph_type=kind)
    yield LinkLoader(data, link_sampler=sampler, batch_size=100, **options)
    yield gp.LinkNeighborLoader(data, [3, 2], subgraph_type=kind, batch_size=100, **options)


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


# Stores


def test_stores_of_pyg_and_of_girih():
    data = random_data()
    features, edges = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    features.put_tensor(data.y, group_name=None, attr_name="y", index=None)
    edges.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(N, N))
    ours = gp.Features({"x": girih.FeatureStore(data.x.numpy()), "y": data.y}), gp.Edges(gp.graph_of(data))
    for stores in ((features, edges), ours):
        for loader in loaders(stores, [4, 2], input_nodes=torch.arange(N), batch_size=30):
            for batch in loader:
                assert (batch.x[:, 0].long() == batch.n_id).all() and (batch.y == batch.n_id).all()
                assert batch.n_id[batch.edge_index].equal(data.edge_index[:, batch.e_id])
    row, colptr, _ = ours[1].csc()
    assert colptr[-1] == row.numel() == E
    assert ours[0].get_tensor_size(attr_name="x", group_name=None) == (N, 3)
    assert ours[0].get_tensor(attr_name="x", group_name=None, index=slice(2, 5))[:, 0].tolist() == [2, 3, 4]
    assert ours[0].remove_tensor(attr_name="y", group_name=None, index=None) and list(ours[0].tables) == ["x"]


@pytest.mark.parametrize("codec", [None, "int8"])
def test_rows_of_a_store_replace_x(codec):
    data = random_data()
    rows = np.random.default_rng(0).random((N, 16), dtype=np.float32)
    store = girih.FeatureStore(rows) if codec is None else girih.compress(rows, codec)
    for threads in (0, 2):
        for batch in gp.NeighborLoader(data, [3], x=store, batch_size=40, threads=threads, pin_memory=True):
            assert (batch.x.numpy() == store.gather(batch.n_id.numpy())).all()
    assert next(iter(gp.NeighborLoader(data, [3], x=rows))).x.shape[1] == 16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_pinned_memory_and_data_on_a_gpu():
    data = random_data()
    store = girih.compress(np.random.default_rng(0).random((N, 16), dtype=np.float32), "int8")
    for batch in gp.NeighborLoader(data, [3], x=store, batch_size=40, pin_memory=True):
        assert all(batch[key].is_pinned() for key in ("x", "y", "edge_index", "n_id", "e_id"))
        assert (batch.x.numpy() == store.gather(batch.n_id.numpy())).all()
    there = data.clone().to("cuda")
    for loader in loaders(there, [3], input_nodes=there.train_mask, batch_size=10):
        for batch in loader:
            assert batch.x.is_cuda and batch.edge_index.is_cuda
            assert (batch.x[:, 0].long().cpu() == batch.n_id.cpu()).all()


# Orders, walks, subgraphs, data sets


def test_reorder_renames_everything_together():
    data = random_data()
    data.edge_label_index, data.rows = data.edge_index[:, :5], np.arange(N)
    renamed, new = gp.reorder(data, "degree")
    assert renamed.edge_index.equal(new[data.edge_index]) and renamed.edge_attr.equal(data.edge_attr)
    assert renamed.y[new].equal(data.y) and renamed.x[new].equal(data.x) and renamed.train_mask[new].equal(data.train_mask)
    assert renamed.edge_label_index.equal(new[data.edge_label_index]) and torch.as_tensor(renamed.rows)[new].equal(data.y)
    assert data.y.equal(torch.arange(N)) and renamed.name == "graph"
    with pytest.raises(ValueError, match="sideways"):
        gp.reorder(data, "sideways")
    back = gp.to_pyg(gp.graph_of(renamed))
    assert back.edge_index.equal(renamed.edge_index) and back.num_nodes == N


def test_walks_follow_edges():
    data = random_data()
    pairs = set(map(tuple, data.edge_index.t().tolist()))
    dead_ends = set(range(N)) - set(data.edge_index[0].tolist())
    for options in ({}, {"p": 0.5, "q": 2.0}):
        walks = gp.random_walks(data, torch.arange(N), 5, seed=1, **options)
        assert walks.shape == (N, 6) and walks[:, 0].equal(torch.arange(N))
        for a, b in zip(walks[:, :-1].flatten().tolist(), walks[:, 1:].flatten().tolist()):
            assert (a, b) in pairs or (a == b and a in dead_ends)
    torch.manual_seed(3)
    drawn = gp.random_walks(data, torch.arange(N), 5)
    torch.manual_seed(3)
    assert drawn.equal(gp.random_walks(data, torch.arange(N), 5))


def test_clusters_are_disjoint_and_whole():
    data = random_data()
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1).unique(dim=1)
    data.edge_attr = torch.arange(data.num_edges)
    loader = gp.ClusterLoader(data, 8, batch_size=3, shuffle=True)
    seen = []
    assert len(loader) == 3
    for batch in loader:
        check(batch, data, "induced")
        assert set(loader.cluster_of.tolist()) >= set(loader.cluster_of[batch.n_id].tolist())
        seen.append(batch.n_id)
    assert torch.cat(seen).sort().values.equal(torch.arange(N))
    given = gp.ClusterLoader(data, cluster_of=torch.arange(N) // 50, num_workers=2)
    assert [b.n_id.tolist() for b in given] == [list(range(50)), list(range(50, 100))]
    with pytest.raises(ValueError, match="cluster_of"):
        gp.ClusterLoader(data, cluster_of=torch.arange(3))


@pytest.mark.parametrize("kind", ["nodes", "edges", "walks"])
def test_saint_weights_estimate_the_mean(kind):
    data = random_data()
    make = {
        "nodes": lambda **o: gp.GraphSAINTNodeSampler(data, 40, num_steps=200, **o),
        "edges": lambda **o: gp.GraphSAINTEdgeSampler(data, 40, num_steps=200, **o),
        "walks": lambda **o: gp.GraphSAINTRandomWalkSampler(data, 20, 2, num_steps=200, **o),
    }[kind]
    loader = make(sample_coverage=500)
    means = []
    for batch in loader:
        check(batch, data, "induced")
        assert batch.edge_norm.shape == batch.e_id.shape and batch.node_norm.shape == batch.n_id.shape
        means.append(float((batch.node_norm * batch.y).sum()))
    # Only nodes that can be drawn count: those with an edge.
    assert len(means) == len(loader) == 200 and np.mean(means) == pytest.approx((N - 1) / 2, rel=0.1)
    assert "node_norm" not in next(iter(make()))


def test_data_set_to_pyg():
    data = gp.to_pyg(girih.load("synth:planted,nodes=300,degree=8"))
    assert data.x.shape[0] == data.y.numel() == 300 and int(data.train_mask.sum()) > 0
    assert not (data.train_mask & data.test_mask).any() and data.validate()


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
        best = max(best, (float(right[data.val_mask].float().mean()), float(right[data.test_mask].float().mean())))
    assert best[1] > 0.77, best


# Refusals


REFUSED = [
    (NotImplementedError, "disjoint", {"disjoint": True}),
    (NotImplementedError, "time_attr", {"time_attr": "time"}),
    (NotImplementedError, "temporal_strategy", {"temporal_strategy": "last"}),
    (NotImplementedError, "edge type", {"num_neighbors": {("a", "to", "a"): [2]}}),
    (ValueError, "weight_attr", {"weight_attr": "absent"}),
    (ValueError, "weight_attr", {"weight_attr": "y"}),
    (ValueError, "sideways", {"subgraph_type": "sideways"}),
    (ValueError, "0", {"num_neighbors": [0]}),
]
OWN = [
    (NotImplementedError, "num_workers.*threads", {"num_workers": 2}),
    (NotImplementedError, "prefetch_factor", {"prefetch_factor": 4}),
    (NotImplementedError, "persistent_workers", {"persistent_workers": True}),
    (NotImplementedError, "worker_init_fn", {"worker_init_fn": print}),
    (NotImplementedError, "batch_sampler", {"batch_sampler": [[1]]}),
    (NotImplementedError, "input_time", {"input_time": torch.arange(N)}),
    (TypeError, "no argument 'nonsense'", {"nonsense": 1}),
    (TypeError, "neighbor_sampler", {"neighbor_sampler": object()}),
    (ValueError, "sampler and shuffle", {"sampler": [1], "shuffle": True}),
    (ValueError, "batch_size", {"batch_size": 0}),
    (ValueError, "mask of 3", {"input_nodes": torch.ones(3, dtype=torch.bool)}),
    (IndexError, "100", {"input_nodes": torch.tensor([100])}),
    (IndexError, "-1", {"input_nodes": torch.tensor([-1])}),
    (TypeError, "float", {"input_nodes": torch.tensor([0.5])}),
    (ValueError, "meta", {"input_nodes": torch.empty(3, dtype=torch.int64, device="meta")}),
    (ValueError, "rows", {"x": np.zeros((3, 2), dtype=np.float32)}),
]


@pytest.mark.parametrize("error,words,options", REFUSED + OWN)
def test_refusals_name_the_argument(error, words, options):
    options = {"num_neighbors": [2], **options}
    with pytest.raises(error, match=words):
        gp.NeighborLoader(random_data(), **options)
    if (error, words) in [case[:2] for case in REFUSED]:
        for made in (gp.NeighborSampler, gp.LinkNeighborLoader):
            with pytest.raises(error, match=words):
                made(random_data(), **options)


def test_arguments_that_change_nothing_are_accepted():
    data = random_data()
    options = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "is_sorted": True}
    loader = gp.NeighborLoader(data, [2], filter_per_worker=True, batch_size=None, worker_init_fn=None, **options)
    assert len(loader) == N
    assert next(iter(gp.NeighborLoader(data, [2], batch_size=N, directed=False))).num_edges == E
    bare = next(iter(gp.NeighborLoader(data, [2], batch_size=N, edge_ids=False)))
    assert "e_id" not in bare and "edge_attr" not in bare and bare.num_edges > 0
    narrow = next(iter(gp.NeighborLoader(data, [2], batch_size=N, index_dtype="int32")))
    assert narrow.edge_index.dtype == narrow.n_id.dtype == torch.int32
    check(narrow, data)


def test_bad_data():
    data = random_data()
    for make in (gp.graph_of, lambda d: gp.NeighborLoader(d, [2]), lambda d: gp.LinkNeighborLoader(d, [2]), gp.reorder):
        with pytest.raises(NotImplementedError, match="HeteroData"):
            make(HeteroData())
    with pytest.raises(TypeError, match="list"):
        gp.graph_of([1, 2, 3])
    gaps = data.clone()
    gaps.edge_index = data.edge_index.repeat_interleave(2, 1)[:, ::2]  # not contiguous
    assert not gaps.edge_index.is_contiguous() and gp.graph_of(gaps).num_edges == E
    for wrong, error, words in (
        (data.edge_index.float(), TypeError, "float"),
        (data.edge_index.to("meta"), ValueError, "meta"),
        (data.edge_index + 50, IndexError, "nodes"),
        (data.edge_index[:, [0, 0]], ValueError, "listed once"),
    ):
        other = Data(edge_index=wrong, num_nodes=N)
        with pytest.raises(error, match=words):
            gp.graph_of(other)
    doubled = Data(edge_index=data.edge_index[:, [0, 0, 1]], num_nodes=N)
    assert gp.graph_of(doubled, duplicates="merge").num_edges == 2
    with pytest.raises(NotImplementedError, match="edge_label_time"):
        gp.LinkNeighborLoader(data, [2], edge_label_time=torch.arange(E))
    with pytest.raises(NotImplementedError, match="save_dir"):
        gp.GraphSAINTNodeSampler(data, 10, save_dir="here")
    with pytest.raises(NotImplementedError, match="time"):
        next(iter(NodeLoader(data, node_sampler=gp.NeighborSampler(data, [2]), input_time=torch.arange(N))))
