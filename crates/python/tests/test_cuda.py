"""`girih.cuda` and `girih.nn` on a GPU: batches of the CPU, memory and streams, layers against those of the CPU."""

import gc
import os

import numpy as np
import pytest

import girih

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() and "GIRIH_REQUIRE_GPU" not in os.environ:
    pytest.skip("there is no CUDA GPU", allow_module_level=True)

import girih.cuda as cuda  # noqa: E402: needs a GPU
from nn_layers import FEW, LAYERS, WEIGHTED, WIDTH, close, gnn, pair, random_edges  # noqa: E402: skips without PyG

FAN_OUT = [7, 5, 3]


def random_graph(n=5000, n_edges=60_000, seed=1, weights=False, loops=True):
    made = np.random.default_rng(seed)
    edges = np.unique(made.integers(0, n - 7, (2, n_edges)), axis=1)
    if not loops:
        edges = edges[:, edges[0] != edges[1]]
    edges = edges[:, made.permutation(edges.shape[1])]
    values = made.random(edges.shape[1], dtype=np.float32) + 0.1 if weights else None
    return girih.from_edge_index(edges, n, weights=values)


def pairs(graph, seeds, fan_out=FAN_OUT, batch_size=300, features=None, on_gpu=None, **options):
    """Batches of the CPU and of the GPU."""
    here = girih.NeighborLoader(graph, seeds, fan_out, batch_size=batch_size, seed=9, threads=0, features=features, **options)
    there = cuda.NeighborLoader(
        graph if on_gpu is None else on_gpu[0], seeds, fan_out, batch_size=batch_size, seed=9,
        features=features if on_gpu is None else on_gpu[1], **options,
    )  # fmt: skip
    assert len(here) == len(there)
    return zip(here, there, strict=True)


def same(found, expected):
    if expected is None:
        assert found is None
        return
    assert found.is_cuda and str(found.dtype).split(".")[1] == str(expected.dtype)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize("options", [
    {}, {"index_dtype": "int32"}, {"edge_ids": False}, {"replace": True}, {"draws": "layer"}, {"shuffle": False, "drop_last": True},
])  # fmt: skip
def test_batches_are_those_of_the_cpu(options):
    graph = random_graph()
    for here, there in pairs(graph, np.arange(0, 1001), **options):
        same(there.edge_index, here.edge_index)
        same(there.n_id, here.n_id)
        same(there.e_id, here.e_id)
        assert there.num_sampled_nodes == list(here.num_sampled_nodes)
        assert there.num_sampled_edges == list(here.num_sampled_edges)
        assert (there.digest, there.batch_size, there.number) == (here.digest, here.batch_size, here.number)


def test_blocks_of_other_layers_are_those_of_the_cpu():
    for here, there in pairs(random_graph(), np.arange(700), expand="per-layer"):
        assert there.digest == here.digest
        same(there.n_id, here.n_id)
        for mine, theirs in zip(there.blocks(), here.blocks(), strict=True):
            assert (mine.num_src, mine.num_dst, mine.num_edges) == (theirs.num_src, theirs.num_dst, theirs.num_edges)
            np.testing.assert_array_equal(torch.from_dlpack(mine.nodes).cpu(), theirs.n_id)
        with pytest.raises(ValueError, match="expand"):
            there.edge_index


@pytest.mark.parametrize("fan_out", [[-1], [4, -1], [100, 40]])
def test_all_neighbors_and_many(fan_out):
    for here, there in pairs(random_graph(), np.arange(0, 400), fan_out, batch_size=128):
        same(there.edge_index, here.edge_index)
        same(there.n_id, here.n_id)


def test_weighted_draws_are_those_of_the_cpu():
    graph = random_graph(weights=True)
    weights = np.random.default_rng(3).random(graph.num_edges, dtype=np.float32)
    for here, there in pairs(graph, np.arange(600), weights=weights):
        same(there.edge_index, here.edge_index)
        same(there.e_id, here.e_id)


@pytest.mark.parametrize("width", [1, 7, 8, 100, 129])
@pytest.mark.parametrize("placement, cache", [("device", 0.0), ("host", 0.0), ("host", 0.3), ("host", 1.0)])
def test_features_are_those_of_the_cpu(width, placement, cache):
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, width), dtype=np.float32)
    rows = cuda.FeatureStore(x, placement=placement, cache=cache, graph=graph)
    for here, there in pairs(graph, np.arange(0, 2100), features=x, on_gpu=(cuda.Graph(graph), rows)):
        same(there.x, here.x)
    ids = torch.tensor([4999, 0, 0, 17], device="cuda")
    same(rows.gather(ids), x[[4999, 0, 0, 17]])
    assert rows.gather([]).shape == (0, width)
    with pytest.raises(IndexError, match="5000"):
        rows.gather([5000])


