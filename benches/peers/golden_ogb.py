"""Miniatures of two link data sets of the Open Graph Benchmark, and the scores that its evaluator defines, computed in
NumPy, for `crates/trainer/tests/training/links/shipped.rs` and the tests of loaders. Usage: golden_ogb.py FOLDER

Embeddings are small integers, so that inner products are exact and many are equal. Splits are written as torch.save
wrote dictionaries of arrays before PyTorch 1.6: pickles, one after the other.
"""
import gzip
import pathlib
import pickle
import sys

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
NODES, WIDTH = 40, 11
HITS = [1, 5, 20, 50, 100]


def save(path, value):
    """Writes `value` as an old torch.save, which kept no tensors outside the pickle of arrays."""
    sizes = {"short": 2, "int": 4, "long": 4}
    header = {"protocol_version": VERSION, "little_endian": True, "type_sizes": sizes}
    with open(path, "wb") as file:
        for part in [MAGIC, VERSION, header, value, []]:
            pickle.dump(part, file, protocol=2)


def write_raw(root, edges):
    raw = root / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{u},{v}\n" for u, v in edges)
    for name, text in [("edge", lines), ("num-node-list", f"{NODES}\n"), ("num-edge-list", f"{len(edges)}\n")]:
        with gzip.GzipFile(raw / f"{name}.csv.gz", "wb", mtime=0) as file:
            file.write(text.encode())


def hits(k, positive, negative):
    """Share of positives above the k-th best negative; one with fewer negatives."""
    if len(negative) < k:
        return 1.0
    return float(np.sum(positive > np.sort(negative)[-k])) / len(positive)


def ranks(positive, negative):
    """Mean of the rank among larger scores, and of that among larger or equal ones."""
    above = (negative > positive[:, None]).sum(axis=1)
    not_below = (negative >= positive[:, None]).sum(axis=1)
    return 0.5 * (above + not_below) + 1


def main(folder):
    draws = np.random.default_rng(7)
    embeddings = draws.integers(-2, 3, (NODES, WIDTH)).astype(np.float32)

    def score(pairs):
        return (embeddings[pairs[:, 0]] * embeddings[pairs[:, 1]]).sum(axis=1)

    pairs = np.array([(u, v) for u in range(NODES) for v in range(u + 1, NODES)], dtype=np.int64)
    pairs = draws.permutation(pairs)
    train, val, test, negatives = np.split(pairs[:420], [200, 230, 270])
    ddi = folder / "ogbl_ddi"
    write_raw(ddi, train)
    split = ddi / "split" / "target"
    split.mkdir(parents=True, exist_ok=True)
    save(split / "train.pt", {"edge": train})
    save(split / "valid.pt", {"edge": val, "edge_neg": negatives[:70]})
    save(split / "test.pt", {"edge": test, "edge_neg": negatives[70:]})
    found = [[hits(k, score(val), score(negatives[:70])), hits(k, score(test), score(negatives[70:]))] for k in HITS]

    citation = folder / "ogbl_citation2"
    write_raw(citation, train)
    split = citation / "split" / "time"
    split.mkdir(parents=True, exist_ok=True)
    save(split / "train.pt", {"source_node": train[:, 0], "target_node": train[:, 1]})
    expected = []
    for name, edges in [("valid", val), ("test", test)]:
        others = draws.integers(0, NODES, (len(edges), 9))
        save(split / f"{name}.pt", {"source_node": edges[:, 0], "target_node": edges[:, 1], "target_node_neg": others})
        negative = (embeddings[edges[:, 0], None, :] * embeddings[others]).sum(axis=2)
        expected.append(ranks(score(edges), negative))

    np.save(folder / "embeddings.npy", embeddings)
    np.save(folder / "hits_at.npy", np.array(HITS))
    np.save(folder / "hits.npy", np.array(found, dtype=np.float64))
    np.save(folder / "ranks_val.npy", expected[0])
    np.save(folder / "ranks_test.npy", expected[1])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
