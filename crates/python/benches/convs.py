"""Time of a full-batch step, forward and backward, of layers of `girih.nn` and of PyG's, on this CPU: JSON to stdout.

    OMP_WAIT_POLICY=passive python benches/convs.py --data synth:reddit@0.02 --width 128 --hidden 64

PyG's layers get an `edge_index`, and, where they take one, a `torch.sparse` CSR matrix (`"pyg sparse"`). Its GCN keeps the
normalised matrix from step to step, as girih does.
"""

import argparse
import json
import os
import platform
import statistics
import time

import torch
import torch_geometric
import torch_geometric.nn as pyg
from torch_geometric.utils import to_torch_csr_tensor

import girih
import girih.nn as gnn


def step(layer, x, graph, direction):
    """One forward and one backward pass; gradients are thrown away."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    layer(x, graph).backward(direction)


def milliseconds(run, repeats: int) -> dict:
    """Median, least and largest time of a call, after one that is not timed."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="synth:reddit@0.02", help="SPEC of the graph")
    parser.add_argument("--width", type=int, default=128, help="columns of x")
    parser.add_argument("--hidden", type=int, default=64, help="columns of the result")
    parser.add_argument("--heads", type=int, default=4, help="heads of GAT; they share the columns of the result")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--edge-index-bytes-max", type=float, default=4e9, help="leaves PyG's edge_index out above this size of messages")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    girih.set_num_threads(options.threads)
    torch.manual_seed(0)

    graph = girih.load(options.data).graph
    edges = torch.from_numpy(graph.edge_index())
    n, width, hidden, heads = graph.num_nodes, options.width, options.hidden, options.heads
    makers = {
        "GCNConv": lambda nn: nn.GCNConv(width, hidden, cached=True),
        "SAGEConv": lambda nn: nn.SAGEConv(width, hidden),
        "GATConv": lambda nn: nn.GATConv(width, hidden // heads, heads=heads),
        "GATv2Conv": lambda nn: nn.GATv2Conv(width, hidden // heads, heads=heads),
    }
    x = torch.randn(n, width, requires_grad=True)
    direction = torch.randn(n, hidden)
    layers = {}
    for name, make in makers.items():
        ours, theirs = make(gnn), make(pyg)
        theirs.load_state_dict(ours.state_dict())
        times = {"girih": milliseconds(lambda: step(ours, x, graph, direction), options.repeats)}
        if name in ("GCNConv", "SAGEConv"):
            sparse = to_torch_csr_tensor(edges.flip(0), size=(n, n))
            times["pyg sparse"] = milliseconds(lambda: step(theirs, x, sparse, direction), options.repeats)
            theirs.reset_parameters()
            theirs.load_state_dict(ours.state_dict())
        messages = 4.0 * graph.num_edges * (width if name == "SAGEConv" else hidden)
        if messages <= options.edge_index_bytes_max:
            times["pyg"] = milliseconds(lambda: step(theirs, x, edges, direction), options.repeats)
            with torch.no_grad():
                expected = theirs(x, edges)
                times["difference"] = ((ours(x, graph) - expected).abs().max() / expected.abs().max()).item()
        layers[name] = times
    print(
        json.dumps(
            {
                "data": options.data,
                "nodes": n,
                "edges": graph.num_edges,
                "width": width,
                "hidden": hidden,
                "heads": heads,
                "threads": options.threads,
                "machine": platform.processor() or platform.machine(),
                "girih": girih.__version__,
                "torch": torch.__version__,
                "torch_geometric": torch_geometric.__version__,
                "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
                "layers": layers,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
