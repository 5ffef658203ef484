"""Both directions of a comparison of weights, for `weights_pyg.py` and `weights_dgl.py`.

A folder has `data`, a girih folder of an undirected graph with dense features, and for each classifier `MODEL.EXT`, as
`girih export` writes it, and `MODEL-logits.npy` of `girih predict --logits`. Models have their default settings, two
layers where these do not say otherwise. It may have `ratings`, a folder of LightGCN, with `lightgcn.EXT` and
`lightgcn-items.npy` of `girih predict`. Each file is loaded into the library's layers, and results are compared. New
weights are written as `MODEL-LIBRARY.EXT` with their results, for `girih import`.
"""

import pathlib
import sys

import numpy
import safetensors.numpy
import torch

TOP = 20


class Folder:
    """Folder of files to compare, in the names of a library."""

    def __init__(self, path, library, extension):
        self.path, self.library, self.extension = pathlib.Path(path), library, extension
        self.worst = 0.0

    def data(self):
        """Sources, destinations and features of the graph, and the number of classes."""
        read = lambda name: numpy.load(self.path / "data" / f"{name}.npy")
        indptr, sources = read("indptr"), read("indices").astype(numpy.int64)
        destinations = numpy.repeat(numpy.arange(len(indptr) - 1), numpy.diff(indptr).astype(numpy.int64))
        classes = numpy.load(self.path / "gcn-logits.npy").shape[1]
        return torch.from_numpy(sources), torch.from_numpy(destinations), torch.from_numpy(read("features")), classes

    def ratings(self):
        """Number of users, and users and items of the training pairs; items count from the number of users."""
        lines = (self.path / "ratings" / "train.txt").read_text().splitlines()
        pairs = [(int(user), int(item)) for user, *items in map(str.split, lines) for item in items]
        users, items = torch.tensor(pairs).T
        return len(lines), users, items + len(lines)

    def write(self, model, state, kind, result):
        """Writes new weights of the library, and their result."""
        state = {key: value.numpy() for key, value in state.items()}
        file = self.path / f"{model}-{self.library}.{self.extension}"
        numpy.savez(file, **state) if self.extension == "npz" else safetensors.numpy.save_file(state, file)
        numpy.save(self.path / f"{model}-{self.library}-{kind}.npy", result)

    def read(self, model, kind):
        """Weights and result of girih."""
        file = self.path / f"{model}.{self.extension}"
        state = dict(numpy.load(file)) if self.extension == "npz" else safetensors.numpy.load_file(file)
        return {key: torch.from_numpy(value) for key, value in state.items()}, numpy.load(self.path / f"{model}-{kind}.npy")

    def compare(self, model, module, forward):
        """Compares logits of `forward(module)` in both directions."""
        with torch.no_grad():
            self.write(model, module.state_dict(), "logits", forward(module).numpy())
            state, expected = self.read(model, "logits")
            module.load_state_dict(state)
            off = float(numpy.abs(forward(module).numpy() - expected).max() / max(1.0, numpy.abs(expected).max()))
        self.worst = max(self.worst, off)
        print(f"{model}: {len(state)} tensors, largest difference of logits {off:.2e}")

    def compare_items(self, module, embeddings):
        """Compares the best items of each user by `embeddings(module)`, without those of the training."""
        n_users, users, items = self.ratings()

        def best():
            rows = embeddings(module)
            scores = rows[:n_users] @ rows[n_users:].T
            scores[users, items - n_users] = -torch.inf
            return scores.topk(TOP).indices.numpy()

        with torch.no_grad():
            self.write("lightgcn", module.state_dict(), "items", best())
            state, expected = self.read("lightgcn", "items")
            module.load_state_dict(state)
            equal = (best() == expected).all()
        print(f"lightgcn: {len(state)} tensors, {'the same' if equal else 'other'} items for {n_users} users")
        self.worst = max(self.worst, 0.0 if equal else 1.0)

    def end(self):
        """Ends the program, with an error if results differ."""
        sys.exit(0 if self.worst < 1e-5 else f"results differ by {self.worst:.2e}")


def shake(module, fixed=lambda name: False):
    """Adds noise to all parameters: biases start at zero, where an error of their place would not show."""
    with torch.no_grad():
        for name, param in module.named_parameters():
            param.zero_() if fixed(name) else param.add_(0.1 * torch.randn_like(param))
    return module.eval()
