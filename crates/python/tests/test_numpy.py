"""What the package has to hold with NumPy alone."""

import gc
import os
import pickle
import resource
import signal
import sys
import threading
import time

import numpy as np
import pytest

import girih


def ring_edges(n=1000, k=8):
    i = np.arange(n)
    return np.concatenate([np.stack([(i + s) % n, i]) for s in range(1, k + 1)], axis=1)


def ring(n=1000, k=8):
    edges = ring_edges(n, k)
    return girih.from_edge_index(edges, n), edges


def address(array):
    return array.__array_interface__["data"][0]


def check_batch(batch, edges, columns=None):
    """Edges of the batch are the caller's, by their names, hop by hop."""
    ends, by_hop = batch.edge_index, batch.num_sampled_edges
    assert (edges[:, batch.e_id] == batch.n_id[ends]).all()
    assert sum(batch.num_sampled_nodes) == len(batch.n_id) and sum(by_hop) == ends.shape[1]
    nodes, at = 0, 0
    for hop, n in enumerate(by_hop):
        to = ends[1][at : at + n]
        assert ((to >= nodes) & (to < nodes + batch.num_sampled_nodes[hop])).all()
        nodes, at = nodes + batch.num_sampled_nodes[hop], at + n


# Graphs


def test_edge_index_any_integer_type_and_stride():
    edges = ring_edges()
    expected = girih.from_edge_index(edges, 1000).csr
    for dtype in (np.int64, np.int32, np.uint32, np.uint64, np.int16):
        for form in (edges.astype(dtype), np.asfortranarray(edges.astype(dtype)), edges.astype(dtype)[:, ::-1]):
            got = girih.from_edge_index(form, 1000).csr
            assert all((a == b).all() for a, b in zip(expected, got))
    gaps = np.repeat(edges, 2, axis=1)[:, ::2]
    assert all((a == b).all() for a, b in zip(expected, girih.from_edge_index(gaps, 1000).csr))
    assert all((a == b).all() for a, b in zip(expected, girih.from_edge_index(edges.tolist()).csr))
    sources, destinations = edges
    assert all((a == b).all() for a, b in zip(expected, girih.from_coo(sources, destinations).csr))


def test_csr_is_read_in_place_and_sorted_when_it_must_be():
    graph, _ = ring()
    indptr, indices = graph.csr
    assert indptr.dtype == np.int64 and indices.dtype == np.int32
    mine, columns = indptr.copy(), indices.copy()
    same = girih.from_csr(mine, columns)
    assert address(same.csr[0]) == address(mine) and address(same.csr[1]) == address(columns)
    del mine, columns
    gc.collect()
    assert (same.csr[0] == indptr).all() and (same.csr[1] == indices).all()
    wide = girih.from_csr(indptr.astype(np.int32), indices.astype(np.int64))
    assert (wide.csr[1] == indices).all()
    # Rows in another order: sorted, and edges keep their places as names.
    shuffled = indices.copy().reshape(-1, 8)[:, ::-1].reshape(-1)
    unsorted = girih.from_csr(indptr, shuffled)
    assert (unsorted.csr[1] == indices).all() and (shuffled[unsorted.edge_ids] == indices).all()
    with pytest.raises(ValueError, match="read-only|not writeable"):
        graph.csr[1][0] = 3


def test_parallel_edges():
    edges = [[0, 1, 0], [1, 2, 1]]
    with pytest.raises(ValueError, match="edges 0 and 2"):
        girih.from_edge_index(edges)
    merged = girih.from_edge_index(edges, weights=[1.0, 2.0, 3.0], duplicates="merge")
    assert merged.num_edges == 2 and merged.weights.tolist() == [1.0, 2.0] and merged.edge_ids.tolist() == [0, 1]
    assert girih.from_edge_index(edges, weights=[1.0, 2.0, 3.0], duplicates="sum").weights.tolist() == [4.0, 2.0]


