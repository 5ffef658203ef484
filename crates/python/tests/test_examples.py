"""Each example runs on miniature data, and prints what it promises."""

import pathlib
import runpy
import sys

import pytest

pytest.importorskip("torch")

FOLDER = pathlib.Path(__file__).parent.parent / "examples"
MINIATURE = "synth:planted,nodes=300,degree=8"
# Example: arguments beside --data, and a part of what it prints.
EXAMPLES = {
    "cluster_gcn": (["--epochs", "1", "--parts", "6"], "test 0."),
    "compressed_features": (["--epochs", "1"], "int8, "),
    "gcn_cora": (["--epochs", "1"], "test 0."),
    "graph_saint": (["--epochs", "1", "--walks", "30"], "test 0."),
    "links_in_time": (["--epochs", "1", "--data", "drawn"], "last links 0."),
    "lightgcn": (["--epochs", "1"], "ranked right 0."),
    "link_prediction": (["--epochs", "1"], "area under the curve 0."),
    "mapped_papers": (["--batches", "2", "--batch-size", "20"], "batch 1: loss"),
    "reordered_gcn": (["--epochs", "2"], "community: test 0."),
    "sage_dgl": (["--epochs", "1"], "test 0."),
    "sage_products": (["--epochs", "1", "--hidden", "16"], "test 0."),
    "typed_mag": (["--epochs", "1", "--data", "synth:ogbn-mag@0.0005,classes=4"], "test 0."),
}


def test_all_examples_are_listed():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, monkeypatch, capsys):
    pytest.importorskip("dgl" if "dgl" in name else "torch_geometric")
    arguments, expected = EXAMPLES[name]
    path = FOLDER / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 70
    monkeypatch.setattr(sys, "argv", [str(path), "--data", MINIATURE, *arguments])
    runpy.run_path(str(path), run_name="__main__")
    assert expected in capsys.readouterr().out
