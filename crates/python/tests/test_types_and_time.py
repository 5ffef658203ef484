"""Graphs with types, and graphs whose edges have times: samplers, loaders and training, with NumPy alone."""

import pickle

import numpy as np
import pytest

import girih

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
REV = ("paper", "rev_writes", "author")
COUNTS = {"paper": 60, "author": 25}


def random_edges(seed=0):
    rng = np.random.default_rng(seed)

    def pairs(n_sources, n_destinations, n):
        drawn = rng.permutation(n_sources * n_destinations)[:n]
        return np.stack([drawn // n_destinations, drawn % n_destinations])

    writes = pairs(25, 60, 150)
    return {WRITES: writes, CITES: pairs(60, 60, 300), REV: writes[::-1].copy()}


def typed_graph(**options):
    return girih.TypedGraph(COUNTS, random_edges(), reverse_types={REV: WRITES}, **options)


def check(batch, edges, fan_out):
    """Edges of a batch are the data's, by their names; hops have the numbers that the fan-outs allow."""
    for of, ends in batch.edge_index.items():
        named = np.stack([batch.n_id[of[0]][ends[0]], batch.n_id[of[2]][ends[1]]])
        assert (named == edges[of][:, batch.e_id[of]]).all()
        by_hop = batch.num_sampled_edges[of]
        assert sum(by_hop) == ends.shape[1] and len(by_hop) == len(fan_out(of))
        first = 0
        for n, k in zip(by_hop, fan_out(of)):
            drawn = np.bincount(ends[1][first : first + n], minlength=1)
            assert k < 0 or drawn.max() <= k
            first += n
    for of, n_id in batch.n_id.items():
        assert len(np.unique(n_id)) == len(n_id) == sum(batch.num_sampled_nodes[of])


@pytest.mark.parametrize("replace", [False, True])
def test_typed_batches_hold_edges_of_the_graph(replace):
    edges, graph = random_edges(), typed_graph()
    assert graph.num_nodes == COUNTS and graph.num_edges == {of: e.shape[1] for of, e in edges.items()}
    assert graph.edge_types == list(edges) and graph.node_types == ["paper", "author"]
    rules = {WRITES: [3, 2], "cites": [4, 0], "*": [-1 if not replace else 5, 1]}
    fan_out = lambda of: rules.get(of, rules.get(of[1], rules["*"]))  # noqa: E731
    sampler = girih.TypedSampler(graph, rules, replace=replace)
    for number in range(5):
        batch = sampler.sample(("paper", np.arange(10) + number), seed=3, batch=number)
        assert batch.num_seeds == {"paper": 10} and batch.batch_size == 10 and batch.number == number
        assert (batch.n_id["paper"][:10] == np.arange(10) + number).all()
        check(batch, edges, fan_out)
    both = sampler.sample({"author": [3, 1], "paper": [5]}, seed=3)
    assert both.n_id["author"][:2].tolist() == [3, 1] and both.num_seeds == {"paper": 1, "author": 2}
    check(both, edges, fan_out)


def test_one_type_is_the_graph_without_types():
    edge_index = random_edges()[CITES]
    plain = girih.from_edge_index(edge_index, 60)
    typed = girih.TypedGraph({"paper": 60}, {CITES: edge_index})
    seeds = np.array([7, 3, 50])
    for expand in ("once", "per-layer"):
        expected = girih.Sampler(plain, [4, 3], expand=expand).sample(seeds, seed=5, epoch=1, batch=2)
        found = girih.TypedSampler(typed, [4, 3], expand=expand).sample(("paper", seeds), seed=5, epoch=1, batch=2)
        assert found.digest == expected.digest
        for block, one in zip(found.blocks(), expected.blocks()):
            assert block.num_src == {"paper": one.num_src} and block.num_dst == {"paper": one.num_dst}
            for ours, theirs in zip(block.csc()[CITES], one.csc()):
                assert (ours == theirs).all()
            assert (block.n_id["paper"] == one.n_id).all()
    with pytest.raises(ValueError, match="blocks"):
        found.edge_index  # noqa: B018
    listed = girih.TypedSampler(typed, [4, 3]).sample(("paper", seeds), seed=5)
    one = girih.Sampler(plain, [4, 3]).sample(seeds, seed=5)
    assert (listed.edge_index[CITES] == one.edge_index).all() and (listed.e_id[CITES] == one.e_id).all()
    assert listed.num_sampled_nodes["paper"] == one.num_sampled_nodes


def test_excluded_edges_and_their_reverses_are_not_drawn():
    graph = typed_graph()
    sampler = girih.TypedSampler(graph, [-1, -1, -1])
    gone = np.arange(0, 150, 2)
    batch = sampler.sample(("paper", np.arange(60)), exclude={WRITES: gone})
    assert not np.isin(batch.e_id[WRITES], gone).any() and not np.isin(batch.e_id[REV], gone).any()
    assert np.isin(np.arange(1, 150, 2), batch.e_id[WRITES]).all()
    with pytest.raises(IndexError, match="exclude names edge 150 of author.writes.paper"):
        sampler.sample(("paper", [0]), exclude={WRITES: [150]})
    with pytest.raises(ValueError, match="no edge type a.b.c"):
        sampler.sample(("paper", [0]), exclude={("a", "b", "c"): [0]})


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_typed_loaders_are_the_same_on_any_threads(threads):
    graph = typed_graph()
    x = {"paper": np.arange(60, dtype=np.float32)[:, None].repeat(3, 1), "author": np.arange(25, dtype=np.float32)[:, None]}
    loader = girih.NeighborLoader(graph, ("paper", np.arange(60)), [3, 2], batch_size=16, seed=4, threads=threads, features=x)
    expected = girih.NeighborLoader(graph, ("paper", np.arange(60)), [3, 2], batch_size=16, seed=4, threads=0)
    for made in (loader, pickle.loads(pickle.dumps(loader))):
        assert len(made) == 4
        batches = list(made)
        assert [b.digest for b in batches] == [b.digest for b in expected.epoch(0)]
        for batch in batches:
            assert (batch.x["paper"][:, 0] == batch.n_id["paper"]).all() and batch.x["paper"].shape[1] == 3
            assert (batch.x["author"][:, 0] == batch.n_id["author"]).all()
    assert [b.digest for b in loader] == [b.digest for b in expected.epoch(1)]


def test_typed_graphs_and_samplers_pickle():
    graph = typed_graph()
    sampler = girih.TypedSampler(graph, {"writes": [3], "*": [2]}, replace=True)
    again = pickle.loads(pickle.dumps(sampler))
    first, second = (s.sample(("paper", [4, 8]), seed=1) for s in (sampler, again))
    assert first.digest == second.digest
    assert all((first.e_id[of] == second.e_id[of]).all() for of in first.e_id)
    excluded = again.sample(("author", [0]), exclude={WRITES: np.arange(150)})
    assert excluded.num_sampled_edges[REV] == [0]


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: girih.TypedGraph({"paper": 3}, {WRITES: [[0], [0]]}), ValueError, "num_nodes has no type \"author\""),
        (lambda: girih.TypedGraph(COUNTS, {WRITES: [[25], [0]]}), IndexError, "author.writes.paper: edge 0 is node 25"),
        (lambda: girih.TypedGraph(COUNTS, {WRITES: [[0], [60]]}), IndexError, "destination of edge_index of author"),
        (lambda: girih.TypedGraph(COUNTS, {WRITES: [[0, 0], [1, 1]]}), ValueError, "duplicates=\"merge\""),
        (lambda: girih.TypedGraph(COUNTS, {WRITES: np.zeros((3, 2), int)}), ValueError, "has shape"),
        (lambda: girih.TypedGraph(COUNTS, {"writes": [[0], [0]]}), TypeError, "three names"),
        (lambda: girih.TypedGraph(COUNTS, random_edges(), reverse_types={CITES: WRITES}), ValueError, "is no reverse"),
        (lambda: girih.TypedSampler(typed_graph(), {"likes": [2]}), ValueError, "names the edge type \"likes\""),
        (lambda: girih.TypedSampler(typed_graph(), {"writes": [2]}), ValueError, "says nothing of the edge type"),
        (lambda: girih.TypedSampler(typed_graph(), [2], draws="labor"), TypeError, "has no argument draws"),
        (lambda: girih.TypedSampler(typed_graph(), [-2]), ValueError, "takes -2 neighbors"),
        (lambda: sampled(("paper", [60])), IndexError, "paper seed 0 is node 60"),
        (lambda: sampled(("paper", [1, 1])), ValueError, "node 1 is a seed twice"),
        (lambda: sampled(("venue", [0])), ValueError, "no node type \"venue\"; it has paper, author"),
        (lambda: sampled([0, 1]), TypeError, "seeds of a typed graph"),
        (lambda: girih.NeighborLoader(typed_graph(), ("paper", [0]), [2], features={"author": np.zeros((3, 1))}),
         ValueError, "features of author: 3 rows for 25 nodes"),
    ],
)  # fmt: skip
def test_bad_typed_input_is_told(make, error, told):
    with pytest.raises(error, match=told):
        make()