def test_orders_keep_the_names_of_edges():
    graph, edges = ring()
    for order in ("random", "community", "degree", "rcm"):
        other, new = graph.reorder(order, seed=3)
        assert sorted(new) == list(range(1000))
        batch = girih.Sampler(other, [-1]).sample(new[:100])
        assert (edges[:, batch.e_id] == np.argsort(new)[batch.n_id[batch.edge_index]]).all()
        assert (graph.permute(new).csr[1] == other.csr[1]).all()
    assert graph.reorder("random", seed=3)[0].quality()["bandwidth"] > graph.quality()["bandwidth"] - 1000


def test_properties():
    graph, edges = ring()
    assert (graph.num_nodes, graph.num_edges) == (1000, 8000)
    assert not graph.is_symmetric() and graph.symmetrized().is_symmetric()
    stats = girih.from_edge_index([[0, 1, 2], [1, 1, 1]], 5).stats()
    assert stats == dict(
        num_nodes=5, num_edges=3, num_self_loops=1, num_isolated=2, num_components=3, is_symmetric=False, max_in_degree=3, mean_degree=0.6
    )
    parts = graph.symmetrized().partition(4)
    assert len(parts) == 1000 and set(parts) == {0, 1, 2, 3} and np.bincount(parts).max() < 300
    assert set(graph.symmetrized().partition(4, method="streaming")) == {0, 1, 2, 3}
    back = graph.edge_index()
    assert sorted(map(tuple, back.T)) == sorted(map(tuple, edges.T))


def test_scipy_and_networkx():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 5]], dtype=np.float32)
    graph = girih.from_scipy(scipy_sparse.csr_matrix(dense), weighted=True)
    assert graph.csr[0].tolist() == [0, 1, 2, 4] and graph.csr[1].tolist() == [2, 0, 1, 2]
    assert (girih.to_scipy(graph).toarray() == dense).all()
    networkx = pytest.importorskip("networkx")
    undirected = networkx.Graph([("a", "b"), ("b", "c"), ("c", "c")])
    graph = girih.from_networkx(undirected)
    assert graph.num_edges == 5 and graph.is_symmetric()
    assert set(girih.to_networkx(graph).edges) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)}


# Batches


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batches(threads):
    graph, edges = ring()
    loader = girih.NeighborLoader(graph, np.arange(1000), [4, 3], batch_size=64, threads=threads)
    assert len(loader) == 16
    seen = []
    for number, batch in enumerate(loader):
        check_batch(batch, edges)
        assert batch.number == number and batch.batch_size == min(64, 1000 - 64 * number)
        seen.append(batch.n_id[: batch.batch_size].copy())
    assert sorted(np.concatenate(seen)) == list(range(1000))


def test_a_batch_depends_on_its_key_alone():
    graph, _ = ring()
    make = lambda threads: girih.NeighborLoader(graph, np.arange(1000), [4, 2], batch_size=100, seed=1, threads=threads)
    runs = [[(b.edge_index.copy(), b.n_id.copy()) for _ in range(2) for b in loader] for loader in map(make, (0, 1, 3))]
    for run in runs[1:]:
        assert all((x == y).all() for a, b in zip(runs[0], run, strict=True) for x, y in zip(a, b))
    loader = make(2)
    again = [b.edge_index.copy() for b in loader.epoch(1, first=4)]
    assert len(again) == 6 and all((x == y[0]).all() for x, y in zip(again, runs[0][14:]))
    batch = runs[0][3]
    seeds = batch[1][:100]
    alone = girih.Sampler(graph, [4, 2]).sample(seeds, seed=1, epoch=0, batch=3)
    assert (alone.edge_index == batch[0]).all()


