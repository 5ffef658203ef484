"""What the adapter for DGL has to hold.

The properties are those that DGL's own tests check of NeighborSampler and DataLoader. Not here: `prefetch_*` (use
`features=`), `edge_dir="out"`, worker processes (threads are instead of them).
"""

import gc

import numpy as np
import pytest

import girih

torch = pytest.importorskip("torch")
dgl = pytest.importorskip("dgl")

import girih.dgl as gd  # noqa: E402

N, E = 100, 600


def random_graph(seed=0, idtype=torch.int64):
    """Graph of DGL without parallel edges; attributes name nodes and edges."""
    pairs = torch.randperm(N * N, generator=torch.Generator().manual_seed(seed))[:E]
    g = dgl.graph(((pairs // N).to(idtype), (pairs % N).to(idtype)), num_nodes=N)
    g.ndata["id"], g.edata["w"] = torch.arange(N), (torch.arange(E) % 2).float()
    return g


def check(batch, g, fanouts, dtype=torch.int64):
    """Blocks chain, and their edges are the graph's by id."""
    inputs, outputs, blocks = batch
    source, destination = (ends.long() for ends in g.edges(order="eid"))
    assert inputs.equal(blocks[0].srcdata[dgl.NID]) and outputs.equal(blocks[-1].dstdata[dgl.NID])
    for block, fanout in zip(blocks, fanouts, strict=True):
        assert block.is_block and block.idtype == dtype and inputs.dtype == dtype
        u, v = (ends.long() for ends in block.edges(order="eid"))
        names = block.edata[dgl.EID].long()
        assert block.edata[dgl.EID].dtype == dtype
        assert source[names].equal(block.srcdata[dgl.NID].long()[u])
        assert destination[names].equal(block.dstdata[dgl.NID].long()[v])
        assert block.dstdata[dgl.NID].equal(block.srcdata[dgl.NID][: block.num_dst_nodes()])
        degrees = torch.bincount(destination, minlength=N)[block.dstdata[dgl.NID].long()]
        expected = degrees if fanout == -1 else degrees.clamp(max=fanout)
        assert block.in_degrees().long().equal(expected)
        assert names.unique().numel() == names.numel()
    for near, far in zip(blocks[1:], blocks):
        assert near.srcdata[dgl.NID].equal(far.dstdata[dgl.NID])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("fanouts", [[3], [2, 4], [-1, 3, 2]])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_are_those_of_dgl(dtype, fanouts, threads):
    g = random_graph()
    options = {"batch_size": 30, "index_dtype": dtype, "threads": threads}
    loader = gd.NeighborLoader(g, torch.arange(N), fanouts, **options)
    batches = list(loader)
    assert len(loader) == len(batches) == 4
    for batch in batches:
        check(batch, g, fanouts, getattr(torch, dtype))
    assert torch.cat([outputs for _, outputs, _ in batches]).tolist() == list(range(N))
    assert len(gd.NeighborLoader(g, torch.arange(N), fanouts, batch_size=30, drop_last=True)) == 3


def test_fan_outs_go_from_the_inputs():
    g = random_graph()
    _, _, blocks = next(iter(gd.NeighborLoader(g, torch.arange(N), [1, 5], batch_size=N)))
    assert int(blocks[-1].in_degrees().max()) == 5 and int(blocks[0].in_degrees().max()) == 1
    same = girih.NeighborLoader(gd.graph_of(g), np.arange(N), [5, 1], expand="per-layer", batch_size=N, shuffle=False)
    for block, other in zip(blocks, gd.to_blocks(next(iter(same))), strict=True):
        assert block.edata[dgl.EID].equal(other.edata[dgl.EID])


def test_all_neighbors_give_the_output_of_the_whole_graph():
    from dgl.nn import SAGEConv

    g = random_graph()
    x = torch.rand(N, 8)
    convs = [SAGEConv(8, 8, "mean"), SAGEConv(8, 4, "mean")]
    whole = convs[1](g, convs[0](g, x))
    for dtype in ("int64", "int32"):
        loader = gd.NeighborLoader(g, torch.arange(N), [-1, -1], batch_size=30, index_dtype=dtype, features=x.numpy())
        for _, outputs, blocks in loader:
            h = blocks[0].srcdata["feat"]
            assert h.equal(x[blocks[0].srcdata[dgl.NID].long()])
            for conv, block in zip(convs, blocks):
                h = conv(block, h)
            assert torch.allclose(h, whole[outputs.long()], atol=1e-5)


def test_probabilities_replacement_and_shuffle():
    g = random_graph()
    for _, _, blocks in gd.NeighborLoader(g, torch.arange(N), [3], prob="w", batch_size=40):
        assert (blocks[0].edata[dgl.EID] % 2 == 1).all()
    for _, _, blocks in gd.NeighborLoader(g, torch.arange(N), [30], replace=True, batch_size=40):
        degrees = blocks[0].in_degrees()
        assert set(degrees.tolist()) <= {0, 30} and int(degrees.max()) == 30
    loader = gd.NeighborLoader(g, torch.arange(N), [3], batch_size=40, shuffle=True)
    first, second = (torch.cat([outputs for _, outputs, _ in loader]) for _ in range(2))
    assert not first.equal(second) and first.sort().values.equal(second.sort().values)


def test_mask_as_seeds_and_tensors_outlive_the_loader():
    g = random_graph()
    mask = torch.arange(N) % 4 == 0
    loader = gd.NeighborLoader(g, mask, [2, 2], batch_size=10)
    kept = list(loader)
    held = [(inputs.clone(), [b.edata[dgl.EID].clone() for b in blocks]) for inputs, _, blocks in kept]
    del loader
    gc.collect()
    for (inputs, _, blocks), (before, names) in zip(kept, held):
        assert inputs.equal(before) and all(b.edata[dgl.EID].equal(e) for b, e in zip(blocks, names))
        check((inputs, blocks[-1].dstdata[dgl.NID], blocks), g, [2, 2])


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_graphs_there_and_back(idtype):
    g = random_graph(idtype=idtype)
    graph = gd.graph_of(g)
    assert (graph.num_nodes, graph.num_edges) == (N, E)
    back = gd.to_dgl(graph)
    assert all(a.equal(b.long()) for a, b in zip(back.edges(order="eid"), g.edges(order="eid")))
    weighted = girih.from_edge_index(torch.stack(g.edges(order="eid")), N, weights=np.arange(E))
    assert gd.to_dgl(weighted).edata["weight"].tolist() == list(range(E))
    lonely = dgl.graph(([], []), num_nodes=5)
    assert gd.to_dgl(gd.graph_of(lonely)).num_nodes() == 5


def random_heterograph(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def pairs(a, b, n):
        drawn = torch.randperm(a * b, generator=generator)[:n]
        return drawn // b, drawn % b

    source, destination = pairs(30, 80, 200)
    return dgl.heterograph(
        {
            ("author", "writes", "paper"): (source, destination),
            ("paper", "written", "author"): (destination, source),
            ("paper", "cites", "paper"): pairs(80, 80, 400),
        },
        num_nodes_dict={"paper": 80, "author": 30},
    )


@pytest.mark.parametrize("fanouts", [[3, 4], [{"writes": 1, "written": 0, ("paper", "cites", "paper"): 2}, 4]])
def test_blocks_of_heterographs(fanouts):
    g = random_heterograph()
    graph = gd.typed_graph_of(g)
    x = {"paper": np.arange(80, dtype=np.float32)[:, None]}
    for made in (g, graph):
        loader = gd.NeighborLoader(made, {"paper": torch.arange(80)}, fanouts, batch_size=30, features=x)
        assert len(loader) == 3
        for inputs, outputs, blocks in loader:
            assert len(blocks) == 2 and outputs["author"].numel() == 0
            assert (blocks[0].srcnodes["paper"].data["feat"][:, 0].long() == inputs["paper"]).all()
            for block, of_layer in zip(blocks, fanouts):
                for of in g.canonical_etypes:
                    most = of_layer if isinstance(of_layer, int) else of_layer.get(of, of_layer.get(of[1]))
                    source, destination = block.edges(etype=of)
                    ends = block.srcnodes[of[0]].data[dgl.NID][source], block.dstnodes[of[2]].data[dgl.NID][destination]
                    named = g.find_edges(block.edges[of].data[dgl.EID], etype=of)
                    assert all(a.equal(b) for a, b in zip(ends, named))
                    degrees = block.in_degrees(etype=of)
                    assert degrees.numel() == 0 or int(degrees.max()) <= most
            for block in blocks:
                for of in g.ntypes:
                    n = block.num_dst_nodes(of)
                    assert block.srcnodes[of].data[dgl.NID][:n].equal(block.dstnodes[of].data[dgl.NID])


def test_heterographs_there_and_back():
    g = random_heterograph()
    back = gd.to_dgl(gd.typed_graph_of(g))
    assert back.canonical_etypes == g.canonical_etypes or set(back.canonical_etypes) == set(g.canonical_etypes)
    for of in g.canonical_etypes:
        assert all(a.equal(b) for a, b in zip(back.edges(etype=of, order="eid"), g.edges(etype=of, order="eid")))
    data = girih.load("synth:ogbn-mag@0.0005,classes=4")
    made = gd.to_dgl(data)
    assert made.nodes["paper"].data["feat"].shape == (data.typed_graph.num_nodes["paper"], 128)
    assert made.nodes["paper"].data["train_mask"].sum() == len(data.split[0])


def test_all_neighbors_of_heterographs_give_the_output_of_the_whole_graph():
    from dgl.nn import HeteroGraphConv, SAGEConv

    g = random_heterograph()
    convs = [HeteroGraphConv({of: SAGEConv(4, 4, "mean") for of in g.etypes}) for _ in range(2)]
    x = {"paper": torch.rand(80, 4), "author": torch.rand(30, 4)}
    whole = convs[1](g, convs[0](g, x))["paper"]
    loader = gd.NeighborLoader(g, {"paper": torch.arange(80)}, [-1, -1], batch_size=30, features=x)
    for _, outputs, blocks in loader:
        h = blocks[0].srcdata["feat"]
        for conv, block in zip(convs, blocks):
            h = conv(block, (h, {of: rows[: block.num_dst_nodes(of)] for of, rows in h.items()}))
        assert torch.allclose(h["paper"], whole[outputs["paper"]], atol=1e-5)


def test_data_set_to_dgl():
    data = girih.load("synth:planted,nodes=300,degree=8")
    g = gd.to_dgl(data)
    assert g.num_nodes() == 300 and g.ndata["feat"].shape[0] == g.ndata["label"].numel() == 300
    assert g.ndata["train_mask"].nonzero().view(-1).tolist() == sorted(data.split[0].tolist())


def test_refusals():
    g = random_graph()
    hetero = dgl.heterograph({("a", "to", "b"): ([0], [0]), ("b", "of", "a"): ([0], [0])})
    with pytest.raises(ValueError, match="heterograph.*typed_graph_of"):
        gd.graph_of(hetero)
    for options in ({"prob": "w"}, {"draws": "labor"}, {"index_dtype": "int32"}):
        with pytest.raises(NotImplementedError, match=next(iter(options))):
            gd.NeighborLoader(hetero, {"a": [0]}, [2], **options)
    for seeds in (torch.arange(1), {"a": [0], "b": [0]}):
        with pytest.raises(ValueError, match="dict of one node type"):
            gd.NeighborLoader(hetero, seeds, [2])
    with pytest.raises(ValueError, match="says nothing of the edge type"):
        gd.NeighborLoader(hetero, {"a": [0]}, [{"to": 2}])
    with pytest.raises(TypeError, match="DGLGraph"):
        gd.graph_of([1])
    block = dgl.create_block(([0], [0]))
    with pytest.raises(ValueError, match="block"):
        gd.graph_of(block)
    parallel = dgl.graph(([0, 0, 1], [1, 1, 0]))
    with pytest.raises(ValueError, match="listed once"):
        gd.graph_of(parallel)
    merged = gd.graph_of(parallel, duplicates="merge")
    assert merged.num_edges == 2 and gd.to_dgl(merged).num_edges() == 2
    with pytest.raises(NotImplementedError, match="num_workers"):
        gd.NeighborLoader(g, torch.arange(N), [2], num_workers=2)
    with pytest.raises(ValueError, match="prob"):
        gd.NeighborLoader(g, torch.arange(N), [2], prob="absent")
    with pytest.raises(IndexError, match="100"):
        gd.NeighborLoader(g, torch.tensor([100]), [2])
    with pytest.raises(ValueError, match="0"):
        gd.NeighborLoader(g, torch.arange(N), [0])


def test_data_sets_go_both_ways():
    dataset = girih.load("synth:planted,nodes=300,degree=6,features=8,classes=3")
    back = girih.dgl.from_dgl(girih.dgl.to_dgl(dataset))
    assert (back.x == dataset.x).all() and (back.y == dataset.y).all()
    assert all((a == b).all() for a, b in zip(back.split, dataset.split))