@pytest.mark.parametrize("codec", ["topk:8", "topk:16"])
@pytest.mark.parametrize("placement", ["device", "host"])
def test_codes_are_decoded_as_on_the_cpu(codec, placement):
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 64), dtype=np.float32)
    store = girih.compress(x, codec)
    rows = cuda.FeatureStore(store, placement=placement)
    for here, there in pairs(graph, np.arange(900), features=store, on_gpu=(cuda.Graph(graph), rows)):
        np.testing.assert_allclose(there.x.cpu().numpy(), here.x, atol=1e-6)


def sparse_rows(folder, n=5000, width=60):
    """Store of sparse rows, of a file in the form of gnn-benchmark."""
    made = np.random.default_rng(4)
    dense = made.random((n, width)) < 0.1
    indptr = np.concatenate([[0], dense.sum(1).cumsum()])
    attributes = {"data": np.ones(indptr[-1], np.float32), "indices": dense.nonzero()[1], "indptr": indptr, "shape": dense.shape}
    ring = {"data": np.ones(n), "indices": (np.arange(n) + 1) % n, "indptr": np.arange(n + 1), "shape": (n, n)}
    members = {f"attr_{key}": np.asarray(value) for key, value in attributes.items()}
    members |= {f"adj_{key}": np.asarray(value) for key, value in ring.items()}
    np.savez(folder / "sparse.npz", labels=made.integers(0, 3, n), **members)
    return girih.load(folder / "sparse.npz").features


@pytest.mark.parametrize("form", ["int8", "int4", "f16", "bf16", "pca:5", "pq:4", "sparse", "mapped"])
@pytest.mark.parametrize("placement, cache", [("device", 0.0), ("host", 0.0), ("host", 0.3), ("host", 1.0)])
def test_rows_that_the_host_decodes_are_those_of_the_cpu(form, placement, cache, tmp_path):
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 60), dtype=np.float32)
    if form == "sparse":
        store = sparse_rows(tmp_path)
        assert store.codec is None and store.rows is None
    elif form == "mapped":
        girih.compress(x, "int8").save(tmp_path / "x.codes")
        store = girih.FeatureStore.open(tmp_path / "x.codes")
    else:
        store = girih.compress(x, form)
    rows = cuda.FeatureStore(store, placement=placement, cache=cache, graph=graph)
    for here, there in pairs(graph, np.arange(0, 2100), features=store, on_gpu=(cuda.Graph(graph), rows)):
        same(there.x, here.x)
    every = np.random.default_rng(5).permutation(graph.num_nodes)
    same(rows.gather(every), store.gather(every))
    rounded = cuda.FeatureStore(store, placement=placement, cache=cache, dtype="bfloat16").gather(every)
    assert torch.equal(rounded.cpu(), torch.from_numpy(store.gather(every)).bfloat16())


def test_long_rows_are_decoded_on_the_gpu():
    store = girih.compress(np.random.default_rng(2).random((4, 300_000), dtype=np.float32), "int8")
    rows = cuda.FeatureStore(store)
    same(rows.gather([3, 0]), store.gather([3, 0]))


def test_rows_in_bfloat16_are_rounded():
    x = np.random.default_rng(2).standard_normal((100, 16), dtype=np.float32)
    found = cuda.FeatureStore(x, dtype="bfloat16").gather(np.arange(100))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found.cpu(), torch.from_numpy(x).bfloat16())


def test_a_graph_on_the_host_is_sampled_over_the_bus():
    graph = random_graph()
    on_host = cuda.Graph(graph, placement="host")
    for here, there in pairs(graph, np.arange(500), on_gpu=(on_host, None)):
        same(there.edge_index, here.edge_index)


def test_epochs_go_on_where_they_stopped():
    graph = random_graph()
    loader = cuda.NeighborLoader(graph, np.arange(1000), FAN_OUT, batch_size=100)
    whole = [batch.digest for batch in loader.epoch(3)]
    assert [batch.digest for batch in loader.epoch(3, first=4)] == whole[4:]
    assert [batch.digest for batch in loader] != [batch.digest for batch in loader]
    assert len({batch.digest for batch in loader.epoch(3)} & set(whole)) == 10
    with pytest.raises(IndexError, match="batch 11"):
        loader.epoch(3, first=11)


def test_epochs_of_one_loader_run_side_by_side():
    loader = cuda.NeighborLoader(random_graph(), np.arange(1000), FAN_OUT, batch_size=100)
    both = zip(loader.epoch(0), loader.epoch(0), strict=True)
    assert all(one.digest == other.digest for one, other in both)