def test_dtypes_and_forms_of_seeds():
    graph, _ = ring()
    sampler = girih.Sampler(graph, [3, 2])
    expected = sampler.sample([5, 7])
    mask = np.zeros(1000, dtype=bool)
    mask[[5, 7]] = True
    for seeds in (np.array([5, 7], dtype=np.int32), (5, 7), np.array([5, 0, 7])[::2], mask):
        assert (sampler.sample(seeds).edge_index == expected.edge_index).all()
    narrow = girih.Sampler(graph, [3, 2], index_dtype="int32").sample([5, 7])
    assert narrow.edge_index.dtype == np.int32 and (narrow.edge_index == expected.edge_index).all()
    assert narrow.n_id.dtype == np.int32 and expected.n_id.dtype == np.int64 == expected.e_id.dtype
    assert girih.Sampler(graph, [3], edge_ids=False).sample([1]).e_id is None
    empty = sampler.sample([])
    assert empty.edge_index.shape == (2, 0) and len(empty.n_id) == 0


def test_repeated_seeds_have_a_copy_each():
    graph, edges = ring()
    batch = girih.Sampler(graph, [4, 2]).sample([7, 3, 7, 7])
    assert batch.batch_size == 4 and batch.n_id[:4].tolist() == [7, 3, 7, 7] and batch.num_sampled_nodes[0] == 4
    check_batch(batch, edges)
    of = [batch.n_id[batch.edge_index[0][batch.edge_index[1] == at]].tolist() for at in range(4)]
    assert of[0] == of[2] == of[3] and len(of[1]) == 4
    with pytest.raises(ValueError, match="twice"):
        girih.Sampler(graph, [4, 2], expand="per-layer").sample([7, 7])
    with pytest.raises(ValueError, match="repeatedly"):
        batch.blocks()


def test_blocks():
    graph, edges = ring()
    batch = girih.Sampler(graph, [4, 2], expand="per-layer").sample(np.arange(50))
    with pytest.raises(ValueError, match="expand"):
        batch.edge_index
    outer = None
    for block in batch.blocks():
        indptr, indices, names = block.csc()
        assert len(indptr) == block.num_dst + 1 and indptr[-1] == block.num_edges == len(indices) == len(names)
        to = np.repeat(np.arange(block.num_dst), np.diff(indptr))
        assert (edges[:, names] == block.n_id[np.stack([indices, to])]).all()
        assert outer is None or block.num_src == outer
        outer = block.num_dst
    assert outer == 50


def test_weights_draws_and_exclusion():
    graph, edges = ring()
    weights = (np.arange(edges.shape[1]) % 2).astype(np.float32)
    batch = girih.Sampler(graph, [-1], weights=weights).sample(np.arange(100))
    assert (weights[batch.e_id] == 1).all() and len(batch.e_id) == weights[np.isin(edges[1], np.arange(100))].sum()
    labor = girih.Sampler(graph, [3], draws="labor").sample(np.arange(100))
    assert 150 < labor.edge_index.shape[1] < 450
    names = np.flatnonzero(edges[1] == 5)[:3]
    left = girih.Sampler(graph, [-1]).sample([5], exclude=names)
    assert len(left.e_id) == 5 and not np.isin(left.e_id, names).any()
    with pytest.raises(IndexError, match="edge 8000"):
        girih.Sampler(graph, [-1]).sample([5], exclude=[8000])


def test_layerwise_clusters_saint_and_walks():
    graph, edges = ring()
    layers = girih.Sampler.layerwise(graph, [20, 10]).sample(np.arange(10)).blocks()
    assert len(layers) == 2 and layers[0].weights is not None
    both = graph.symmetrized()
    clusters = girih.Sampler.clusters(both, both.partition(10), clusters_per_batch=2)
    seen = [b.n_id.copy() for b in girih.SubgraphLoader(clusters, 5)]
    assert sorted(np.concatenate(seen)) == list(range(1000))
    for method in ("nodes", "edges", "walks"):
        batch = girih.Sampler.saint(both, 50, method=method).sample()
        assert len(batch.loss_weights) == len(batch.n_id) and len(batch.weights) == batch.edge_index.shape[1]
    indptr, nodes = girih.random_walks(graph, [3, 4], 5)
    assert indptr.tolist() == [0, 6, 12] and nodes[0] == 3 and nodes[6] == 4
    assert all(nodes[i + 1] in (nodes[i] + np.arange(1, 9)) % 1000 for i in [0, 1, 2, 3, 4])


