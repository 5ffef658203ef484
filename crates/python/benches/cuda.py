"""Time of a training step of GraphSAGE on a GPU, by who makes the batches and who computes the layers: JSON to stdout.

    python benches/cuda.py --data synth:products --rounds 3

- "model alone": PyG's layers on batches that were made before, each on the edges of its hops: what a loader can reach.
- "pyg": the same on `girih.pyg.NeighborLoader(device="cuda")`; "pyg, host": with features on the host.
- "example alone", "example": the model of PyG's examples, whose layers all read all edges of the batch.
- "example, PyG's loader": the same on PyG's `NeighborLoader`, with `--workers` processes, where `--sampler` names the
  library of its operator torch_sparse::neighbor_sample. Take it alone: its processes sample ahead in the turns of others.
- "nn f32", "nn bf16": `girih.nn.GraphSAGE` on blocks of `girih.cuda.NeighborLoader`; bfloat16 under autocast.
- "layers f32", "layers bf16": the same by layers, `girih.nn.SAGEConv`.
- "batches": the loader alone.
- "train f32", "train bf16": a whole training by `girih.train`, from the time of its epochs.
- "wholegraph", "wholegraph, host": WholeGraph's sampler and gather, PyG's layers on its blocks, where it is installed.

All variants take the same numbers of steps in turns, round by round. A step is forward pass, loss, backward pass and Adam.
"""

import argparse
import itertools
import json
import os
import platform
import random
import socket
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import girih
import girih.cuda
import girih.nn
import girih.pyg


def widths(options, data) -> list[tuple[int, int]]:
    sizes = [data.x.shape[1], *[options.hidden] * (len(options.fan_out) - 1), int(data.y.max()) + 1]
    return list(zip(sizes, sizes[1:]))


class Whole(torch.nn.Module):
    """The model as PyG's examples have it: every layer reads all edges of the batch."""

    def __init__(self, sizes):
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(*pair) for pair in sizes)

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class ByHops(Whole):
    """The model on the edges of its hops: `parts` has those of each layer, and the number of its destinations."""

    def forward(self, x, parts):
        for at, (conv, (edge_index, n_destinations)) in enumerate(zip(self.convs, parts)):
            x = conv((x, x[:n_destinations]), edge_index)
            if at + 1 < len(self.convs):
                x = x.relu()
        return x


def parts_of(batch):
    """Edges and number of destinations of each layer, of a batch of `girih.pyg`."""
    nodes = list(itertools.accumulate(batch.num_sampled_nodes))
    edges = list(itertools.accumulate(batch.num_sampled_edges))
    return [(batch.edge_index[:, : edges[hop]], nodes[hop]) for hop in reversed(range(len(edges)))]


class Blocks(torch.nn.Module):
    """The model of `girih.nn` on blocks."""

    def __init__(self, sizes):
        super().__init__()
        self.convs = torch.nn.ModuleList(girih.nn.SAGEConv(*pair) for pair in sizes)

    def forward(self, x, blocks):
        for conv, block in zip(self.convs, blocks):
            x = conv(x, block, activation=None if conv is self.convs[-1] else "relu")
        return x


