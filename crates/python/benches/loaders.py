"""Time of a batch in PyG's and DGL's loops, with girih's sampler and with their own. Prints JSON.

    python loaders.py --data ego-twitter.npz --out loaders.json

`--data` is an npz with `indptr` and `indices`, or with `edge_index`, or a SPEC of girih. Each figure is the time
of a batch, as the mean of an epoch of `--batches` batches: the least and the median of `--epochs` epochs. On a
shared machine the least ones are to be read: other work only adds to them.
"""

import argparse
import ctypes
import json
import os
import platform
import time
import warnings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: threads that spin take the cores of others
os.environ.setdefault("DGLBACKEND", "pytorch")

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as PygNeighborLoader
from torch_geometric.loader import NodeLoader

import girih
import girih.pyg


def keep_memory():
    """Tells glibc to keep freed memory: else each batch of the peers, which allocate anew, pays for fresh pages."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at most 32 MB
        libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
    except (AttributeError, OSError):
        print("the C library has no mallopt: peers pay for fresh memory")


def edges_of(spec):
    """Edges (2 × E, int64) and number of nodes."""
    if not spec.endswith(".npz"):
        graph = girih.load(spec).graph
        return graph.edge_index(), graph.num_nodes
    arrays = np.load(spec)
    if "edge_index" in arrays:
        return arrays["edge_index"].astype(np.int64), int(arrays["edge_index"].max()) + 1
    indptr = arrays["indptr"]
    destinations = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.stack([arrays["indices"].astype(np.int64), destinations]), len(indptr) - 1


def timed(make, options, read):
    """Milliseconds of a batch, and its mean number of edges; or the reason why there are none.

    An epoch is timed as a whole, so that its start and batches made ahead count in full. The first one is not timed.
    """
    try:
        loader, times = make(), []
        edges = [read(batch) for batch in loader]
        for _ in range(options.epochs):
            start, count = time.perf_counter(), 0
            for _ in loader:
                count += 1
            times.append(1e3 * (time.perf_counter() - start) / count)
    except Exception as error:  # a peer that lacks a library is a result, too
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {
        "ms_min": round(min(times), 3),
        "ms_median": round(float(np.median(times)), 3),
        "edges": round(float(np.mean(edges))),
    }


def seeds_of(n_nodes, options):
    """Seeds of an epoch (int64)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(n_nodes, generator=generator)[: options.batches * options.batch_size]


def pyg_cases(edge_index, n_nodes, options):
    """Name and maker of each loader of PyG's `Data`."""
    edges, seeds = torch.from_numpy(edge_index), seeds_of(n_nodes, options)
    bare = Data(edge_index=edges, num_nodes=n_nodes)
    x = torch.rand(n_nodes, options.features)
    rich = Data(edge_index=edges, x=x, y=torch.zeros(n_nodes, dtype=torch.int64))
    graph = girih.pyg.graph_of(bare, duplicates="merge")
    store = girih.FeatureStore(x.numpy())
    common = {"batch_size": options.batch_size, "shuffle": True}

    def node_loader(data):
        sampler = girih.pyg.NeighborSampler(data, options.fan_out, graph=graph)
        return lambda: NodeLoader(data, node_sampler=sampler, input_nodes=seeds, **common)

    def own(data, **more):
        more = {"threads": options.threads, **more}
        return lambda: girih.pyg.NeighborLoader(data, options.fan_out, seeds, graph=graph, **common, **more)

    def peer(data, workers=0):
        return lambda: PygNeighborLoader(data, options.fan_out, seeds, num_workers=workers, **common)

    yield "PyG NodeLoader over girih", node_loader(bare)
    yield "PyG NodeLoader over girih, features", node_loader(rich)
    yield "girih.pyg.NeighborLoader", own(bare)
    yield "girih.pyg.NeighborLoader, threads=0", own(bare, threads=0)
    yield "girih.pyg.NeighborLoader, features", own(rich)
    yield "girih.pyg.NeighborLoader, features, threads=0", own(rich, threads=0)
    yield "girih.pyg.NeighborLoader, features by int8", own(bare, x=store.encode("int8"))
    yield "girih.pyg.NeighborLoader, features by topk:8", own(bare, x=store.encode("topk:8"))
    yield "PyG NeighborLoader", peer(bare)
    yield "PyG NeighborLoader, features", peer(rich)


