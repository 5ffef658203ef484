"""Typed graph as NumPy and safetensors write named arrays, and id pairs as SciPy writes their features, for the tests of
loaders. Usage: golden_typed.py FOLDER

Names have blanks, quotes and umlauts; counts are arrays without dimensions; features are float16 in Fortran order.
"""
import pathlib
import sys

import numpy as np
import scipy.sparse
from safetensors.numpy import save_file


def arrays():
    """Arrays as docs/formats.md exports them from PyG."""
    return {
        "paper.num_nodes": np.array(4),
        "author.num_nodes": np.array(3),
        "empty one.num_nodes": np.array(0),
        "paper.x": np.asfortranarray(np.arange(8, dtype=np.float16).reshape(4, 2)),
        "paper.y": np.array([[0], [1], [-1], [1]]),
        "paper.train_mask": np.array([True, False, False, False]),
        "paper.val_mask": np.array([False, True, False, False]),
        "paper.test_mask": np.array([False, False, False, True]),
        "author__writes__paper.edge_index": np.array([[0, 1, 2, 2], [0, 0, 1, 3]]),
        "author__writes__paper.edge_attr": np.zeros((4, 3)),
        'paper__größe "x"__empty one.edge_index': np.zeros((2, 0), dtype=np.int64),
    }


def write_pairs(folder):
    """Writes the layout of HeCo, with coo, csr, and an array by another name."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "pa.txt", [[0, 0], [1, 2], [3, 1], [3, 2]], fmt="%d", delimiter="\t")
    np.savetxt(folder / "ps.txt", [[0, 0], [1, 0], [2, 0], [3, 1]], fmt="%d", delimiter="\t")
    rows = np.array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0], [1, 1, 1]])
    scipy.sparse.save_npz(folder / "p_feat.npz", scipy.sparse.csr_matrix(rows))
    scipy.sparse.save_npz(folder / "a_feat.npz", scipy.sparse.coo_matrix(rows[:3, :2]))
    with open(folder / "s_feat.npz", "wb") as file:
        np.save(file, np.array([[0.5], [1.5]]))
    np.save(folder / "labels.npy", np.array([0.0, 1.0, 1.0, 0.0]))
    for part, nodes in [("train", [3, 0]), ("val", [1]), ("test", [2])]:
        np.save(folder / f"{part}_20.npy", np.array(nodes))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "hetero.npz", **arrays())
    save_file({name: np.asarray(value, order="C") for name, value in arrays().items()}, folder / "hetero.safetensors")
    write_pairs(folder / "pairs")


main()