def sampled(seeds):
    return girih.TypedSampler(typed_graph(), [2]).sample(seeds)


# Times


def timed(n=40, e=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, (2, e)), rng.integers(0, 100, e)


def check_timed(batch, edge_index, times, bounds, is_seen):
    names, (source, to) = batch.e_id, batch.edge_index
    assert (np.stack([batch.n_id[source], batch.n_id[to]]) == edge_index[:, names]).all()
    assert (batch.batch[source] == batch.batch[to]).all()
    assert is_seen(times[names], bounds[batch.batch[to]]).all()


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("options", [{}, {"before": "seed"}, {"until": "seed", "strategy": "last"}, {"window": 20}])
def test_seeds_see_nothing_of_their_future(options, threads):
    edge_index, times = timed()
    graph = girih.TimedGraph.from_edge_index(edge_index, times, 40)
    assert (graph.num_nodes, graph.num_edges, graph.span) == (40, 400, (times.min(), times.max()))
    assert (graph.edge_index() == edge_index).all() and (graph.times() == times).all()
    seeds, at = np.arange(40).repeat(2), np.tile([30, 70], 40)
    loader = girih.NeighborLoader(graph, seeds, [4, 3], times=at, batch_size=32, seed=6, threads=threads, **options)
    window = options.get("window", 1000)
    seen = lambda t, bound: (t < bound if "before" in options else t <= bound) & (t >= bound - window)  # noqa: E731
    for number, batch in enumerate(loader):
        assert batch.number == number and (batch.batch[: batch.batch_size] == np.arange(batch.batch_size)).all()
        # A node is a seed at two times; the later one bounds both.
        check_timed(batch, edge_index, times, np.full(batch.batch_size, 70), lambda t, bound: t <= bound)
    assert number == 2
    sampler = girih.Sampler.timed(graph, [4, 3], **options)
    batch = sampler.sample(seeds, times=at, seed=1)
    check_timed(batch, edge_index, times, at, seen)
    again = pickle.loads(pickle.dumps(sampler)).sample(seeds, times=at, seed=1)
    assert again.digest == batch.digest