def test_two_loaders_at_once_and_leaving_early():
    graph, _ = ring()
    loaders = [girih.NeighborLoader(graph, np.arange(1000), [4], batch_size=10, threads=2, seed=s) for s in (1, 2)]
    pairs = list(zip(*loaders))
    assert len(pairs) == 100
    before = threading.active_count()
    for _ in range(20):
        next(iter(loaders[0]))
    gc.collect()
    assert threading.active_count() == before
    epoch = iter(loaders[0])
    next(epoch)
    epoch.close()
    epoch.close()
    with pytest.raises(ValueError, match="closed"):
        next(epoch)
    ended = loaders[0].epoch(3)
    assert sum(1 for _ in ended) == len(loaders[0])
    ended.close()
    assert next(ended, None) is None, "an epoch that ended stays ended"


# Memory


def test_memory_is_reused_and_outlives_its_makers():
    loader = girih.NeighborLoader(ring()[0], np.arange(1000), [4, 3], batch_size=100, threads=0)
    assert len({address(b.n_id) for b in loader}) <= 4 and len({address(b.n_id) for b in list(loader)}) == 10
    view = next(iter(loader)).edge_index
    before, where = view.copy(), address(view)
    del loader
    gc.collect()
    assert (view == before).all() and address(np.from_dlpack(view)) == where


def test_memory_does_not_grow():
    graph, _ = ring()
    loader = girih.NeighborLoader(graph, np.arange(1000), [4, 3], batch_size=10, threads=2)
    sizes = []
    for _ in range(4):
        for _ in range(30):
            for batch in loader:
                batch.edge_index, batch.n_id, batch.e_id
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert sizes[-1] - sizes[0] < 2000, sizes


# Features


def test_features():
    rows = np.random.default_rng(0).normal(size=(500, 20)).astype(np.float32)
    store = girih.FeatureStore(rows)
    assert address(store.rows) == address(rows) and store.shape == (500, 20) and store.codec is None
    ids = np.array([3, 499, 0, 3])
    assert (store.gather(ids) == rows[ids]).all()
    out = np.empty((4, 20), dtype=np.float32)
    assert store.gather(ids, out=out) is out and (out == rows[ids]).all()
    for codec, limit in (("int8", 0.02), ("f16", 0.001), ("topk:16", 1.0)):
        coded = store.encode(codec)
        assert coded.codec == codec and coded.row_bytes < 80
        assert np.abs(coded.gather(ids) - rows[ids]).max() < 4 * limit
    assert coded.errors(rows)["cosine_mean"] > 0.9


def test_features_in_files_and_in_loaders(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1000, 12)).astype(np.float32)
    coded = girih.compress(rows, "int8")
    coded.save(tmp_path / "x.codes")
    opened = girih.FeatureStore.open(tmp_path / "x.codes")
    assert (opened.gather([5, 6]) == coded.gather([5, 6])).all()
    again = pickle.loads(pickle.dumps(opened))
    assert (again.gather([5, 6]) == coded.gather([5, 6])).all()
    for features in (rows, opened):
        for batch in girih.NeighborLoader(ring()[0], np.arange(1000), [4, 3], batch_size=100, threads=2, features=features):
            expected = rows if features is rows else coded.gather(np.arange(1000))
            assert (batch.x == expected[batch.n_id]).all()


def test_out_is_checked():
    store = girih.FeatureStore(np.ones((10, 4), dtype=np.float32))
    fortran = np.zeros((3, 4), dtype=np.float32, order="F")
    for out, error in (
        (np.zeros((3, 5), dtype=np.float32), ValueError),
        (fortran, ValueError),
        (np.zeros((6, 4), dtype=np.float32)[::-2], ValueError),
        (np.zeros((3, 4)), TypeError),
        ([[0.0] * 4] * 3, TypeError),
    ):
        with pytest.raises(error):
            store.gather([1, 2, 3], out=out)
    frozen = np.zeros((3, 4), dtype=np.float32)
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="written"):
        store.gather([1, 2, 3], out=frozen)


