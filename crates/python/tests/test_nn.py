"""`girih.nn`: layers against PyG's, on whole graphs and on blocks; compiled, under autocast, and with wrong arguments."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import girih
from nn_layers import FEW, LAYERS, WEIGHTED, WIDTH, agree, blocks_of, close, edges_of, gnn, pair, pyg, random_edges, torch

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_pyg(name):
    edges = random_edges(1)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH, generator=torch.Generator().manual_seed(2))
    for given in (graph, edges, gnn.Adjacency(graph)):
        ours, theirs = pair(name)
        agree(ours, theirs, (given,), (edges,), [x])


@pytest.mark.parametrize("name", LAYERS)
def test_an_undirected_graph_is_its_own_transpose(name):
    edges = random_edges(3)
    edges = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    graph = girih.from_edge_index(edges.numpy(), 150)
    ours, theirs = pair(name)
    agree(ours, theirs, (graph,), (edges,), [torch.randn(150, WIDTH)])


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("as_graph", [True, False])
def test_weights_of_edges_have_gradients(name, as_graph):
    edges = random_edges(4)
    weights = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(5)) + 0.1
    given = girih.from_edge_index(edges.numpy(), 150) if as_graph else edges
    ours, theirs = pair(name)
    mine, peer = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    agree(ours, theirs, (given, mine), (edges, peer), [torch.randn(150, WIDTH)])
    close(mine.grad, peer.grad)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_a_graph_count_where_layers_take_weights(name):
    edges = random_edges(6)
    weights = torch.rand(edges.shape[1]) + 0.1
    graph = girih.from_edge_index(edges.numpy(), 150, weights=weights.numpy())
    ours, theirs = pair(name)
    agree(ours, theirs, (graph,), (edges, weights), [torch.randn(150, WIDTH)])


@pytest.mark.parametrize("name", ["sage", "sage sum", "gin", "gat heads"])
def test_other_layers_ignore_weights_of_a_graph(name):
    edges = random_edges(6)
    graph = girih.from_edge_index(edges.numpy(), 150, weights=np.full(edges.shape[1], 3, np.float32))
    ours, theirs = pair(name)
    agree(ours, theirs, (graph,), (edges,), [torch.randn(150, WIDTH)])


@pytest.mark.parametrize("name", ["gcn", "gcn without loops", "sage", "sage sum", "gin", "sgc", "appnp"])
def test_parallel_edges_count(name):
    edges = random_edges(7)
    edges = torch.cat([edges, edges[:, ::3]], dim=1)
    ours, theirs = pair(name)
    agree(ours, theirs, (edges,), (edges,), [torch.randn(150, WIDTH)])


def test_attention_and_weights_refuse_parallel_edges():
    edges = torch.tensor([[0, 0, 1], [1, 1, 0]])
    with pytest.raises(ValueError, match="attention needs each of them once"):
        gnn.GATConv(WIDTH, 4)(torch.randn(2, WIDTH), edges)
    with pytest.raises(ValueError, match="edge_weight needs each of them once"):
        gnn.GCNConv(WIDTH, 4)(torch.randn(2, WIDTH), edges, torch.ones(3))


@pytest.mark.parametrize("name", ["sage", "sage wide", "gat heads", "gat residual", "gatv2 heads", "gin"])
@pytest.mark.parametrize("sizes", [(150, 40), (40, 150)])
def test_bipartite_edges(name, sizes):
    made = torch.Generator().manual_seed(8)
    edges = torch.stack([torch.randint(size, (700,), generator=made) for size in sizes])
    edges = torch.unique(edges, dim=1)
    ours, theirs = pair(name)
    agree(ours, theirs, (edges,), (edges,), [torch.randn(size, WIDTH) for size in sizes])


def test_bipartite_widths_and_missing_destinations():
    edges = torch.unique(torch.randint(30, (2, 300)), dim=1)
    for make in (lambda nn: nn.SAGEConv((12, 7), 5), lambda nn: nn.GATConv((12, 7), 5, heads=2), lambda nn: nn.GATv2Conv((12, 7), 5, heads=2)):
        ours, theirs = make(gnn), make(pyg)
        ours.load_state_dict(theirs.state_dict())
        agree(ours, theirs, (edges,), (edges,), [torch.randn(40, 12), torch.randn(30, 7)])
    ours, theirs = gnn.SAGEConv(12, 5), pyg.SAGEConv(12, 5)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(40, 12)
    close(ours((x, None), edges, size=(40, 30)), theirs((x, None), edges, size=(40, 30)))
    with pytest.raises(ValueError, match="size is missing"):
        ours((x, None), edges)


@pytest.mark.parametrize("name", [name for name in LAYERS if "sgc" not in name and "appnp" not in name])
def test_blocks_are_bipartite_graphs(name):
    (block, _), x = blocks_of(3)
    edges, n = edges_of(block), block.num_dst
    ours, theirs = pair(name)
    if name.startswith(("gcn", "lightgcn")):
        ours.normalize = ours.normalize and "sampled"
        agree(ours, theirs, (block,), (edges,), [x], rows=n)
    else:
        agree(ours, theirs, (block,), (edges,), [x], rows=n)


def test_weights_of_a_block_follow_its_edges():
    (block, _), x = blocks_of(4)
    edges, weights = edges_of(block), torch.rand(block.num_edges) + 0.1
    ours, theirs = pair("gcn")
    ours.normalize = "sampled"
    mine, peer = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    agree(ours, theirs, (block, mine), (edges, peer), [x], rows=block.num_dst)
    close(mine.grad, peer.grad)
    ours.normalize = True
    with pytest.raises(NotImplementedError, match="edge_weight"):
        ours(x, block, weights)


@pytest.mark.parametrize("add_self_loops", [True, False])
def test_rows_of_blocks_estimate_those_of_the_graph(add_self_loops):
    edges = random_edges(12, 60, 900)
    graph = girih.from_edge_index(edges.numpy(), 60)
    layer = gnn.GCNConv(WIDTH, 5, add_self_loops=add_self_loops)
    x = torch.randn(60, WIDTH)
    seeds, exact = np.arange(25), None
    with torch.no_grad():
        exact = layer(x, graph)[seeds]
        (block,) = girih.Sampler(graph, [-1]).sample(seeds).blocks()
        close(layer(x[torch.from_numpy(block.n_id)], block), exact)
        sampler, total, n = girih.Sampler(graph, [4]), 0.0, 3000
        for seed in range(n):
            (block,) = sampler.sample(seeds, seed=seed).blocks()
            total = total + layer(x[torch.from_numpy(block.n_id)], block)
    assert ((total / n) - exact).abs().max() < 0.05 * exact.abs().max()


def test_draws_with_replacement_count_each_time():
    (block, _), x = blocks_of(5, replace=True)
    edges = edges_of(block)
    assert torch.unique(edges, dim=1).shape[1] < edges.shape[1]
    for name in ("sage", "gin"):
        ours, theirs = pair(name)
        agree(ours, theirs, (block,), (edges,), [x], rows=block.num_dst)


@pytest.mark.parametrize("data", ["cora", "tolokers"])
@pytest.mark.parametrize("name", FEW)
def test_layers_on_data(data, name):
    folder = os.environ.get("GIRIH_DATA")
    if folder is None or not (Path(folder) / data).exists():
        pytest.skip("GIRIH_DATA names no folder with this data")
    graph = girih.load(str(Path(folder) / data)).graph
    edges = torch.from_numpy(graph.edge_index())
    ours, theirs = pair(name)
    x = torch.randn(graph.num_nodes, WIDTH, generator=torch.Generator().manual_seed(1))
    agree(ours, theirs, (graph,), (edges,), [x])


def test_lightgcn_is_that_of_pyg():
    edges = random_edges(13)
    graph = girih.from_edge_index(edges.numpy(), 150)
    ours, theirs = gnn.LightGCN(150, 16, 3), pyg.LightGCN(150, 16, 3)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    pairs = torch.randint(150, (2, 50))
    scores, expected = ours(graph, pairs), theirs(edges, pairs)
    close(scores, expected)
    loss, peer = (m.recommendation_loss(s[:25], s[25:], node_id=pairs.unique()) for m, s in ((ours, scores), (theirs, expected)))
    close(loss, peer)
    loss.backward(), peer.backward()
    close(ours.embedding.weight.grad, theirs.embedding.weight.grad)
    close(ours(edges), theirs(edges))
    close(ours.predict_link(graph, pairs, prob=True), theirs.predict_link(edges, pairs, prob=True))
    users, items = torch.arange(10), torch.arange(50, 150)
    best = ours.recommend(graph, src_index=users, dst_index=items, k=5)
    assert torch.equal(best, theirs.recommend(edges, src_index=users, dst_index=items, k=5))
    close(ours.link_pred_loss(scores, pairs[0] % 2), theirs.link_pred_loss(expected, pairs[0] % 2))


@pytest.mark.parametrize("name", FEW)
def test_gradients_are_differences(name):
    edges = random_edges(14, 30, 150)
    layer, _ = pair(name)
    x = torch.randn(30, WIDTH).requires_grad_()
    graph = girih.from_edge_index(edges.numpy(), 30)
    with torch.no_grad():
        weight = torch.randn(layer(x, graph).shape)
    (layer(x, graph) * weight).sum().backward()
    for tensor in (x, *layer.parameters()):
        # One direction a tensor, and a step that keeps rounding below the error of the difference.
        direction, step = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)), 1e-2
        with torch.no_grad():
            ends = []
            for sign in (1, -1):
                tensor += sign * step * direction
                ends.append((layer(x, graph).double() * weight).sum())
                tensor -= sign * step * direction
        found, expected = (ends[0] - ends[1]) / (2 * step), (tensor.grad * direction).sum()
        scale = tensor.grad.norm() * direction.norm()
        assert (found - expected).abs() < 2e-2 * scale + 1e-2, name


def test_dropout_of_attention():
    edges = random_edges(15)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH)
    for layer in (gnn.GATConv(WIDTH, 4, heads=2, dropout=0.5), gnn.GATv2Conv(WIDTH, 4, heads=2, dropout=0.5)):
        torch.manual_seed(3)
        first = layer(x, graph)
        assert not torch.equal(first, layer(x, graph)), "each call draws anew"
        torch.manual_seed(3)
        assert torch.equal(first, layer(x, graph)), "torch's seed decides"
        layer.eval()
        exact = layer(x, graph)
        assert torch.equal(exact, layer(x, graph))
        layer.train()
        mean = torch.stack([layer(x, graph) for _ in range(400)]).mean(dim=0)
        assert (mean - exact).abs().mean() < 0.1 * exact.abs().mean()


def test_results_do_not_depend_on_the_number_of_threads():
    edges = random_edges(16, 2000, 40000)
    graph = girih.from_edge_index(edges.numpy(), 2000)
    x = torch.randn(2000, WIDTH)
    results, before = [], girih.num_threads()
    for threads in (1, 2, 3):
        girih.set_num_threads(threads)
        results.append([pair(name, seed=1)[0](x, graph).detach() for name in FEW])
    girih.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others))


class Net(torch.nn.Module):
    """Two layers over two blocks."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, blocks):
        return self.second(torch.relu(self.first(x, blocks[0])), blocks[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: gnn.GCNConv(a, b),
        lambda a, b: gnn.SAGEConv(a, b),
        lambda a, b: gnn.GINConv(torch.nn.Linear(a, b)),
        lambda a, b: gnn.GATConv(a, b // 2, heads=2, dropout=0.5),
        lambda a, b: gnn.GATv2Conv(a, b // 2, heads=2),
    ],
    ids=["gcn", "sage", "gin", "gat", "gatv2"],
)
def test_one_compilation_serves_all_blocks(make):
    testing = pytest.importorskip("torch._dynamo.testing")
    torch._dynamo.reset()
    counter = testing.CompileCounterWithBackend("aot_eager")
    net = Net(make(WIDTH, 8), make(8, 4))
    compiled = torch.compile(net, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for seed in (1, 2, 3):
        blocks, x = blocks_of(seed, n_seeds=10 + seed)
        blocks = [gnn.Adjacency(block) for block in blocks]
        results = []
        for model in (compiled, net):
            torch.manual_seed(seed)
            net.zero_grad()
            result = model(x, blocks)
            result.square().sum().backward()
            results.append([result.detach(), *(parameter.grad.clone() for parameter in net.parameters())])
        for found, expected in zip(*results):
            close(found, expected)
        counts.append(counter.frame_count)
    assert counts[0] == counts[2], "later blocks compile nothing"


@pytest.mark.skipif(TORCH < (2, 4), reason="opcheck came with torch 2.4")
def test_operators_keep_the_rules_of_torch():
    graph = gnn.Adjacency(girih.from_edge_index(random_edges(17).numpy(), 150))
    x, weights = torch.randn(150, 6, requires_grad=True), torch.rand(graph.num_edges, 1, requires_grad=True)
    given = graph.handle, graph.rows, graph.columns
    torch.library.opcheck(torch.ops.girih.spmm, (x, None, *given, "mean", False))
    torch.library.opcheck(torch.ops.girih.spmm, (x, weights, *given, "pattern", False))
    torch.library.opcheck(torch.ops.girih.spmm, (x, weights, *given, "pattern", True))
    scores = torch.randn(150, 2, requires_grad=True)
    torch.library.opcheck(torch.ops.girih.attention, (scores, scores, None, x, graph.handle, None, 2, 0.2, 0.0, "pattern"))
    key, vector = torch.tensor([5]), torch.randn(1, 6, requires_grad=True)
    torch.library.opcheck(torch.ops.girih.attention, (x, x, vector, x, graph.handle, key, 2, 0.2, 0.5, "pattern+loops"))


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("how", ["autocast", "bfloat16", "float16"])
def test_half_precision_sums_in_float32(name, how):
    edges = random_edges(18)
    graph = girih.from_edge_index(edges.numpy(), 150)
    layer, _ = pair(name)
    x = torch.randn(150, WIDTH, requires_grad=True)
    expected = layer(x, graph)
    if how == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = layer(x, graph)
        found.float().square().sum().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())
    else:
        dtype = getattr(torch, how)
        if dtype == torch.float16 and TORCH < (2, 4):
            pytest.skip("torch multiplies no float16 on the CPU")
        layer = copy.deepcopy(layer).to(dtype)
        found = layer(x.to(dtype), graph)
        assert found.dtype == dtype
    assert (found.float() - expected).abs().max() < 0.06 * expected.abs().max()


def test_modules_copy_and_pickle():
    edges = random_edges(19)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH)
    for layer in [LAYERS[name](gnn) for name in FEW] + [gnn.GCNConv(WIDTH, 4, cached=True), gnn.SGConv(WIDTH, 4, cached=True)]:
        result = layer(x, graph)
        for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(again(x, graph), result)
        assert repr(layer).startswith(type(layer).__name__)


def test_cached_layers_keep_their_first_graph():
    first, second = random_edges(20), random_edges(21)
    x = torch.randn(150, WIDTH)
    for make in (lambda nn: nn.GCNConv(WIDTH, 4, cached=True), lambda nn: nn.SGConv(WIDTH, 4, cached=True), lambda nn: nn.APPNP(2, 0.1, cached=True)):
        ours, theirs = make(gnn), make(pyg)
        ours.load_state_dict(theirs.state_dict())
        for edges in (first, second):
            close(ours(x, edges), theirs(x, edges))
        ours.reset_parameters(), theirs.reset_parameters()
        ours.load_state_dict(theirs.state_dict())
        close(ours(x, second), theirs(x, second))


def test_a_graph_lives_until_its_gradients_are_taken():
    edges = random_edges(22)
    layer, other = pair("gat heads")
    x = torch.randn(150, WIDTH)
    result = layer(x, girih.from_edge_index(edges.numpy(), 150))
    for seed in range(50):
        layer(x, random_edges(seed))
    result.sum().backward()
    other(x, edges).sum().backward()
    close(layer.lin.weight.grad, other.lin.weight.grad, floor=1.0)


def test_strided_tensors_are_read_as_they_are():
    edges = random_edges(23)
    graph = girih.from_edge_index(edges.numpy(), 150)
    wide = torch.randn(WIDTH, 150)
    for name in FEW:
        ours, theirs = pair(name)
        for x in (wide.t(), torch.randn(150, 2 * WIDTH)[:, ::2], torch.randn(150, 1).expand(150, WIDTH)):
            agree(ours, theirs, (graph,), (edges,), [x])
            ours.zero_grad(), theirs.zero_grad()
        ours(wide.t(), graph).sum().backward()  # whose gradient is one number, expanded
        theirs(wide.t(), edges).sum().backward()
        for found, wanted in zip(ours.parameters(), theirs.parameters()):
            close(found.grad, wanted.grad, floor=1.0)


@pytest.mark.parametrize("name", FEW)
def test_wrong_features_are_refused(name):
    graph = girih.from_edge_index(random_edges(24).numpy(), 150)
    layer, _ = pair(name)
    with pytest.raises(ValueError, match="140 rows, but the graph has 150 sources"):
        layer(torch.randn(140, WIDTH), graph)
    with pytest.raises(ValueError, match="meta.*computes on the CPU"):
        layer(torch.randn(150, WIDTH, device="meta"), graph)
    with pytest.raises(TypeError, match=r"float64; girih.nn computes in float32: call .float\(\)"):
        layer(torch.randn(150, WIDTH, dtype=torch.float64), graph)
    with pytest.raises(ValueError, match="1 dimensions"):
        layer(torch.randn(150), graph)
    if name != "gin":
        with pytest.raises(ValueError, match=f"13 columns, but the layer was made for {WIDTH}"):
            layer(torch.randn(150, 13), graph)
    with pytest.raises(IndexError, match="node 150, but there are 150 nodes"):
        layer(torch.randn(150, WIDTH), torch.tensor([[0, 150], [1, 2]]))
    with pytest.raises(TypeError, match="the graph is a str"):
        layer(torch.randn(150, WIDTH), "cora")


def test_arguments_that_are_not_there_are_named():
    x, edges = torch.randn(150, WIDTH), random_edges(25)
    refused = {
        "aggr": lambda: gnn.SAGEConv(WIDTH, 4, aggr="max"),
        "flow": lambda: gnn.GCNConv(WIDTH, 4, flow="target_to_source"),
        "explain": lambda: gnn.GCNConv(WIDTH, 4, explain=True),
        "dropout": lambda: gnn.APPNP(2, 0.1, dropout=0.5),
        "in_channels": lambda: gnn.GCNConv(-1, 4),
    }
    for name, make in refused.items():
        with pytest.raises(NotImplementedError, match=name):
            make()
    with pytest.raises(ValueError, match="no normalize='batch'"):
        gnn.GCNConv(WIDTH, 4, normalize="batch")
    with pytest.raises(ValueError, match="one weight for each"):
        gnn.GCNConv(WIDTH, 4)(x, edges, torch.ones(3))
    with pytest.raises(ValueError, match="K=2 steps"):
        gnn.SGConv(WIDTH, 4, K=2)(*reversed((blocks_of(1)[0][0], blocks_of(1)[1])))


def test_second_derivatives_are_refused():
    graph = girih.from_edge_index(random_edges(26).numpy(), 150)
    x = torch.randn(150, WIDTH, requires_grad=True)
    (of_x,) = torch.autograd.grad(gnn.GCNConv(WIDTH, 4)(x, graph).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        of_x.sum().backward()


@pytest.mark.parametrize("make", [lambda: gnn.GCNConv(WIDTH, 8), lambda: gnn.GCNConv(WIDTH, 40), lambda: gnn.SAGEConv(WIDTH, 8),
                                  lambda: gnn.SAGEConv(WIDTH, 8, root_weight=False), lambda: gnn.SAGEConv(WIDTH, 40, bias=False),
                                  lambda: gnn.SAGEConv(WIDTH, 8, normalize=True)])  # fmt: skip
def test_a_relu_of_the_layer_is_one_behind_it(make):
    edges = random_edges(1)
    graph = girih.from_edge_index(edges.numpy(), 150)
    torch.manual_seed(1)
    layer = make()
    results = []
    for fused in (True, False):
        x = torch.randn(150, WIDTH, generator=torch.Generator().manual_seed(2)).requires_grad_()
        layer.zero_grad()
        out = layer(x, graph, activation="relu") if fused else layer(x, graph).relu()
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        results.append([out, x.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
    for found, expected in zip(*results, strict=True):
        close(found, expected, floor=1.0)
    weights = torch.rand(edges.shape[1])
    if isinstance(layer, gnn.GCNConv):
        close(layer(x, graph, weights, activation="relu"), layer(x, graph, weights).relu())
    with pytest.raises(ValueError, match="elu"):
        layer(x, graph, activation="elu")


def test_only_wanted_gradients_are_computed():
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    x = torch.randn(150, WIDTH)
    for freeze in ("lin_l.weight", "lin_l.bias", "lin_r.weight"):
        layer = gnn.SAGEConv(WIDTH, 8)
        layer.get_parameter(freeze).requires_grad_(False)
        layer(x, graph).sum().backward()
        for name, parameter in layer.named_parameters():
            assert (parameter.grad is None) == (name == freeze), name
    with torch.no_grad():
        assert not gnn.SAGEConv(WIDTH, 8)(x, graph).requires_grad


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_girih_cuda_says_so():
    try:
        import girih.cuda
    except ImportError as error:
        assert "no CUDA" in str(error)
        return
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    for make in (lambda: girih.cuda.Graph(graph), lambda: girih.cuda.NeighborLoader(graph, [1], [2]),
                 lambda: girih.cuda.FeatureStore(np.zeros((3, 2), np.float32)), girih.cuda.memory):  # fmt: skip
        with pytest.raises(RuntimeError, match="no CUDA GPU"):
            make()


def test_a_cached_layer_keeps_products_of_a_constant_x():
    graph = girih.from_edge_index(random_edges(1).numpy(), 150)
    x = torch.randn(150, WIDTH)
    layer, plain = gnn.GCNConv(WIDTH, 8, cached=True), gnn.GCNConv(WIDTH, 8)
    plain.load_state_dict(layer.state_dict())

    def check(x):
        for each in (layer, plain):
            each.zero_grad()
            each(x, graph, activation="relu").sum().backward()
        close(layer(x, graph), plain(x, graph))
        close(layer.lin.weight.grad, plain.lin.weight.grad)

    for _ in range(3):
        check(x)
    assert layer._seen[3] is not None
    x.mul_(2)
    check(x)
    check(torch.randn(150, WIDTH))
    own = torch.randn(150, WIDTH, requires_grad=True)
    for _ in range(3):
        check(own)
        assert own.grad is not None
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other(x, graph), plain(x, graph))
    with torch.no_grad():
        layer.lin.weight.zero_()
        layer.bias.zero_()
        assert not layer(x, graph).any(), "parameters count anew"
    layer.reset_parameters()
    assert layer._seen is None


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("gat")])
def test_weights_of_attention_are_those_of_pyg(name):
    edges, x = random_edges(7), torch.randn(150, WIDTH)
    graph = girih.from_edge_index(edges.numpy(), 150)
    ours, theirs = pair(name)
    expected, (their_edges, their_weights) = theirs(x, edges, return_attention_weights=True)
    for given in (edges, graph, gnn.Adjacency(graph)):
        out, (found, weights) = ours(x, given, return_attention_weights=True)
        close(out, expected)
        assert torch.equal(found, their_edges)
        close(weights, their_weights)
    grads = [torch.autograd.grad(of.square().sum(), list(layer.parameters()), allow_unused=True) for of, layer in ((weights, ours), (their_weights, theirs))]
    for found, wanted in zip(*grads):
        assert (found is None) == (wanted is None)
        if found is not None:
            close(found, wanted, 1e-4, floor=1.0)


def test_weights_of_attention_are_by_edges_of_blocks():
    blocks, x = blocks_of(4)
    layer = gnn.GATConv(WIDTH, 4, heads=2)
    _, (edges, weights) = layer(x, blocks[0], return_attention_weights=True)
    assert edges.shape[1] == len(weights) and (edges[0, -blocks[0].num_dst :] == torch.arange(blocks[0].num_dst)).all()
    sums = torch.zeros(blocks[0].num_dst, 2).index_add(0, edges[1], weights)
    close(sums, torch.ones_like(sums))


EDGE_LAYERS = {
    "gat": lambda nn: nn.GATConv(WIDTH, 5, heads=2, edge_dim=3),
    "gat without loops": lambda nn: nn.GATConv(WIDTH, 5, edge_dim=3, add_self_loops=False, residual=True),
    "gat mean of heads": lambda nn: nn.GATConv(WIDTH, 5, heads=3, edge_dim=3, concat=False, fill_value="max"),
    "gatv2": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=2, edge_dim=3),
    "gatv2 shared": lambda nn: nn.GATv2Conv(WIDTH, 5, edge_dim=3, share_weights=True, fill_value=0.5),
    "gatv2 sum": lambda nn: nn.GATv2Conv(WIDTH, 5, heads=2, edge_dim=3, fill_value="add"),
}