def dgl_cases(edge_index, n_nodes, options):
    """Name and maker of each loader of DGL's blocks."""
    import dgl

    import girih.dgl

    g = girih.dgl.to_dgl(girih.from_edge_index(edge_index, n_nodes, duplicates="merge"))
    graph = girih.dgl.graph_of(g)
    seeds, fan_out = seeds_of(n_nodes, options), options.fan_out[::-1]

    def own(index_dtype, threads=options.threads):
        kind = {"index_dtype": index_dtype, "threads": threads}
        return lambda: girih.dgl.NeighborLoader(
            graph, seeds, fan_out, batch_size=options.batch_size, shuffle=True, **kind
        )

    def peer(fused):
        sampler = dgl.dataloading.NeighborSampler(fan_out, fused=fused)
        return lambda: dgl.dataloading.DataLoader(g, seeds, sampler, batch_size=options.batch_size, shuffle=True)

    yield "girih.dgl.NeighborLoader, int64", own("int64")
    yield "girih.dgl.NeighborLoader, int64, threads=0", own("int64", 0)
    yield "girih.dgl.NeighborLoader, int32", own("int32")
    yield "DGL fused", peer(True)
    yield "DGL unfused", peer(False)


def graphbolt_case(edge_index, n_nodes, options):
    """Maker of GraphBolt's loader."""
    import dgl.graphbolt as gb

    order = np.argsort(edge_index[1], kind="stable")
    indptr = np.concatenate([[0], np.bincount(edge_index[1], minlength=n_nodes).cumsum()])
    graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(edge_index[0][order]))
    items = gb.ItemSet(seeds_of(n_nodes, options), names="seed_nodes")
    pipe = gb.ItemSampler(items, batch_size=options.batch_size, shuffle=True)
    return gb.DataLoader(pipe.sample_neighbor(graph, options.fan_out[::-1]))


def edges_of_graphbolt(batch):
    """Number of edges of all blocks."""
    return sum(subgraph.sampled_csc.indices.numel() for subgraph in batch.sampled_subgraphs)


def main():
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=80000,degree=33", help="npz or SPEC")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fan-out", type=lambda text: [int(n) for n in text.split(",")], default=[15, 10, 5])
    parser.add_argument("--features", type=int, default=100, help="features of a node")
    parser.add_argument("--batches", type=int, default=25, help="batches of an epoch")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="girih's threads that sample ahead")
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the names of cases to run")
    parser.add_argument("--out", help="file for the JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.torch_threads)
    keep_memory()
    warnings.filterwarnings("ignore")
    edge_index, n_nodes = edges_of(options.data)
    results = {}

    def run(name, make, read):
        if options.only in name:
            results[name] = timed(make, options, read)
            print(f"{name}: {results[name]}", flush=True)

    for name, make in pyg_cases(edge_index, n_nodes, options):
        run(name, make, lambda batch: batch.edge_index.shape[1])
    try:
        for name, make in dgl_cases(edge_index, n_nodes, options):
            run(name, make, lambda batch: sum(block.num_edges() for block in batch[2]))
        run("GraphBolt", lambda: graphbolt_case(edge_index, n_nodes, options), edges_of_graphbolt)
    except ImportError as error:
        results["DGL"] = {"failed": str(error)}
    described = {
        "data": os.path.basename(options.data),
        "nodes": n_nodes,
        "edges": edge_index.shape[1],
        "settings": {key: value for key, value in vars(options).items() if key not in ("data", "out")},
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "girih": girih.__version__},
        "results": results,
    }
    text = json.dumps(described, indent=1)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
