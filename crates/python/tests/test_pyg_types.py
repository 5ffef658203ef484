"""`girih.pyg` over `HeteroData`, and over data with times: what PyG's own loaders promise of batches.

Not here, and refused by name: times, weights, disjoint and induced subgraphs of a `HeteroData`; weights with times.
"""

import copy
import pickle

import pytest

import girih

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import LinkLoader, NodeLoader  # noqa: E402
from torch_geometric.nn import HeteroConv, SAGEConv  # noqa: E402
from torch_geometric.sampler import NumNeighbors  # noqa: E402

import girih.pyg as gp  # noqa: E402

COUNTS = {"paper": 80, "author": 30}
WRITES, REV, CITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author"), ("paper", "cites", "paper")


def hetero(seed=0):
    """Types whose attributes name nodes and edges."""
    generator = torch.Generator().manual_seed(seed)

    def pairs(a, b, n):
        drawn = torch.randperm(a * b, generator=generator)[:n]
        return torch.stack([drawn // b, drawn % b])

    data = HeteroData()
    for of, n in COUNTS.items():
        data[of].x = torch.arange(n).float().view(-1, 1).repeat(1, 3).contiguous()
        data[of].name_of = torch.arange(n)
    data["paper"].y = torch.arange(80) % 5
    for i, part in enumerate(("train_mask", "val_mask", "test_mask")):
        data["paper"][part] = torch.arange(80) % 3 == i
    data[WRITES].edge_index = pairs(30, 80, 200)
    data[CITES].edge_index = pairs(80, 80, 400)
    data[REV].edge_index = data[WRITES].edge_index.flip(0)
    for of in data.edge_types:
        data[of].edge_attr = torch.arange(data[of].edge_index.shape[1])
    data.title = "graph"
    return data


def check(batch, data):
    assert isinstance(batch, HeteroData) and batch.title == "graph"
    for of in data.node_types:
        n_id = batch[of].n_id
        assert (batch[of].x[:, 0].long() == n_id).all() and (batch[of].name_of == n_id).all()
        assert sum(batch[of].num_sampled_nodes) == n_id.numel() == batch[of].num_nodes
    for of in data.edge_types:
        store = batch[of]
        ends = torch.stack([batch[of[0]].n_id[store.edge_index[0]], batch[of[2]].n_id[store.edge_index[1]]])
        assert (ends == data[of].edge_index[:, store.e_id]).all() and (store.edge_attr == store.e_id).all()
        assert sum(store.num_sampled_edges) == store.edge_index.shape[1]


def node_loaders(data, num_neighbors, **options):
    sampler = gp.NeighborSampler(data, num_neighbors, replace=options.pop("replace", False))
    yield NodeLoader(data, node_sampler=sampler, **options)
    yield gp.NeighborLoader(data, neighbor_sampler=sampler, **options)


@pytest.mark.parametrize(
    "num_neighbors",
    [[4, 2], {WRITES: [3, 2], REV: [0, 2], CITES: [-1, 1]}, NumNeighbors({WRITES: [3, 2]}, default=[2, 0])],
)
def test_batches_of_types_hold_what_pyg_promises(num_neighbors):
    data = hetero()
    for loader in node_loaders(data, num_neighbors, input_nodes=("paper", data["paper"].train_mask), batch_size=9):
        batches = list(loader)
        assert len(loader) == len(batches) == 3 and str(loader)
        for batch in batches:
            check(batch, data)
            assert batch["paper"].batch_size == 9 and (batch["paper"].n_id[:9] == batch["paper"].input_id).all()
        assert torch.cat([b["paper"].input_id for b in batches]).equal(data["paper"].train_mask.nonzero().view(-1))


def test_inputs_of_types():
    data = hetero()
    for loader in node_loaders(data, [2], input_nodes="author", batch_size=10):
        assert torch.cat([b["author"].n_id[:10] for b in loader]).tolist() == list(range(30))
    for loader in node_loaders(data, [2], input_nodes=("author", torch.tensor([7, 3])), batch_size=10):
        [batch] = loader
        assert batch["author"].n_id[:2].tolist() == [7, 3] and batch["author"].input_id.tolist() == [0, 1]
    loader = gp.NeighborLoader(data, [2], ("author", torch.arange(30)), batch_size=10, shuffle=True, drop_last=True, seed=3)
    first, second = ([b["author"].input_id.tolist() for b in loader.epoch(0)] for _ in range(2))
    assert first == second and sorted(sum(first, [])) == list(range(30))
    assert (loader([3, 4])["author"].input_id == torch.tensor([3, 4])).all()


def test_rows_of_types_come_from_stores():
    data = hetero()
    rows = girih.compress(torch.rand(80, 16).numpy(), "int8")
    del data["paper"].x
    data["paper"].num_nodes = 80
    loader = gp.NeighborLoader(data, [3], "paper", x={"paper": rows}, batch_size=40, threads=2)
    for batch in loader:
        assert torch.equal(batch["paper"].x, torch.from_numpy(rows.gather(batch["paper"].n_id.numpy())))
        assert (batch["author"].x[:, 0].long() == batch["author"].n_id).all()
    batch = next(iter(gp.NeighborLoader(data, [3], "paper", x={"paper": rows}, transform_sampler_output=lambda out: out)))
    assert batch["paper"].x.shape[1] == 16

    def turned(out):
        out.node["paper"] = out.node["paper"].flip(0)
        return out

    for batch in gp.NeighborLoader(data, [3], "paper", x={"paper": rows}, batch_size=40, transform_sampler_output=turned):
        assert torch.equal(batch["paper"].x, torch.from_numpy(rows.gather(batch["paper"].n_id.numpy())))


def test_all_neighbors_give_the_output_of_the_whole_graph():
    data = hetero()
    torch.manual_seed(0)
    layers = [HeteroConv({of: SAGEConv((3 if i == 0 else 4,) * 2, 4) for of in data.edge_types}) for i in range(2)]

    def out(x, edges):
        for layer in layers:
            x = layer(x, edges)
        return x["paper"]

    whole = out(data.x_dict, data.edge_index_dict)
    for loader in node_loaders(data, [-1, -1], input_nodes="paper", batch_size=16):
        for batch in loader:
            found = out(batch.x_dict, batch.edge_index_dict)[:16]
            assert torch.allclose(found, whole[batch["paper"].n_id[:16]], atol=1e-5)


def test_bidirectional_batches_of_types():
    data = hetero()
    sampler = gp.NeighborSampler(data, [3, 2], subgraph_type="bidirectional")
    for batch in NodeLoader(data, node_sampler=sampler, input_nodes="paper", batch_size=40):
        forward, back = batch[WRITES].edge_index, batch[REV].edge_index
        assert set(map(tuple, forward.t().tolist())) == {(a, p) for p, a in back.t().tolist()}


@pytest.mark.parametrize("neg", [None, "binary", "triplet"])
def test_links_between_types(neg):
    data = hetero()
    sampler = gp.NeighborSampler(data, [3, 2])
    options = dict(edge_label_index=(WRITES, data[WRITES].edge_index), neg_sampling=neg, batch_size=50)
    for loader in (LinkLoader(data, link_sampler=sampler, **options), gp.LinkNeighborLoader(data, [3, 2], **options)):
        assert len(loader) == 4
        for batch in loader:
            check(batch, data)
            authors, papers = batch["author"].n_id, batch["paper"].n_id
            if neg == "triplet":
                ends = torch.stack([authors[batch["author"].src_index], papers[batch["paper"].dst_pos_index]])
            else:
                index = batch[WRITES].edge_label_index[:, :50]
                ends = torch.stack([authors[index[0]], papers[index[1]]])
            assert (ends == data[WRITES].edge_index[:, batch[WRITES].input_id]).all()


def test_data_of_types_trains():
    data = hetero()
    made = gp.from_pyg(data)
    assert made.target == "paper" and made.num_classes == 5 and set(made.type_features) == {"paper", "author"}
    assert made.split[0].tolist() == data["paper"].train_mask.nonzero().view(-1).tolist()
    outcome = girih.train(made, model="hsage", hidden=8, epochs=2, device="cpu", batch="neighbor", fanout=[3, 2], batch_size=9)
    assert 0 <= outcome.runs[0].best["val_accuracy"] <= 1
    data["author"].y = torch.arange(30) % 2
    with pytest.raises(ValueError, match="2 node types have y; name one of paper, author"):
        gp.from_pyg(data)
    assert gp.from_pyg(data, target="author").num_classes == 2


def test_data_of_types_goes_both_ways():
    data = hetero()
    back = gp.to_pyg(gp.from_pyg(data))
    assert back.metadata() == data.metadata()
    for of in data.node_types:
        assert back[of].num_nodes == data[of].num_nodes and back[of].x.equal(data[of].x)
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        assert back["paper"][name].equal(data["paper"][name])
    named = gp.to_pyg(gp.typed_graph_of(data))
    for of in data.edge_types:
        assert named[of].edge_index.equal(data[of].edge_index)  # in the caller's order
    loaded = girih.load("synth:aifb-like@0.2")
    found = gp.to_pyg(loaded)
    assert found.num_nodes == loaded.graph.num_nodes and len(found.edge_types) == len(loaded.typed_graph.edge_types)


def test_samplers_of_types_share_graphs_and_pickle():
    data = hetero()
    graph = gp.typed_graph_of(data)
    sampler = gp.NeighborSampler(data, [3, 2], graph=graph)
    assert sampler.graph is graph and gp.NeighborSampler(graph, [3]).graph is graph
    loader = NodeLoader(data, node_sampler=pickle.loads(pickle.dumps(sampler)), input_nodes="paper", num_workers=2, batch_size=20)
    batches = list(loader)
    assert len(batches) == 4
    for batch in batches:
        check(batch, data)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda d: gp.graph_of(d), NotImplementedError, "one type"),
        (lambda d: gp.typed_graph_of(d.to_homogeneous()), TypeError, "give a HeteroData"),
        (lambda d: gp.NeighborSampler(d, [2], time_attr="name_of"), NotImplementedError, "time_attr"),
        (lambda d: gp.NeighborSampler(d, [2], disjoint=True), NotImplementedError, "disjoint=True"),
        (lambda d: gp.NeighborSampler(d, [2], weight_attr="edge_attr"), NotImplementedError, "weight_attr"),
        (lambda d: gp.NeighborSampler(d, [2], subgraph_type="induced"), NotImplementedError, "induced"),
        (lambda d: gp.NeighborSampler(d, [2], draws="labor"), NotImplementedError, "draws='labor'"),
        (lambda d: gp.NeighborSampler(d, {WRITES: [2]}), ValueError, "says nothing of the edge type"),
        (lambda d: gp.NeighborSampler(d, [2], graph=girih.from_edge_index([[0], [1]])), TypeError, "typed_graph_of"),
        (lambda d: gp.NeighborLoader(d, [2], torch.arange(3)), ValueError, "node type"),
        (lambda d: gp.NeighborLoader(d, [2], "venue"), ValueError, "no node type 'venue'; data has paper, author"),
        (lambda d: gp.NeighborLoader(d, [2], ("paper", torch.ones(30, dtype=torch.bool))), ValueError, "mask of 30 nodes"),
        (lambda d: gp.NeighborLoader(d, [2], "paper", x=torch.zeros(80, 2)), TypeError, "rows by node type"),
        (lambda d: gp.NeighborLoader(d, [2], "paper", x={"paper": torch.zeros(3, 2)}), ValueError, "3 rows for 80"),
        (lambda d: gp.NeighborLoader(d, [2], "paper", input_time=torch.zeros(80)), ValueError, "follows no time"),
        (lambda d: gp.NeighborLoader(d, [2], "paper", device="cuda"), NotImplementedError, "read on the CPU"),
    ],
)  # fmt: skip
def test_bad_input_of_types_is_told(make, error, told):
    with pytest.raises(error, match=told):
        make(hetero())