# Data sets


def test_data_sets(tmp_path):
    data = girih.load("synth:planted,nodes=500,degree=6,features=8,classes=3")
    assert data.graph.num_nodes == 500 and data.x.shape == (500, 8) and data.num_classes == 3
    train, val, test = data.split
    assert len(set(train) | set(val) | set(test)) == len(train) + len(val) + len(test) and data.y.dtype == np.int64
    other, new = data.reorder("random", seed=4)
    assert (other.x[new] == data.x).all() and (other.y[new] == data.y).all()
    data.save(tmp_path / "folder")
    back = girih.load(tmp_path / "folder")
    assert (back.x == data.x).all() and (back.graph.csr[1] == data.graph.csr[1]).all()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        girih.load(tmp_path / "nowhere")
    with pytest.raises(ValueError):
        girih.load("synth:unheard-of")


# Pickles, processes and signals


def test_pickles(tmp_path):
    graph, edges = ring()
    sampler = girih.Sampler(graph, [4, 3], replace=True, index_dtype="int32")
    for thing in (sampler, pickle.loads(pickle.dumps(sampler))):
        check_batch(thing.sample([1, 2, 3], seed=9), edges)
    a, b = sampler.sample([1, 2], seed=5), pickle.loads(pickle.dumps(sampler)).sample([1, 2], seed=5)
    assert (a.edge_index == b.edge_index).all() and (a.e_id == b.e_id).all() and b.edge_index.dtype == np.int32
    loader = pickle.loads(pickle.dumps(girih.NeighborLoader(sampler, np.arange(1000), batch_size=50)))
    assert len(list(loader)) == 20
    girih.load("synth:planted,nodes=500,degree=6,features=8,classes=3").save(tmp_path / "folder")
    mapped = girih.load(tmp_path / "folder").graph
    assert len(pickle.dumps(mapped)) < 1000 or not mapped.is_mapped
    assert (pickle.loads(pickle.dumps(mapped)).csr[1] == mapped.csr[1]).all()
    saint = pickle.loads(pickle.dumps(girih.Sampler.saint(graph, 20)))
    assert len(saint.sample().n_id) > 0


def test_ctrl_c_ends_a_long_call():
    edges = np.random.default_rng(0).integers(0, 1 << 18, (2, 3_000_000))
    graph = girih.from_edge_index(edges, 1 << 18, duplicates="merge")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while time.perf_counter() - start < 20:
            graph.reorder("community")
    assert time.perf_counter() - start < 2


def test_ctrl_c_ends_the_wait_for_a_batch():
    # One batch takes seconds: all neighbors of all nodes over many hops.
    n = 1 << 16
    edges = np.random.default_rng(0).integers(0, n, (2, 2_000_000))
    graph = girih.from_edge_index(edges, n, duplicates="merge")
    loader = girih.NeighborLoader(graph, np.arange(n), [-1] * 40, batch_size=n, threads=1)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        while time.perf_counter() - start < 20:
            epoch = iter(loader)
            next(epoch)
    assert time.perf_counter() - start < 5


def test_fork():
    graph, _ = ring()
    epoch = iter(girih.NeighborLoader(graph, np.arange(1000), [4], batch_size=10, threads=2))
    next(epoch)
    graph.reorder("community")  # so that the parent has a pool
    if (child := os.fork()) == 0:
        signal.alarm(60)
        try:
            next(epoch)
            ok = False
        except RuntimeError as error:
            ok = "fork" in str(error)
        del epoch
        ok &= len(list(girih.NeighborLoader(graph, np.arange(1000), [4], batch_size=10, threads=2))) == 100
        ok &= len(graph.reorder("community")[1]) == 1000
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0 and len(list(epoch)) == 99