def test_labels_are_those_of_the_seeds():
    graph = random_graph()
    labels = torch.randint(10, (graph.num_nodes, 2), generator=torch.Generator().manual_seed(1))
    for drop_last in (False, True):
        loader = cuda.NeighborLoader(graph, np.arange(1000), [3], batch_size=300, labels=labels, drop_last=drop_last)
        for epoch in (loader, loader.epoch(5, first=2)):
            for batch in epoch:
                assert torch.equal(batch.y, labels.cuda()[batch.n_id[: batch.batch_size]])
    with pytest.raises(ValueError, match="labels of shape"):
        cuda.NeighborLoader(graph, np.arange(10), [3], labels=labels[1:])


def test_operands_are_made_with_batches_as_layers_ask():
    graph = random_graph(n=900, n_edges=9000)
    x = torch.randn(900, WIDTH, device="cuda")
    for make in (lambda: gnn.SAGEConv(WIDTH, 8), lambda: gnn.GCNConv(WIDTH, 8, normalize="sampled")):
        layer = make().cuda()
        loader = cuda.NeighborLoader(graph, np.arange(800), [4], batch_size=100)
        for batch in loader:
            own = x[batch.n_id].requires_grad_()
            out = layer(own, batch.blocks()[0])
            out.square().sum().backward()
            alone = x[batch.n_id].requires_grad_()
            expected = layer(alone, batch.edge_index, size=(len(alone), batch.batch_size)) if isinstance(layer, gnn.SAGEConv) else None
            if expected is not None:
                expected.square().sum().backward()
                close(out, expected, 1e-5)
                close(own.grad, alone.grad, 1e-5)


def test_tensors_outlive_batch_loader_and_graph():
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 32), dtype=np.float32)
    expected = next(iter(girih.NeighborLoader(graph, np.arange(300), FAN_OUT, batch_size=300, features=x, shuffle=False)))
    batch = next(iter(cuda.NeighborLoader(graph, np.arange(300), FAN_OUT, batch_size=300, features=x, shuffle=False)))
    kept = batch.edge_index, batch.n_id, batch.x
    expected = expected.edge_index.copy(), expected.n_id.copy(), expected.x.copy()
    del batch
    gc.collect()
    for other in cuda.NeighborLoader(graph, np.arange(1000, 4000), FAN_OUT, batch_size=300, features=x):
        other.edge_index, other.x
    for found, wanted in zip(kept, expected):
        same(found, wanted)


def test_threads_without_cuda_may_drop_what_is_on_the_gpu():
    import threading

    graph = random_graph()
    x = np.ones((graph.num_nodes, 8), np.float32)
    held = []
    for batch in cuda.NeighborLoader(graph, np.arange(900), FAN_OUT, batch_size=300, features=x):
        layer = gnn.SAGEConv(8, 4).cuda()
        held.append((batch, batch.x, batch.edge_index, layer(batch.x, batch.blocks()[0])))
    del batch, layer
    held.append((cuda.Graph(graph), cuda.FeatureStore(x)))
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    batch = next(iter(cuda.NeighborLoader(graph, np.arange(900), FAN_OUT, features=x)))
    assert torch.equal(batch.x, torch.ones_like(batch.x))


def test_memory_goes_back():
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 32), dtype=np.float32)
    loader = cuda.NeighborLoader(graph, np.arange(4000), FAN_OUT, batch_size=200, features=x)

    def used():
        gc.collect()
        torch.cuda.synchronize()
        return cuda.memory()[0]

    for batch in loader:
        batch.edge_index, batch.x
    del batch
    before = used()
    for _ in range(20):
        for batch in loader:
            batch.edge_index, batch.n_id, batch.x, batch.blocks()
    del batch
    assert used() == before
    del loader
    assert used() < before
    cuda.empty_cache()
    in_use, kept = cuda.memory()
    assert in_use <= kept <= in_use + (64 << 20)


def test_other_streams_find_their_batches():
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 64), dtype=np.float32)
    expected = [batch.x.sum() for batch in girih.NeighborLoader(graph, np.arange(2000), FAN_OUT, batch_size=200, features=x)]
    loader = cuda.NeighborLoader(graph, np.arange(2000), FAN_OUT, batch_size=200, features=x)
    other = torch.cuda.Stream()
    found = []
    with torch.cuda.stream(other):
        for batch in loader:
            found.append(batch.x.double().sum())
            torch.cuda._sleep(2_000_000)
    other.synchronize()
    np.testing.assert_allclose([float(each) for each in found], expected, rtol=1e-4)


def test_batches_are_ready_while_the_gpu_is_late():
    """Neither side of a busy stream sees memory of the other's."""
    graph = random_graph()
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 64), dtype=np.float32)
    rows = cuda.FeatureStore(x, placement="host", cache=0.2, graph=graph)
    there = cuda.NeighborLoader(graph, np.arange(3000), FAN_OUT, batch_size=100, features=rows)
    here = girih.NeighborLoader(graph, np.arange(3000), FAN_OUT, batch_size=100, features=x)
    sums = []
    for batch in there:
        torch.cuda._sleep(3_000_000)
        sums.append((batch.x.double().sum(), batch.edge_index.sum(), batch.n_id.sum()))
        del batch
    for found, expected in zip(sums, here, strict=True):
        np.testing.assert_allclose(float(found[0]), expected.x.astype(np.float64).sum(), rtol=1e-9, atol=1e-6)
        assert (int(found[1]), int(found[2])) == (expected.edge_index.sum(), expected.n_id.sum())