def trained(model, forward):
    """Step on a batch; `forward` gives its logits and labels."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def step(batch):
        out, y = forward(model, batch)
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward()
        optimizer.step()

    return step


def forever(loader):
    while True:
        yield from loader


class WholeGraph:
    """WholeGraph's sampler and rows, of which a copy is in memory of the GPU or of the host."""

    def __init__(self, data, graph, options, location):
        import pylibwholegraph.torch as wholegraph

        self.world = WholeGraph.join(wholegraph)
        kind = next(kind for kind in ("continuous", "chunked", "distributed") if self.world.support_type_location(kind, "cuda"))

        def placed(values, location):
            store = wholegraph.create_wholememory_tensor(self.world, kind, location, list(values.shape), values.dtype, None)
            store.get_local_tensor(host_view=location == "cpu")[0].copy_(values)
            return store

        indptr, indices = graph.csr
        self.graph = wholegraph.GraphStructure()
        self.graph.set_csr_graph(
            placed(torch.from_numpy(np.asarray(indptr, np.int64)), "cuda"), placed(torch.from_numpy(np.asarray(indices, np.int32)), "cuda")
        )
        self.rows = placed(data.x, location)
        self.labels, self.train = data.y.cuda(), data.train_mask.nonzero().view(-1).int().cuda()
        self.options = options

    @staticmethod
    def join(wholegraph, worlds=[]):
        if not worlds:
            random.seed(0)
            with socket.socket() as probe:
                probe.bind(("localhost", 0))
                os.environ.setdefault("MASTER_ADDR", "localhost")
                os.environ.setdefault("MASTER_PORT", str(probe.getsockname()[1]))
            worlds.append(wholegraph.init_torch_env_and_create_wm_comm(0, 1, 0, 1, wm_log_level="error")[0])
        return worlds[0]

    def __iter__(self):
        for seeds in self.train[torch.randperm(len(self.train), device="cuda")].split(self.options.batch_size):
            nodes, edges, _, _ = self.graph.multilayer_sample_without_replacement(seeds, self.options.fan_out)
            yield nodes, [edge.long() for edge in edges], self.rows.gather(nodes[0]), self.labels[seeds.long()]

    @staticmethod
    def forward(model, batch):
        nodes, edges, x, y = batch
        return model(x, [(each, len(nodes[at + 1])) for at, each in enumerate(edges)]), y


class OfPyg:
    """Batches of PyG's own loader, copied to the GPU."""

    def __init__(self, data, graph, options):
        import torch_geometric.typing
        from torch_geometric.loader import NeighborLoader

        torch.ops.load_library(options.sampler)
        torch_geometric.typing.WITH_TORCH_SPARSE = True
        indptr, indices = (torch.from_numpy(np.asarray(part, np.int64)) for part in graph.csr)
        edge_index = torch.stack([indices, torch.repeat_interleave(indptr.diff())])
        self.loader = NeighborLoader(
            Data(x=data.x, y=data.y, edge_index=edge_index), options.fan_out, data.train_mask, batch_size=options.batch_size, shuffle=True, pin_memory=True,
            num_workers=options.workers, persistent_workers=True, prefetch_factor=4,
        )  # fmt: skip

    def __iter__(self):
        return (batch.to("cuda", non_blocking=True) for batch in self.loader)


def variants(data, graph, options):
    """Name, batches and step of each."""
    sizes = widths(options, data)
    on_gpu = girih.cuda.Graph(graph)

    def of_pyg(**given):
        return girih.pyg.NeighborLoader(
            data, options.fan_out, data.train_mask, batch_size=options.batch_size, shuffle=True, graph=graph, device=on_gpu,
            edge_ids=False, **given,
        )  # fmt: skip

    def by_hops(model, batch):
        return model(batch.x, parts_of(batch)), batch.y[: batch.batch_size]

    def whole(model, batch):
        return model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size]

    def blocks(model, batch):
        return model(batch.x, batch.blocks()), batch.y

    def in_bf16(model, batch):
        with torch.autocast("cuda", torch.bfloat16):
            out, labels = blocks(model, batch)
        return out.float(), labels

    def of_cuda(dtype):
        rows = girih.cuda.FeatureStore(data.x, dtype=dtype)
        seeds = data.train_mask.nonzero().view(-1)
        return girih.cuda.NeighborLoader(
            on_gpu, seeds, options.fan_out, batch_size=options.batch_size, features=rows, labels=data.y, edge_ids=False
        )

    made = []
    for batch in of_pyg():
        made.append(batch)
        if len(made) == 20:
            break
    yield "model alone", made, trained(ByHops(sizes).cuda(), by_hops)
    yield "pyg", of_pyg(), trained(ByHops(sizes).cuda(), by_hops)
    yield "pyg, host", of_pyg(placement="host"), trained(ByHops(sizes).cuda(), by_hops)
    yield "pyg, host, cache 0.2", of_pyg(placement="host", cache=0.2), trained(ByHops(sizes).cuda(), by_hops)
    yield "example alone", made, trained(Whole(sizes).cuda(), whole)
    yield "example", of_pyg(), trained(Whole(sizes).cuda(), whole)
    if options.sampler:
        yield "example, PyG's loader", OfPyg(data, graph, options), trained(Whole(sizes).cuda(), whole)

    def of_nn():
        return girih.nn.GraphSAGE(sizes[0][0], options.hidden, len(sizes), sizes[-1][1]).cuda()

    yield "nn f32", of_cuda("float32"), trained(of_nn(), blocks)
    yield "nn bf16", of_cuda("bfloat16"), trained(of_nn(), in_bf16)
    yield "layers f32", of_cuda("float32"), trained(Blocks(sizes).cuda(), blocks)
    yield "layers bf16", of_cuda("bfloat16"), trained(Blocks(sizes).cuda(), in_bf16)
    yield "batches", of_cuda("float32"), lambda batch: (batch.edge_index, batch.x)
    try:
        import pylibwholegraph  # noqa: F401
    except ImportError:
        return
    for name, location in (("wholegraph", "cuda"), ("wholegraph, host", "cpu")):
        loader = WholeGraph(data, graph, options, location)
        yield name, loader, trained(ByHops(sizes).cuda(), WholeGraph.forward)
    yield "batches of wholegraph", WholeGraph(data, graph, options, "cuda"), lambda batch: batch