def test_a_graph_that_changes_is_an_error_and_no_crash():
    graph, _ = ring()
    indptr, indices = (array.copy() for array in graph.csr)
    mine = girih.from_csr(indptr, indices)
    indices[:] = 1 << 30
    for threads in (0, 2):
        with pytest.raises(RuntimeError, match="change"):
            list(girih.NeighborLoader(mine, np.arange(1000), [4, 4], threads=threads))
    with pytest.raises(RuntimeError, match="change"):
        girih.Sampler(mine, [4, 4]).sample(np.arange(1000))


def test_the_gil_is_free():
    n = 1 << 16
    edges = np.random.default_rng(0).integers(0, n, (2, 2_000_000))
    graph = girih.from_edge_index(edges, n, duplicates="merge")
    sampler, ticks = girih.Sampler(graph, [-1] * 6), []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    sampler.sample(np.arange(n))
    took = time.perf_counter() - start
    done.set()
    thread.join()
    inside = [at for at in ticks if start < at < start + took]
    assert len(inside) > 0.1 * took / 0.0012, (len(inside), took)


# Refusals


@pytest.mark.parametrize(
    "error,match,call",
    [
        (IndexError, "seed 1 is node 1000", lambda g: girih.NeighborLoader(g, [0, 1000], [2])),
        (IndexError, "node -1", lambda g: girih.Sampler(g, [2]).sample([-1])),
        (IndexError, "node 1000", lambda g: girih.from_edge_index([[0, 1000], [1, 1]], 1000)),
        (IndexError, "node -3", lambda g: girih.from_edge_index([[0, -3], [1, 1]])),
        (ValueError, "hop 1", lambda g: girih.Sampler(g, [2, 0])),
        (ValueError, "without hops", lambda g: girih.Sampler(g, [])),
        (TypeError, "float64", lambda g: girih.Sampler(g, [2]).sample(np.ones(3))),
        (ValueError, "mask of 5", lambda g: girih.Sampler(g, [2]).sample(np.ones(5, dtype=bool))),
        (ValueError, "shape", lambda g: girih.Sampler(g, [2]).sample([[1, 2]])),
        (ValueError, "shape", lambda g: girih.from_edge_index(np.zeros((3, 4), dtype=int))),
        (TypeError, "float64", lambda g: girih.from_edge_index(np.zeros((2, 4)))),
        (ValueError, "draws", lambda g: girih.Sampler(g, [2], draws="all")),
        (ValueError, "index_dtype", lambda g: girih.Sampler(g, [2], index_dtype="uint8")),
        (ValueError, "LABOR|labor", lambda g: girih.Sampler(g, [2], draws="labor", replace=True)),
        (ValueError, "batch_size", lambda g: girih.NeighborLoader(g, [1], [2], batch_size=0)),
        (ValueError, "threads", lambda g: girih.NeighborLoader(g, [1], [2], threads=1000)),
        (TypeError, "num_neighbors", lambda g: girih.NeighborLoader(g, [1])),
        (ValueError, "10 rows", lambda g: girih.NeighborLoader(g, [1], [2], features=np.ones((10, 2)))),
        (ValueError, "2 weights", lambda g: girih.Sampler(g, [2], weights=[1.0, 2.0])),
        (ValueError, "weight", lambda g: girih.Sampler(g, [2], weights=np.full(8000, -1.0))),
        (ValueError, "order", lambda g: g.reorder("alphabetical")),
        (ValueError, "rule|duplicates|merge", lambda g: girih.from_edge_index([[0], [1]], duplicates="twice")),
        (ValueError, "indptr", lambda g: girih.from_csr([0, 2, 1, 3], [1, 0, 2])),
        (ValueError, "indptr is empty", lambda g: girih.from_csr([], [])),
        (ValueError, "codec|quux", lambda g: girih.compress(np.ones((4, 4)), "quux")),
        (IndexError, "node 4", lambda g: girih.FeatureStore(np.ones((4, 4))).gather([4])),
        (TypeError, "numbers", lambda g: girih.FeatureStore(np.array([["a"]]))),
        (FileNotFoundError, "nowhere", lambda g: girih.FeatureStore.open("nowhere.codes")),
        (FileNotFoundError, "nowhere", lambda g: girih.Graph.open("nowhere")),
        (ValueError, "parts", lambda g: g.partition(0)),
        (ValueError, "new ids", lambda g: g.permute([1, 2])),
        (TypeError, "seeds", lambda g: girih.Sampler(g, [2]).sample()),
        (ValueError, "threads", lambda g: girih.set_num_threads(100000)),
    ],
)
def test_refusals_name_what_is_wrong(error, match, call):
    with pytest.raises(error, match=match):
        call(ring()[0])