def test_deleting_the_future_changes_no_batch():
    edge_index, times = timed()
    late = np.concatenate([edge_index, np.random.default_rng(1).integers(0, 40, (2, 300))], axis=1)
    later = np.concatenate([times, np.full(300, 51)])
    seeds, at = np.arange(40), np.full(40, 50)
    for options in ({}, {"before": "path"}, {"until": "batch"}, {"strategy": "last"}, {"replace": True}):
        with_future, without = (
            girih.Sampler.timed(girih.TimedGraph.from_edge_index(e[:, t <= 50], t[t <= 50], 40), [3, 3], **options)
            if keep else girih.Sampler.timed(girih.TimedGraph.from_edge_index(e, t, 40), [3, 3], **options)
            for e, t, keep in ((late, later, False), (edge_index, times, True))
        )  # fmt: skip
        first, second = (s.sample(seeds, times=at, seed=9) for s in (with_future, without))
        assert (first.n_id == second.n_id).all() and (first.edge_index == second.edge_index).all()


def test_bounds_of_batches_and_repeated_seeds():
    edge_index, times = timed()
    graph = girih.TimedGraph.from_edge_index(edge_index, times)
    seeds, at = np.array([3, 3, 9]), np.array([40, 60, 50])
    shared = girih.Sampler.timed(graph, [-1], until="batch").sample(seeds, times=at)
    assert shared.batch is None and shared.n_id[:3].tolist() == [3, 3, 9]
    assert (times[shared.e_id] <= 40).all()
    each = girih.Sampler.timed(graph, [-1]).sample(seeds, times=at)
    for i in range(3):
        into = np.flatnonzero((edge_index[1] == seeds[i]) & (times <= at[i]))
        assert sorted(each.e_id[each.edge_index[1] == i]) == into.tolist()
    last = girih.Sampler.timed(graph, [2], strategy="last").sample(seeds, times=at)
    for i in range(3):
        into = np.sort(times[(edge_index[1] == seeds[i]) & (times <= at[i])])[-2:]
        assert times[last.e_id[last.edge_index[1] == i]].tolist() == into.tolist()
    blocks = girih.Sampler.timed(graph, [3, 2], expand="per-layer").sample(seeds, times=at).blocks()
    assert [b.num_dst for b in blocks][-1] == 3


