"""What PyTorch Geometric computes on Cora: logits, loss and gradients of models whose weights come from one formula, in
float64 and without dropout, for `tests/tests/golden.rs`. Usage: golden_pyg.py FOLDER_OF_CORA OUTPUT_FOLDER

Parameters have girih's names, shapes (inputs × outputs) and order; element i of parameter number p is
sin(0.01·(i + 1)² + p) / √rows. Of every result, each 37th element and the sums of columns are kept.
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.io import read_planetoid_data
from torch_geometric.nn import GATConv, GCNConv, LGConv, SAGEConv, SGConv

STRIDE = 37
HIDDEN, HEADS, HEAD_WIDTH = 16, 8, 8
EMBEDDING, HOPS = 16, 3


class Parameters:
    """Hands out parameters by the formula, and remembers them by name."""

    def __init__(self):
        self.by_name = {}

    def next(self, name, rows, columns):
        i = np.arange(1, rows * columns + 1, dtype=np.float64)
        values = np.sin(0.01 * (i * i) + len(self.by_name)) / math.sqrt(rows)
        # Rounded like girih's, so that both compute with the same numbers.
        values = values.astype(np.float32).astype(np.float64).reshape(rows, columns)
        self.by_name[name] = torch.from_numpy(values).requires_grad_()
        return self.by_name[name]


def with_parameters(module, **values):
    """Calls `module` with `values` in the place of its own parameters: gradients then reach the values."""
    values = {name.replace("__", "."): value for name, value in values.items()}
    return lambda *inputs: torch.func.functional_call(module, values, inputs, strict=True)


def gcn(parameters, data, n_classes):
    hidden = data.x
    for layer, width in enumerate((HIDDEN, n_classes)):
        weight = parameters.next(f"layer{layer}.weight", hidden.shape[1], width)
        bias = parameters.next(f"layer{layer}.bias", 1, width)
        conv = GCNConv(hidden.shape[1], width).double()
        hidden = with_parameters(conv, lin__weight=weight.T, bias=bias[0])(hidden, data.edge_index)
        hidden = F.relu(hidden) if layer == 0 else hidden
    return hidden


def sage(parameters, data, n_classes):
    hidden = data.x
    for layer, width in enumerate((HIDDEN, n_classes)):
        own = parameters.next(f"layer{layer}.weight_own", hidden.shape[1], width)
        neighbors = parameters.next(f"layer{layer}.weight_neighbors", hidden.shape[1], width)
        bias = parameters.next(f"layer{layer}.bias", 1, width)
        conv = SAGEConv(hidden.shape[1], width).double()
        values = {"lin_r__weight": own.T, "lin_l__weight": neighbors.T, "lin_l__bias": bias[0]}
        hidden = with_parameters(conv, **values)(hidden, data.edge_index)
        hidden = F.relu(hidden) if layer == 0 else hidden
    return hidden


def sgc(parameters, data, n_classes):
    weight = parameters.next("layer0.weight", data.x.shape[1], n_classes)
    bias = parameters.next("layer0.bias", 1, n_classes)
    conv = SGConv(data.x.shape[1], n_classes, K=2).double()
    return with_parameters(conv, lin__weight=weight.T, lin__bias=bias[0])(data.x, data.edge_index)


def by_head(interleaved, heads):
    """Columns `k · heads + h`, as girih lays heads out, in PyG's order `h · width + k`."""
    rows, columns = interleaved.shape
    return interleaved.reshape(rows, columns // heads, heads).transpose(1, 2).reshape(rows, columns)


def interleaved(by_head, heads):
    """The way back of `by_head`."""
    rows, columns = by_head.shape
    return by_head.reshape(rows, heads, columns // heads).transpose(1, 2).reshape(rows, columns)


def gat(parameters, data, n_classes):
    hidden = data.x
    for layer, (heads, width) in enumerate(((HEADS, HEAD_WIDTH), (1, n_classes))):
        inputs, columns, concat = hidden.shape[1], heads * width, layer == 0
        weight = parameters.next(f"layer{layer}.weight_source", inputs, columns)
        destination = parameters.next(f"layer{layer}.attention_destination", 1, columns)
        source = parameters.next(f"layer{layer}.attention_source", 1, columns)
        bias = parameters.next(f"layer{layer}.bias", 1, columns if concat else width)
        conv = GATConv(inputs, width, heads, concat=concat, negative_slope=0.2).double()
        values = {
            "lin__weight": by_head(weight, heads).T,
            "att_dst": by_head(destination, heads).reshape(1, heads, width),
            "att_src": by_head(source, heads).reshape(1, heads, width),
            "bias": by_head(bias, heads)[0] if concat else bias[0],
        }
        hidden = with_parameters(conv, **values)(hidden, data.edge_index)
        hidden = interleaved(F.elu(hidden), heads) if concat else hidden
    return hidden


def lightgcn(parameters, data, _):
    """Embeddings of all nodes: the mean over 0 to HOPS hops. Their first columns stand in for logits."""
    embedding = parameters.next("layer0.embedding", data.num_nodes, EMBEDDING)
    conv, hops = LGConv(), [embedding]
    for _ in range(HOPS):
        hops.append(conv(hops[-1], data.edge_index))
    return torch.stack(hops).mean(0)


def sampled(name, matrix):
    flat = matrix.detach().reshape(-1)
    return {f"{name}.sample": flat[::STRIDE], f"{name}.sums": matrix.detach().sum(0)}


def write_safetensors(path, tensors):
    """The format in a dozen lines, so that no package is needed: header length, header, values in little-endian f32."""
    header, payload = {}, b""
    for name, tensor in tensors.items():
        values = tensor.numpy().astype("<f4").tobytes()
        span = [len(payload), len(payload) + len(values)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": span}
        payload += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def main():
    cora, out = sys.argv[1], pathlib.Path(sys.argv[2])
    data = read_planetoid_data(cora, "cora")
    data.x = data.x.double()
    n_classes = int(data.y.max()) + 1
    for model in (gcn, sage, sgc, gat, lightgcn):
        parameters = Parameters()
        logits = model(parameters, data, n_classes)
        loss = F.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        gradients = torch.autograd.grad(loss, list(parameters.by_name.values()))
        tensors = {"loss": loss.detach().reshape(1), **sampled("logits", logits)}
        for name, gradient in zip(parameters.by_name, gradients):
            tensors |= sampled(f"grad.{name}", gradient)
        write_safetensors(out / f"{model.__name__}.safetensors", tensors)
        print(model.__name__, "loss", float(loss), "largest logit", float(logits.abs().max()))


main()