def edge_pair(name):
    ours, theirs = EDGE_LAYERS[name](gnn), EDGE_LAYERS[name](pyg)
    assert [key for key, _ in ours.named_parameters()] == [key for key, _ in theirs.named_parameters()]
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", EDGE_LAYERS)
def test_attention_reads_features_of_edges_as_pyg_does(name):
    edges = random_edges(7)
    x, attr = torch.randn(150, WIDTH), torch.randn(edges.shape[1], 3)
    graph = girih.from_edge_index(edges.numpy(), 150)
    ours, theirs = edge_pair(name)
    results = []
    for layer, given in ((theirs, edges), (ours, edges), (ours, graph)):
        layer.zero_grad()
        own, along = x.clone().requires_grad_(), attr.clone().requires_grad_()
        out, (found, weights) = layer(own, given, edge_attr=along, return_attention_weights=True)
        (out.square().sum() + weights.square().sum()).backward()
        grads = [own.grad, along.grad, *(parameter.grad for parameter in layer.parameters())]
        results.append([out.detach(), found, weights.detach(), *grads])
        close(layer(x, given, edge_attr=attr), out.detach())
    for result in results[1:]:
        assert torch.equal(result[1], results[0][1])
        for found, wanted in zip(result, results[0], strict=True):
            assert (found is None) == (wanted is None)
            if found is not None and found.dtype.is_floating_point:
                close(found, wanted, 2e-5, floor=1.0)