def test_torch_keeps_its_current_device():
    before = torch.cuda.current_device()
    for batch in cuda.NeighborLoader(random_graph(), np.arange(500), FAN_OUT, batch_size=100):
        batch.edge_index
        assert torch.cuda.current_device() == before
    last = torch.cuda.device_count() - 1
    if last == 0:
        print("skipped: there is one GPU")
        return
    batch = next(iter(cuda.NeighborLoader(random_graph(), np.arange(500), FAN_OUT, device=f"cuda:{last}")))
    assert batch.edge_index.device.index == last and torch.cuda.current_device() == before
    assert torch.zeros(1, device="cuda").device.index == before


def test_wrong_arguments_are_told():
    graph = random_graph()
    seeds = np.arange(100)
    with pytest.raises(ValueError, match="cpu"):
        cuda.Graph(graph, "cpu")
    with pytest.raises(ValueError, match="PyTorch sees"):
        cuda.Graph(graph, "cuda:63")
    with pytest.raises(ValueError, match="placement"):
        cuda.Graph(graph, placement="disk")
    with pytest.raises(ValueError, match="LABOR"):
        cuda.NeighborLoader(graph, seeds, FAN_OUT, draws="labor")
    with pytest.raises(IndexError, match="5000"):
        cuda.NeighborLoader(graph, [5000], FAN_OUT)
    with pytest.raises(ValueError, match="batch_size"):
        cuda.NeighborLoader(graph, seeds, FAN_OUT, batch_size=0)
    with pytest.raises(ValueError, match="twice"):
        next(iter(cuda.NeighborLoader(graph, [3, 3], FAN_OUT)))
    with pytest.raises(ValueError, match="rows for a graph"):
        cuda.NeighborLoader(graph, seeds, FAN_OUT, features=np.zeros((7, 3), np.float32))
    with pytest.raises(ValueError, match="another graph"):
        cuda.NeighborLoader(graph, seeds, girih.Sampler(random_graph(n=400, n_edges=900), FAN_OUT))
    with pytest.raises(ValueError, match="CPU"):
        cuda.NeighborLoader(graph, seeds, girih.Sampler.layerwise(graph, [50, 50]))
    with pytest.raises(NotImplementedError, match="sharded"):
        cuda.FeatureStore(np.zeros((5000, 3), np.float32), placement="sharded")
    with pytest.raises(ValueError, match="cache"):
        cuda.FeatureStore(np.zeros((5000, 3), np.float32), placement="host", cache=1.5)
    with pytest.raises(ValueError, match="place all rows on the device"):
        cuda.FeatureStore(girih.compress(np.zeros((3, 300_000), np.float32), "int8"), placement="host")
    with pytest.raises(ValueError, match="dtype"):
        cuda.FeatureStore(np.zeros((5000, 3), np.float32), dtype="float64")
    with pytest.raises(ValueError, match="in use already"):
        cuda.set_memory_limit(1 << 30)
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(ValueError, match="stream"):
        rows = cuda.FeatureStore(np.zeros((5000, 3), np.float32))
        with torch.cuda.stream(torch.cuda.default_stream()):
            on_gpu = cuda.Graph(graph)
        cuda.NeighborLoader(on_gpu, seeds, FAN_OUT, features=rows)


# ---- girih.nn


def compare(name, here, there, x, bound=2e-5, edge_weight=None):
    """Results and gradients of a layer on the CPU and on the GPU."""
    ours, _ = pair(name)
    results = []
    for device, graph in (("cpu", here), ("cuda", there)):
        layer = pair(name)[0].to(device)
        layer.load_state_dict(ours.state_dict())
        own = x.detach().to(device).requires_grad_()
        weights = None if edge_weight is None else edge_weight.detach().clone().to(device).requires_grad_()
        out = layer(own, graph) if weights is None else layer(own, graph, weights)
        direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(device)
        (out * direction).sum().backward()
        grads = [own.grad, *([] if weights is None else [weights.grad]), *(p.grad for p in layer.parameters())]
        results.append([out.detach().cpu(), *(grad.cpu() for grad in grads)])
    close(results[1][0], results[0][0], bound)
    for found, expected in zip(results[1][1:], results[0][1:], strict=True):
        close(found, expected, bound, floor=1.0)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_on_graphs_are_those_of_the_cpu(name):
    edges = random_edges(1)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH, generator=torch.Generator().manual_seed(2))
    compare(name, graph, graph, x)
    compare(name, edges, edges.cuda(), x)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_edges_have_gradients_on_gpus(name):
    edges = random_edges(4)
    graph = girih.from_edge_index(edges.numpy(), 150)
    weights = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(5)) + 0.1
    compare(name, graph, graph, torch.randn(150, WIDTH), edge_weight=weights)