def digest_of(words):
    """Digest of several batches, as `girih sample` prints it."""
    digest, low = 0xCBF29CE484222325, (1 << 64) - 1
    for word in (len(words), *words):
        mixed = (digest ^ word) * 0x9E3779B97F4A7C15 & low
        digest = mixed ^ mixed >> 32
    return f"{digest:016x}"


@pytest.mark.parametrize(
    ("bound", "expand", "expected"),
    [
        ("batch", "once", "74c261157a87368a"),
        ("batch", "per-layer", "9f7baeb820de7646"),
        ("seed", "once", "4f082774c354b376"),
        ("seed", "per-layer", "a5ed1df65e610aa0"),
    ],
)
def test_batches_are_those_of_the_command_line(bound, expand, expected, tmp_path):
    # girih sample messages.csv --before BOUND --expand EXPAND --fanout 4,3 --batch-size 64 --seed 5
    path = tmp_path / "messages.csv"
    path.write_text("source,target,time\n" + "".join(f"{7 * i % 13},{(5 * i + 3) % 11},{i // 2}\n" for i in range(200)))
    graph = girih.load(path, times=True).timed_graph  # in both directions
    ends, times = graph.edge_index(), graph.times()
    order = np.lexsort((np.arange(200), times))
    sampler = girih.Sampler.timed(graph, [4, 3], before=bound, expand=expand, edge_ids=False)
    for made in (sampler, pickle.loads(pickle.dumps(sampler))):
        digests = []
        for number in range(4):
            of_batch = order[64 * number :][:64]
            seeds, at = ends[:, of_batch].T.reshape(-1), times[of_batch].repeat(2)
            digests.append(made.sample(seeds, times=at, seed=5, batch=number).digest)
        assert digest_of(digests) == expected
    assert (sampler.sample([0, 0], times=[50, 60]).batch is None) == (bound == "batch")


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda g: girih.TimedGraph.from_edge_index([[0], [1]], [1, 2]), ValueError, "2 times for 1"),
        (lambda g: girih.TimedGraph.from_edge_index([[0], [1]], [1.5]), TypeError, "give integers"),
        (lambda g: girih.TimedGraph.from_edge_index([[0], [9]], [1], 3), IndexError, "destination of edge 0 is node 9"),
        (lambda g: girih.Sampler.timed(g, [2]).sample([0]), TypeError, "give the times of the seeds"),
        (lambda g: girih.Sampler.timed(g, [2]).sample([0], times=[1, 2]), ValueError, "2 times for 1"),
        (lambda g: girih.Sampler.timed(g, [2], until="seed", before="seed"), ValueError, "exclude each other"),
        (lambda g: girih.Sampler.timed(g, [2], until="now"), ValueError, "choose one of seed, path, batch"),
        (lambda g: girih.Sampler.timed(g, [2], strategy="first"), ValueError, "choose one of uniform, last"),
        (lambda g: girih.Sampler.timed(g, [2], strategy="last", replace=True), ValueError, "without replacement"),
        (lambda g: girih.Sampler.timed(g, [2]).sample([0], times=[1], exclude=[0]), ValueError, "without times"),
        (lambda g: girih.Sampler(girih.from_edge_index([[0], [1]]), [2]).sample([0], times=[1]), TypeError, "TimedGraph"),
        (lambda g: girih.NeighborLoader(g, [0], [2]), TypeError, "times of the seeds"),
    ],
)  # fmt: skip
def test_bad_timed_input_is_told(make, error, told):
    with pytest.raises(error, match=told):
        make(girih.TimedGraph.from_edge_index([[0], [1]], [5]))