def test_threads():
    before = girih.num_threads()
    girih.set_num_threads(1)
    assert girih.num_threads() == 1 and len(ring()[0].reorder("community")[1]) == 1000
    girih.set_num_threads(0)
    assert girih.num_threads() == before


def test_batches_are_those_of_the_command_line():
    """Digest that `girih sample --fanout 4,3 --batch-size 100 --seed 5` prints of all batches."""
    data = girih.load("synth:planted,nodes=500,degree=6,features=8,classes=3")
    loader = girih.NeighborLoader(
        data.graph, data.split[0], [4, 3], batch_size=100, seed=5, threads=2, expand="per-layer", edge_ids=False
    )
    digests = [batch.digest for batch in loader]
    state = 0xCBF29CE484222325
    for word in [len(digests), *digests]:
        mixed = (state ^ word) * 0x9E3779B97F4A7C15 % 2**64
        state = mixed ^ mixed >> 32
    assert f"{state:016x}" == "1d353c781e515283"


def test_features_of_repeated_seeds_are_those_of_n_id():
    rows = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    seeds = np.array([7, 3, 7, 7, 9])
    for dtype in ("int64", "int32"):
        loader = girih.NeighborLoader(ring()[0], seeds, [4, 2], shuffle=False, features=rows, index_dtype=dtype)
        (batch,) = loader
        assert (batch.x == rows[batch.n_id]).all() and batch.n_id[:5].tolist() == seeds.tolist()


# Pictures


def test_pictures_show_where_edges_lie(tmp_path):
    graph = girih.load("synth:planted,nodes=600,degree=6").graph
    both = girih.spy(graph, graph.reorder("community")[0])
    for picture, width in ((girih.spy(graph), 604), (both, 2 * 604 + 24)):
        assert picture[:8] == b"\x89PNG\r\n\x1a\n" and picture._repr_png_() == picture
        assert int.from_bytes(picture[16:20], "big") == width
    both.save(tmp_path / "both.png")
    assert (tmp_path / "both.png").read_bytes() == both
    with pytest.raises(ValueError, match="at least one"):
        girih.spy()
    with pytest.raises(TypeError):
        girih.spy(np.zeros((3, 3)))


def test_libraries_of_cuda_are_found_in_the_environment(tmp_path, monkeypatch):
    from girih import _libraries

    first, second = tmp_path / "a", tmp_path / "b"
    for folder, names in ((first, ["libcublas.so.13"]), (second, ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcublas.so.13", "libcublas.so.12"])):
        home = folder / "nvidia" / "cu13" / "lib"
        home.mkdir(parents=True)
        for name in names:
            (home / name).write_bytes(b"no library")
    found = _libraries.found([str(tmp_path), str(first), str(second)])
    assert [path.name for path in found] == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13", "libcublas.so.13"]
    assert found[-1].is_relative_to(first)
    assert _libraries.found([]) == []
    # What cannot be loaded is left to the search that follows.
    monkeypatch.setattr(sys, "path", [str(second)])
    monkeypatch.setattr(_libraries.ctypes, "CDLL", lambda name: None if name == "libcuda.so.1" else (_ for _ in ()).throw(OSError(name)))
    _libraries.load.__wrapped__()