@pytest.mark.parametrize("name", [*FEW, "gcn without loops", "sage sum", "gat without loops"])
@pytest.mark.parametrize("options", [{}, {"expand": "per-layer"}, {"replace": True}, {"loops": True}])
def test_layers_on_blocks_are_those_of_the_cpu(name, options):
    if name == "sgc":
        pytest.skip("several steps go over one graph")
    options = dict(options)
    graph = random_graph(n=900, n_edges=9000, loops=options.pop("loops", False))
    x = torch.randn(900, WIDTH, generator=torch.Generator().manual_seed(3))
    for here, there in pairs(graph, np.arange(200), [6, 4], batch_size=90, **options):
        for mine, theirs in zip(here.blocks(), there.blocks(), strict=True):
            rows = torch.from_dlpack(theirs.nodes).long().cpu()
            if name.startswith("gat") and options.get("replace"):
                with pytest.raises(ValueError, match="repeatedly"):
                    pair(name)[0].cuda()(x[rows].cuda(), theirs)
                continue
            compare(name, mine, theirs, x[rows])


@pytest.mark.parametrize("loops", [False, True])
def test_weights_of_edges_of_blocks_are_in_the_order_of_e_id(loops):
    graph = random_graph(n=900, n_edges=9000, loops=loops)
    x = torch.randn(900, WIDTH)
    for here, there in pairs(graph, np.arange(200), [6, 4], batch_size=200):
        for mine, theirs in zip(here.blocks(), there.blocks(), strict=True):
            rows = torch.from_dlpack(theirs.nodes).long().cpu()
            weights = torch.rand(theirs.num_edges) + 0.1
            layers = [gnn.GCNConv(WIDTH, 8, normalize="sampled") for _ in range(2)]
            layers[1].load_state_dict(layers[0].state_dict())
            expected = layers[0](x[rows], mine, weights)
            close(layers[1].cuda()(x[rows].cuda(), theirs, weights.cuda()).cpu(), expected, 2e-5)


@pytest.mark.parametrize("name", ["gat heads", "gat without loops", "gatv2 heads"])
def test_weights_of_attention_are_those_of_the_cpu(name):
    graph = random_graph(n=900, n_edges=9000, loops=False)
    x = torch.randn(900, WIDTH)
    cases = [(graph, graph, x)]
    for here, there in pairs(graph, np.arange(200), [6, 4], batch_size=200):
        rows = torch.from_dlpack(there.blocks()[0].nodes).long().cpu()
        cases.append((here.blocks()[0], there.blocks()[0], x[rows]))
    for mine, theirs, own in cases:
        layer = pair(name)[0]
        _, (edges, expected) = layer(own, mine, return_attention_weights=True)
        _, (found, weights) = layer.cuda()(own.cuda(), theirs, return_attention_weights=True)
        assert torch.equal(found.cpu(), edges)
        close(weights.cpu(), expected, 1e-4)  # The exponential magnifies the rounding of scores.


@pytest.mark.parametrize("name", FEW)
def test_bfloat16_is_computed_on_gpus(name):
    edges = random_edges(1)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH, generator=torch.Generator().manual_seed(2))
    layer = pair(name)[0].cuda()
    expected = layer(x.cuda(), graph)
    with torch.autocast("cuda", torch.bfloat16):
        found = layer(x.cuda().requires_grad_(), graph)
        found.float().sum().backward()
    close(found.float(), expected, 0.05)
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", FEW)
def test_layers_compile_on_gpus(name):
    if torch.__version__ < "2.4":
        pytest.skip("needs torch 2.4")
    torch._dynamo.reset()
    layer = pair(name)[0].cuda()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed, n in ((1, 150), (2, 170), (3, 190)):
        edges = random_edges(seed, n)
        graph = gnn.Adjacency(girih.from_edge_index(edges.numpy(), n))
        x = torch.randn(n, WIDTH, device="cuda")
        close(compiled(x, graph), layer(x, graph), 2e-5)


def test_tensors_in_any_layout_are_taken():
    edges = random_edges(1)
    graph = gnn.Adjacency(girih.from_edge_index(edges.numpy(), 150))
    base = torch.randn(160, 200, device="cuda")
    wanted = None
    for columns in (1, 5, 8, 47, 64):
        for x in (base[:150, :columns], base[3:153, 1 : columns + 1], base.t()[:150, :columns], base[:150, :columns].contiguous()):
            found = torch.ops.girih.spmm(x, None, graph.handle, graph.rows, graph.columns, "sum", False)
            wanted = torch.zeros(150, columns).index_add_(0, edges[1], x.cpu()[edges[0]])
            close(found.cpu(), wanted, 1e-5)