def milliseconds(batches, step, n_steps) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n_steps):
        step(next(batches))
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / n_steps


def profiled(batches, step) -> None:
    """Prints the operations of some steps, by time on the GPU and on the host."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        milliseconds(batches, step, 20)
    for order in ("self_cuda_time_total", "self_cpu_time_total"):
        print(found.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=60))


def of_training(dataset, options, precision) -> dict:
    """Time of a batch of `girih.train`, by the epochs after the first."""
    outcome = girih.train(
        dataset, model="sage", batch="neighbor", layers=len(options.fan_out), hidden=options.hidden, batch_size=options.batch_size,
        fanout=",".join(map(str, options.fan_out)), precision=precision, device="cuda", epochs=4, eval_every=4, dropout=0.0,
    )  # fmt: skip
    n_batches = -(-len(dataset.split[0]) // options.batch_size)
    seconds = [float(each) for each in outcome.curves["seconds"][1:]]
    return {"median_ms": 1e3 * statistics.median(seconds) / n_batches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:products", help="SPEC of the data set")
    parser.add_argument("--fan-out", type=lambda text: [int(k) for k in text.split(",")], default=[15, 10, 5])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100, help="steps of a variant in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sampler", metavar="LIBRARY", help="library of the operator that PyG's own loader samples by")
    parser.add_argument("--workers", type=int, default=14, help="worker processes of PyG's own loader")
    parser.add_argument("--no-train", action="store_true", help="leave girih.train out")
    parser.add_argument("--only", action="append", metavar="NAME", help="take this variant alone; may be given repeatedly")
    parser.add_argument("--profile", action="store_true", help="print the operations of each variant instead of times")
    options = parser.parse_args()
    torch.manual_seed(0)

    dataset = girih.load(options.data)
    graph = dataset.graph
    data = Data(x=torch.from_numpy(np.array(dataset.x)), y=torch.from_numpy(np.array(dataset.y)).long(), edge_index=None)
    data.train_mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    data.train_mask[torch.from_numpy(np.array(dataset.split[0]))] = True

    running = []
    for name, loader, step in variants(data, graph, options):
        if options.only and name not in options.only:
            continue
        running.append((name, forever(loader), step, []))
        milliseconds(running[-1][1], step, 20)
    if options.profile:
        for name, batches, step, _ in running:
            print(name)
            profiled(batches, step)
        return
    for _ in range(options.rounds):
        for _, batches, step, times in running:
            times.append(milliseconds(batches, step, options.steps))
    for name, _, _, times in running:
        print(f"{name}: {statistics.median(times):.3f} ms", file=sys.stderr)
    results = {
        name: {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times)} for name, _, _, times in running
    }
    del running
    if not options.no_train:
        results |= {f"train {short}": of_training(dataset, options, precision) for short, precision in (("f32", "f32"), ("bf16", "bf16"))}
    print(json.dumps({
        "data": options.data, "nodes": graph.num_nodes, "edges": graph.num_edges, "fan_out": options.fan_out,
        "batch_size": options.batch_size, "hidden": options.hidden, "steps": options.steps, "rounds": options.rounds,
        "gpu": torch.cuda.get_device_name(), "python": platform.python_version(), "torch": torch.__version__,
        "pyg": torch_geometric.__version__, "girih": girih.__version__, "results": results,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