# Data


def test_loaded_data_has_its_types():
    data = girih.load("synth:ogbn-mag@0.0005,seed=2")
    graph = data.typed_graph
    assert data.target == "paper" and set(graph.num_nodes) == {"paper", "author", "institution", "field_of_study"}
    n_papers = graph.num_nodes["paper"]
    assert len(data.y) == n_papers and all(part.max() < n_papers for part in data.split)
    store = data.type_features["paper"]
    assert store.shape == (n_papers, 128) and set(data.type_features) == {"paper"}
    assert girih.load("synth:planted,nodes=50,degree=4,features=4,classes=2").typed_graph is None
    loader = girih.NeighborLoader(graph, ("paper", data.split[0]), [4, 2], batch_size=64, features=data.type_features)
    batch = next(iter(loader))
    assert (batch.x["paper"] == store.gather(batch.n_id["paper"])).all()


def test_reverses_of_edge_types_are_added_or_merged():
    numbers = {
        rule: len(girih.load("synth:ogbn-mag@0.0005", reverse=rule).typed_graph.edge_types)
        for rule in (None, True, "add", "merge", "no", False)
    }
    assert numbers == {None: 8, True: 8, "add": 8, "merge": 7, "no": 4, False: 4}  # papers cite papers
    with pytest.raises(ValueError, match="expected add, merge or no"):
        girih.load("synth:ogbn-mag@0.0005", reverse="both")
    with pytest.raises(TypeError):
        girih.load("synth:ogbn-mag@0.0005", reverse=3)


def test_types_train_from_arrays_as_from_files():
    data = girih.load("synth:ogbn-mag@0.0005,seed=2,classes=5")
    graph = data.typed_graph
    edges = graph.edge_index()
    again = girih.TypedGraph(graph.num_nodes, edges)
    x = {"paper": data.type_features["paper"].rows}
    made = girih.Dataset.of_types(again, "paper", x, data.y, data.split)
    assert made.num_classes == data.num_classes and made.typed_graph.num_edges == graph.num_edges
    settings = dict(model="rgcn", epochs=2, hidden=8, device="cpu", seed=1)
    for options in ({}, dict(batch="neighbor", batch_size=64, fanout={"cites": [3, 2], "*": [2, 2]})):
        scores = [girih.train(of, **settings, **options).runs[0].last for of in (data, made)]
        assert scores[0]["val_accuracy"] == scores[1]["val_accuracy"]
    with pytest.raises(ValueError, match="no node type \"venue\""):
        girih.Dataset.of_types(again, "venue")
    with pytest.raises(ValueError, match="paper"):
        girih.Dataset.of_types(again, "paper", {"paper": np.zeros((3, 2), np.float32)})


def test_lists_with_times_train(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["source,target,time,stars"]
    lines += [f"{a},{b},{t},{s}" for t, (a, b, s) in enumerate(zip(*rng.integers(0, 30, (2, 300)), rng.integers(1, 5, 300)))]
    path = tmp_path / "messages.csv"
    path.write_text("\n".join(lines))
    data = girih.load(path, symmetrize=False, edge_features=["stars"])
    assert girih.load(path).timed_graph is None and girih.load(path, times=True).timed_graph.num_edges == 300
    assert data.timed_graph.num_edges == 300 and data.timed_graph.span == (0, 299)
    settings = dict(
        model="gine", task="links", batch="neighbor", fanout=[4, 2], before="seed", time_strategy="last",
        edge_features=["stars"], features_from="degree", epochs=1, hidden=8, batch_size=64, device="cpu",
    )  # fmt: skip
    first, second = (girih.train(of, **settings).runs[0].best for of in (path, girih.load(path, edge_features=["stars"])))
    assert first == second and 0 <= first["test_roc_auc"] <= 1