@pytest.mark.parametrize("columns", [1, 5, 8, 47, 64, 100])
def test_layers_take_rows_in_any_layout(columns):
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    base = torch.randn(160, 208, device="cuda")
    padded = torch.empty(150, -(-columns // 8) * 8, device="cuda").copy_(base[:150, : -(-columns // 8) * 8])
    for make in (lambda: gnn.SAGEConv(columns, 47), lambda: gnn.GCNConv(columns, 3)):
        layer = make().cuda()
        for x in (base[:150, :columns], base[3:153, 1 : columns + 1], base.t()[:150, :columns], padded[:, :columns]):
            results = []
            for own in (x, x.contiguous()):
                own = own.detach().requires_grad_()
                layer.zero_grad()
                out = layer(own, graph)
                out.square().sum().backward()
                results.append([out.detach(), own.grad, *(parameter.grad for parameter in layer.parameters())])
            for found, wanted in zip(*results, strict=True):
                close(found, wanted, 1e-5)


MODELS = {
    "gcn": lambda: gnn.GCN(WIDTH, 32, 2, 5, normalize="sampled"),
    "gcn cached": lambda: gnn.GCN(WIDTH, 32, 2, 5, cached=True),
    "sage": lambda: gnn.GraphSAGE(WIDTH, 32, 2, 5),
    "sage narrow": lambda: gnn.GraphSAGE(WIDTH, 5, 2, 47),
    "sage with a map": lambda: gnn.GraphSAGE(WIDTH, 32, 2, 5, jk="last"),
    "sage with dropout": lambda: gnn.GraphSAGE(WIDTH, 64, 2, 5, dropout=0.5),
    "gat": lambda: gnn.GAT(WIDTH, 32, 2, 5, heads=4),
}


def learned(make, device, graph, x):
    """Result and gradients of a model, of the parameters and the dropout of a seed."""
    torch.manual_seed(3)
    model = make().to(device)
    own = x.detach().to(device, copy=True).requires_grad_()
    out = model(own, graph)
    out.float().square().sum().backward()
    return [each.float().cpu() for each in (out.detach(), own.grad, *(parameter.grad for parameter in model.parameters()))]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_those_of_the_cpu(name):
    graph = random_graph(n=900, n_edges=9000)
    x = torch.randn(900, WIDTH, generator=torch.Generator().manual_seed(3))
    cases = [(graph, graph, x)]
    if "cached" not in name:
        for here, there in pairs(graph, np.arange(200), [6, 4], batch_size=90):
            rows = torch.from_dlpack(there.blocks()[0].nodes).long().cpu()
            cases.append((here.blocks(), there.blocks(), x[rows]))
    for here, there, own in cases:
        expected = learned(MODELS[name], "cpu", here, own)
        for found, wanted in zip(learned(MODELS[name], "cuda", there, own), expected, strict=True):
            close(found, wanted, 5e-5, floor=1.0)
        with torch.autocast("cuda", torch.bfloat16):
            rounded = learned(MODELS[name], "cuda", there, own)
        close(rounded[0], expected[0], 0.1)
        assert all(torch.isfinite(each).all() for each in rounded)


def test_memory_of_passes_goes_back():
    graph = random_graph()
    rows = cuda.FeatureStore(np.random.default_rng(2).standard_normal((graph.num_nodes, WIDTH), dtype=np.float32))
    loader = cuda.NeighborLoader(graph, np.arange(4000), [6, 4], batch_size=200, features=rows)
    model = gnn.GraphSAGE(WIDTH, 64, 2, 5).cuda()

    def used():
        for batch in loader:
            model(batch.x, batch.blocks()).sum().backward()
        del batch
        gc.collect()
        torch.cuda.synchronize()
        return cuda.memory()[0]

    first = used()
    assert [used() for _ in range(5)] == [first] * 5


def test_operands_on_two_devices_are_refused():
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    x = torch.randn(150, WIDTH)
    with pytest.raises((ValueError, RuntimeError)):
        gnn.GCNConv(WIDTH, 8).cuda()(x, graph)
    block = next(iter(cuda.NeighborLoader(graph, np.arange(20), [3]))).blocks()[0]
    with pytest.raises(ValueError, match="GPU"):
        gnn.SAGEConv(WIDTH, 8)(x[: block.num_src], block)


def test_layers_follow_the_current_stream():
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    layer = gnn.GCNConv(WIDTH, 40).cuda()
    x = torch.randn(150, WIDTH, device="cuda")
    expected = layer(x, graph)
    torch.cuda.synchronize()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        late = torch.empty_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        found = layer(late, graph)
    other.synchronize()
    close(found, expected, 1e-6)


# ---- girih.pyg


def data_of(n=3000, n_edges=30_000):
    pyg = pytest.importorskip("torch_geometric.data")
    edges = random_edges(1, n, n_edges)
    made = pyg.Data(x=torch.randn(n, 20), edge_index=edges, y=torch.randint(7, (n,)))
    made.edge_attr = torch.randn(edges.shape[1], 3)
    made.train_mask = torch.rand(n) < 0.4
    made.name = "random"
    return made


def test_pygs_batches_are_those_of_the_cpu():
    import girih.pyg

    data = data_of()
    for options in ({}, {"shuffle": True}, {"placement": "host", "cache": 0.1}):
        shared = {key: value for key, value in options.items() if key == "shuffle"}
        here = girih.pyg.NeighborLoader(data, FAN_OUT, data.train_mask, batch_size=128, **shared)
        there = girih.pyg.NeighborLoader(data, FAN_OUT, data.train_mask, batch_size=128, device="cuda", **options)
        for mine, theirs in zip(here, there, strict=True):
            assert sorted(mine.keys()) == sorted(theirs.keys())
            assert theirs.name == "random" and theirs.batch_size == mine.batch_size
            assert theirs.num_nodes == mine.num_nodes
            for key, value in mine:
                if isinstance(value, torch.Tensor):
                    assert theirs[key].is_cuda, key
                    assert torch.equal(theirs[key].cpu(), value), key


def test_pygs_arguments_of_the_cpu_are_refused():
    import girih.pyg

    data = data_of()
    with pytest.raises(NotImplementedError, match="directional"):
        girih.pyg.NeighborLoader(data, FAN_OUT, subgraph_type="induced", device="cuda")
    with pytest.raises(ValueError, match="device"):
        girih.pyg.NeighborLoader(data, FAN_OUT, placement="host")


def same_data(mine, theirs):
    """A batch of PyG on the CPU, and the same on the GPU."""
    assert sorted(mine.keys()) == sorted(theirs.keys())
    for key, value in mine:
        if isinstance(value, torch.Tensor):
            assert theirs[key].is_cuda, key
            assert torch.equal(theirs[key].cpu(), value) and theirs[key].dtype == value.dtype, key
        else:
            assert theirs[key] == value, key


def of_seed(loader, n=None, late=False):
    """Batches of an epoch, the first `n` of them, of one seed of torch's generator; `late`: on a GPU that is busy."""
    torch.manual_seed(3)
    found = []
    for _, batch in zip(range(len(loader) if n is None else n), loader):
        if late:
            torch.cuda._sleep(1_000_000)
        found.append(batch)
    return found


@pytest.mark.parametrize("options", [
    {}, {"shuffle": True, "drop_last": True}, {"neg_sampling": "binary"}, {"neg_sampling": "binary", "edge_label": True},
    {"neg_sampling": {"mode": "binary", "amount": 0.5}, "shuffle": True},
    {"neg_sampling": {"mode": "triplet", "amount": 1}}, {"neg_sampling": {"mode": "triplet", "amount": 3}, "shuffle": True},
    {"neg_sampling": "binary", "replace": True}, {"neg_sampling": "binary", "weight_attr": "edge_weight"},
])  # fmt: skip
@pytest.mark.parametrize("placed", [{}, {"placement": "host", "cache": 0.1}])
def test_batches_of_links_are_those_of_the_cpu(options, placed):
    import girih.pyg

    data, options = data_of(), dict(options)
    data.edge_weight = torch.rand(data.num_edges) + 0.1
    if options.get("edge_label"):
        options["edge_label"] = torch.randint(3, (data.num_edges,))
    # Fewer batches than are requested ahead, as many, and more.
    for links in (0, 400, 1600, 2100):
        chosen = {key: value[:links] if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        make = lambda **more: girih.pyg.LinkNeighborLoader(  # noqa: E731
            data, [5, 3], data.edge_index[:, :links], batch_size=400, pin_memory="device" in more, **chosen, **more
        )
        if links == 0 and ("edge_label" in chosen or "shuffle" in chosen):
            continue  # PyG takes no empty lists of these.
        here, there = make(), make(device="cuda", **placed)
        assert len(here) == len(there) == len(of_seed(there))
        for mine, theirs in zip(of_seed(here), of_seed(there), strict=True):
            same_data(mine, theirs)


def test_links_share_graph_and_rows_on_the_gpu():
    import girih.pyg

    data = data_of()
    graph = girih.pyg.graph_of(data)
    on_gpu = cuda.Graph(graph)
    store = girih.compress(data.x.numpy(), "int8")
    rows = cuda.FeatureStore(store, placement="host", cache=0.3, graph=graph)
    for batch_size in (100, 5000):
        options = {"graph": graph, "batch_size": batch_size, "neg_sampling": "binary", "shuffle": True}
        here = girih.pyg.LinkNeighborLoader(data, FAN_OUT, **options)
        there = girih.pyg.LinkNeighborLoader(data, FAN_OUT, device=on_gpu, x=rows, **options)
        # Another epoch is under way.
        other = iter(there)
        next(other)
        n = min(len(here), 30)
        for mine, theirs in zip(of_seed(here, n), of_seed(there, n, late=True), strict=True):
            mine.x = torch.from_numpy(store.gather(mine.n_id.numpy()))
            same_data(mine, theirs)
        del other


def test_links_are_transformed_on_the_gpu():
    import girih.pyg

    def without_last(out):
        out.node, out.row, out.col, out.edge = out.node[:-1], out.row[:0], out.col[:0], out.edge[:0]
        return out

    def mark(batch):
        batch.mark = True
        return batch

    data = data_of()
    make = lambda device: girih.pyg.LinkNeighborLoader(  # noqa: E731
        data, [3], batch_size=5000, transform=mark, transform_sampler_output=without_last, device=device
    )
    for mine, theirs in zip(of_seed(make(None)), of_seed(make("cuda")), strict=True):
        assert theirs.mark
        same_data(mine, theirs)


def test_epochs_of_links_end_anywhere():
    import girih.pyg

    data = data_of()
    loader = girih.pyg.LinkNeighborLoader(data, [5, 3], batch_size=300, neg_sampling="binary", device="cuda")

    def used():
        gc.collect()
        torch.cuda.synchronize()
        return cuda.memory()[0]

    def stopped(n):
        for _, batch in zip(range(n), loader):
            batch.edge_index, batch.x

    stopped(20)
    before = used()
    for n in (0, 1, 3, 9, 20, 1000):
        stopped(n)
    assert used() == before
    del loader
    assert used() < before


def test_batches_are_requested_one_by_one():
    graph = random_graph()
    on_gpu, sampler = cuda.Graph(graph), girih.Sampler(graph, FAN_OUT)
    loader = girih._girih.CudaLoader(on_gpu._native, sampler, None, (50, False, False, 0), None)
    assert len(loader) == 0 and list(loader) == []
    requests = loader.requests()
    seeds = [np.arange(at, at + size) for at, size in ((0, 50), (7, 1), (100, 49), (4000, 20), (3, 50))]
    for number, each in enumerate(seeds):
        requests.request(each, 100 + number)
    requests.finish()
    with pytest.raises(ValueError, match="requested already"):
        requests.request([1], 0)
    found = list(requests)
    assert [batch.digest for batch in found] == [sampler.sample(s, seed=100 + n).digest for n, s in enumerate(seeds)]
    assert [(batch.number, batch.batch_size) for batch in found] == [(n, len(s)) for n, s in enumerate(seeds)]
    for wrong, error, message in (([5000], IndexError, "5000"), ([3, 3], ValueError, "twice"), (np.arange(51), ValueError, "51")):
        requests = loader.requests()
        with pytest.raises(error, match=message):
            requests.request(wrong, 0)
            requests.finish()
            next(requests)
    requests = loader.requests()
    requests.close()
    with pytest.raises(ValueError, match="closed"):
        next(requests)


def test_what_links_are_not_on_a_gpu_is_told():
    import girih.pyg

    data = data_of()
    for options, name in (
        ({"disjoint": True}, "disjoint"), ({"subgraph_type": "induced"}, "directional"), ({"num_workers": 2}, "num_workers"),
        ({"batch_sampler": [[0, 1]]}, "batch_sampler"), ({"batch_size": None}, "batch_sampler"),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=name):
            girih.pyg.LinkNeighborLoader(data, FAN_OUT, device="cuda", **options)
    with pytest.raises(NotImplementedError, match="epochs"):
        girih.pyg.LinkNeighborLoader(data, FAN_OUT, device="cuda")([0])
    with pytest.raises(ValueError, match="device"):
        girih.pyg.LinkNeighborLoader(data, FAN_OUT, cache=0.1)
    with pytest.raises(ValueError, match="x is for a GPU"):
        girih.pyg.LinkNeighborLoader(data, FAN_OUT, x=data.x)
    with pytest.raises(IndexError, match="3000"):
        next(iter(girih.pyg.LinkNeighborLoader(data, FAN_OUT, torch.tensor([[3000], [0]]), device="cuda")))


def test_a_model_learns_on_the_gpu():
    """The same loss, step by step, as on the CPU."""
    import girih.pyg

    data = data_of(600, 6000)
    losses = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        layers = torch.nn.ModuleList([gnn.SAGEConv(20, 16), gnn.SAGEConv(16, 7)]).to(device)
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
        loader = girih.pyg.NeighborLoader(data, [5, 5], batch_size=100, device=device if device == "cuda" else None)
        own = []
        for batch in loader:
            x = layers[0](batch.x, batch.edge_index).relu()
            out = layers[1](x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own.append(loss.item())
        losses.append(own)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