def test_types_without_a_number_of_nodes_are_told():
    data = HeteroData()
    data["paper"].y = None
    data[CITES].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="num_nodes|no number of nodes"):
        gp.typed_graph_of(data)


# Times


def timed_data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.arange(50).float().view(-1, 1),
        edge_index=torch.randint(50, (2, 500), generator=generator),  # with parallel edges
        edge_time=torch.randint(100, (500,), generator=generator),
        node_time=torch.randint(100, (50,), generator=generator),
    )


def timed_loaders(data, time_attr, **options):
    sampling = {key: options.pop(key) for key in ("temporal_strategy", "before", "window", "replace") if key in options}
    sampler = gp.NeighborSampler(data, [4, 3], time_attr=time_attr, **sampling)
    assert sampler.disjoint
    yield NodeLoader(data, node_sampler=sampler, **options)
    yield gp.NeighborLoader(data, [4, 3], time_attr=time_attr, **sampling, **options)


@pytest.mark.parametrize("time_attr", ["edge_time", "node_time"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_seeds_see_nothing_of_their_future(time_attr, strategy):
    data = timed_data()
    times = data.edge_time if time_attr == "edge_time" else data.node_time[data.edge_index[0]]
    input_time = torch.arange(50) * 2 if time_attr == "edge_time" else None
    for loader in timed_loaders(data, time_attr, temporal_strategy=strategy, input_time=input_time, batch_size=20):
        n_edges = 0
        for batch in loader:
            seeds = batch.n_id[: batch.batch_size]
            bound = seeds * 2 if input_time is not None else data.node_time[seeds]
            if "seed_time" in batch:
                assert (batch.seed_time == bound).all()
            source, to = batch.edge_index
            assert (batch.batch[source] == batch.batch[to]).all()
            assert (times[batch.e_id] <= bound[batch.batch[to]]).all()
            assert (torch.stack([batch.n_id[source], batch.n_id[to]]) == data.edge_index[:, batch.e_id]).all()
            assert (batch.x.view(-1).long() == batch.n_id).all() and (batch.edge_time == data.edge_time[batch.e_id]).all()
            n_edges += source.numel()
        assert n_edges > 100


def test_the_latest_edges_are_taken():
    data = timed_data()
    loader = gp.NeighborLoader(
        data, [3], time_attr="edge_time", temporal_strategy="last", input_time=torch.full((50,), 60), batch_size=50
    )
    [batch] = loader
    for i, seed in enumerate(batch.n_id[:50].tolist()):
        seen = data.edge_time[(data.edge_index[1] == seed) & (data.edge_time <= 60)].sort().values[-3:]
        assert data.edge_time[batch.e_id[batch.edge_index[1] == i]].tolist() == seen.tolist()


def test_shuffled_seeds_keep_their_times():
    data = timed_data()
    options = dict(time_attr="edge_time", input_time=torch.arange(50), batch_size=16, shuffle=True, before=True)
    for batch in gp.NeighborLoader(data, [4, 2], **options, threads=2):
        assert batch.seed_time.equal(batch.n_id[: batch.batch_size]) and batch.seed_time.equal(batch.input_id)
        assert (batch.edge_time < batch.seed_time[batch.batch[batch.edge_index[1]]]).all()


@pytest.mark.parametrize("neg", [None, "binary", "triplet"])
def test_links_see_nothing_of_themselves(neg):
    data = timed_data()
    sampling = dict(time_attr="edge_time", before=True)
    options = dict(
        edge_label_index=data.edge_index, edge_label_time=data.edge_time, neg_sampling=neg, batch_size=100
    )
    sampler = gp.NeighborSampler(data, [3, 2], **sampling)
    for loader in (LinkLoader(data, link_sampler=sampler, **options), gp.LinkNeighborLoader(data, [3, 2], **sampling, **options)):
        for batch in loader:
            at = data.edge_time[batch.input_id]
            assert batch.num_edges > 0
            if neg is None:  # both ends of a link have its number
                assert (batch.edge_time < at[batch.batch[batch.edge_index[1]]]).all()


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda d: gp.NeighborLoader(d, [2], time_attr="edge_time"), ValueError, "input_time is missing"),
        (lambda d: gp.NeighborLoader(d, [2], time_attr="age"), ValueError, "data has no 'age'"),
        (lambda d: gp.NeighborLoader(d, [2], time_attr="x", input_time=torch.zeros(50)), TypeError, "give integers"),
        (lambda d: gp.NeighborLoader(d, [2], time_attr="edge_time", input_time=torch.arange(3)), ValueError, "for 50 seeds"),
        (lambda d: gp.NeighborLoader(d, [2], input_time=torch.arange(50), duplicates="merge"), ValueError, "follows no time"),
        (lambda d: gp.NeighborLoader(d, [2], temporal_strategy="last"), ValueError, "name them by time_attr"),
        (lambda d: gp.NeighborSampler(d, [2], time_attr="edge_time", weight_attr="edge_time"), NotImplementedError, "weight_attr"),
        (lambda d: gp.NeighborSampler(d, [2], time_attr="edge_time", subgraph_type="induced"), NotImplementedError, "induced"),
        (lambda d: gp.NeighborSampler(d, [2], time_attr="edge_time", graph=gp.typed_graph_of(hetero())), TypeError, "timed_graph_of"),
        (lambda d: gp.NeighborLoader(d, [2], time_attr="node_time", device="cuda"), NotImplementedError, "without types and times"),
    ],
)  # fmt: skip
def test_bad_input_of_times_is_told(make, error, told):
    with pytest.raises(error, match=told):
        make(copy.copy(timed_data()))