def test_features_of_edges_that_do_not_fit_are_told():
    edges, x = random_edges(7), torch.randn(150, WIDTH)
    with pytest.raises(ValueError, match="without edge_dim"):
        gnn.GATConv(WIDTH, 4)(x, edges, torch.randn(edges.shape[1], 3))
    with pytest.raises(ValueError, match="edge_attr has shape"):
        gnn.GATv2Conv(WIDTH, 4, edge_dim=2)(x, edges, torch.randn(edges.shape[1], 3))
    with pytest.raises(ValueError, match="fill_value"):
        gnn.GATConv(WIDTH, 4, edge_dim=2, fill_value="median")
    layer = gnn.GATConv(WIDTH, 4, edge_dim=1)
    one = torch.randn(edges.shape[1])
    close(layer(x, edges, one), layer(x, edges, one.view(-1, 1)))


def test_parameters_without_memory_are_refused():
    graph, x = girih.from_edge_index(random_edges(1).numpy(), 150), torch.randn(150, WIDTH)
    for layer in (gnn.GCNConv(WIDTH, 4), gnn.SAGEConv(WIDTH, 4), gnn.GraphSAGE(WIDTH, 8, 2, 3)):
        with pytest.raises(ValueError, match="on cpu and on meta"):
            layer.to("meta")(x, graph)
    layer = gnn.SAGEConv(WIDTH, 4)
    layer.lin_l.weight.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="has no memory"):
        layer(x, graph)
