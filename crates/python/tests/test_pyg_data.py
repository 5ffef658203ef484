"""What `girih.pyg` has to hold beside its loaders of neighbors: stores, orders, walks, subgraphs; and what it refuses."""

import numpy as np
import pytest

import girih

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from pyg_data import E, N, check, loaders, random_data  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import NodeLoader  # noqa: E402
from torch_geometric.testing import MyFeatureStore, MyGraphStore  # noqa: E402

import girih.pyg as gp  # noqa: E402

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
    row, col, _ = ours[1].coo()
    assert set(zip(row.tolist(), col.tolist())) == set(map(tuple, data.edge_index.t().tolist()))
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
    means, sums, times = [], torch.zeros(N), torch.zeros(N)
    for batch in loader:
        check(batch, data, "induced")
        assert batch.edge_norm.shape == batch.e_id.shape and batch.node_norm.shape == batch.n_id.shape
        means.append(float((batch.node_norm * batch.y).sum()))
        ends = batch.n_id[batch.edge_index]
        sums.index_add_(0, ends[1], batch.edge_norm * ends[0])
        times[batch.n_id] += 1
    # Only nodes that can be drawn count: those with an edge.
    assert len(means) == len(loader) == 200 and np.mean(means) == pytest.approx((N - 1) / 2, rel=0.1)
    whole = torch.zeros(N).index_add_(0, data.edge_index[1], data.edge_index[0].float())
    seen = times > 0
    assert float((sums / times.clamp(min=1))[seen].sum()) == pytest.approx(float(whole[seen].sum()), rel=0.1)
    assert "node_norm" not in next(iter(make()))


def test_data_set_to_pyg():
    data = gp.to_pyg(girih.load("synth:planted,nodes=300,degree=8"))
    assert data.x.shape[0] == data.y.numel() == 300 and int(data.train_mask.sum()) > 0
    assert not (data.train_mask & data.test_mask).any() and data.validate()


# Refusals


REFUSED = [
    (NotImplementedError, "disjoint", {"disjoint": True, "subgraph_type": "induced"}),
    (ValueError, "time_attr: data has no 'time'", {"time_attr": "time"}),
    (ValueError, "temporal_strategy", {"temporal_strategy": "last"}),
    (ValueError, "edge type", {"num_neighbors": {("a", "to", "a"): [2]}}),
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
    (ValueError, "input_time", {"input_time": torch.arange(N)}),
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
    for make in (gp.graph_of, lambda d: gp.ClusterLoader(d, 2), gp.reorder):
        with pytest.raises(NotImplementedError, match="HeteroData"):
            make(HeteroData())
    for make in (lambda d: gp.NeighborLoader(d, [2], "a"), lambda d: gp.LinkNeighborLoader(d, [2]), gp.typed_graph_of):
        with pytest.raises(ValueError, match="without a node type"):
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
    other = girih.from_edge_index([[0], [1]], 3)
    for make in (gp.NeighborSampler, gp.NeighborLoader, gp.LinkNeighborLoader):
        with pytest.raises(ValueError, match="3 nodes.*graph_of"):
            make(data, [2], graph=other)
    with pytest.raises(ValueError, match="edge_label_time"):
        gp.LinkNeighborLoader(data, [2], edge_label_time=torch.arange(E))
    with pytest.raises(NotImplementedError, match="save_dir"):
        gp.GraphSAINTNodeSampler(data, 10, save_dir="here")
    with pytest.raises(ValueError, match="input_time"):
        next(iter(NodeLoader(data, node_sampler=gp.NeighborSampler(data, [2]), input_time=torch.arange(N))))


def test_data_sets_go_both_ways():
    dataset = girih.load("synth:planted,nodes=300,degree=6,features=8,classes=3")
    data = girih.pyg.to_pyg(dataset)
    back = girih.pyg.from_pyg(data)
    assert (back.x == dataset.x).all() and (back.y == dataset.y).all()
    assert all((a == b).all() for a, b in zip(back.split, dataset.split)) and back.graph.num_edges == dataset.graph.num_edges
    assert girih.train(back, epochs=3, device="cpu").runs == girih.train(dataset, epochs=3, device="cpu").runs
    del data.val_mask
    data.y = data.y.unsqueeze(1)
    assert girih.pyg.from_pyg(data, graph=back.graph).split is None
