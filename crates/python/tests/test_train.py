"""Whole trainings from Python, with NumPy alone."""

import os
import signal
import threading

import numpy as np
import pytest

import girih

SPEC = "synth:planted,nodes=400,degree=8,features=16,classes=4"
QUICK = dict(epochs=12, hidden=8, device="cpu")


@pytest.fixture(scope="module")
def data():
    return girih.load(SPEC)


def test_a_training_is_the_one_of_its_settings(data):
    events = []
    one = girih.train(data, **QUICK, seed=3, on_event=events.append)
    two = girih.train(SPEC, **QUICK, seed=3)
    other = girih.train(data, **QUICK, seed=4)
    assert one.runs == two.runs and one.runs != other.runs
    assert [event["kind"] for event in events][:2] == ["prepared", "run_started"] and events[-1]["kind"] == "run_finished"
    assert (one.curves["epoch"] == np.arange(1, 13)).all() and one.curves["train_loss"][-1] < one.curves["train_loss"][0]
    assert one.curves["val_accuracy"].max() == one.runs[0].best["val_accuracy"]
    for name, values in one.parameters().items():
        assert (values == two.parameters()[name]).all()
    assert not one.stopped and one.test["f1"]["micro"] > 0.3


@pytest.mark.parametrize(
    "settings",
    [
        dict(model="sage", batch="neighbor", fanout=[4, 3], batch_size=64),
        dict(model="sage", batch="neighbor", fanout="4,3", batch_size=np.int64(64)),
        dict(model={"kind": "gat", "heads": 2}, codec="int8"),
        dict(model="gcn", batch="cluster", clusters=8),
        dict(model="gin", optimizer="sgd", lr=0.05, momentum=0.5),
        dict(task="links", model="gcn"),
    ],
)
def test_models_batches_and_tasks(data, settings):
    outcome = girih.train(data, **{**QUICK, "epochs": 3, **settings})
    assert len(outcome.runs) == 1 and np.isfinite(outcome.curves["train_loss"]).all()


def test_checkpoints_go_both_ways(data, tmp_path):
    outcome = girih.train(data, **QUICK, out=tmp_path / "run")
    checkpoint = girih.Checkpoint.open(tmp_path / "run" / "run-000.safetensors")
    applied = girih.apply(checkpoint, data, device="cpu")
    assert applied.logits.shape == (400, 4)
    assert applied.scores["test_accuracy"] == outcome.runs[0].best["test_accuracy"]
    state = checkpoint.state_dict("pyg")
    assert any(name.endswith("lin.weight") for name in state)
    again = girih.checkpoint_of_weights(girih.settings_of(checkpoint), state, data=data)
    assert np.allclose(girih.apply(again, data, device="cpu").logits, applied.logits)
    again.save(tmp_path / "again.safetensors")
    assert girih.Checkpoint.open(tmp_path / "again.safetensors").parameters().keys() == outcome.parameters().keys()
    assert checkpoint.embeddings(data, device="cpu").shape[0] == 400
    with pytest.raises(ValueError, match="already"):
        girih.train(data, **QUICK, out=tmp_path / "run")
    longer = girih.train(data, **{**QUICK, "epochs": 20}, out=tmp_path / "run", resume=True)
    assert longer.curves["epoch"].tolist() == list(range(13, 21))
    missing = {name: values for name, values in state.items() if not name.endswith("bias")}
    with pytest.raises(ValueError, match="bias"):
        girih.checkpoint_of_weights(girih.settings_of(checkpoint), missing)


def test_data_of_arrays(data):
    graph, split = data.graph, data.split
    masks = tuple(np.isin(np.arange(400), nodes) for nodes in split)
    loaded = girih.train(data, **QUICK)
    for parts in (split, masks):
        made = girih.Dataset(graph, data.x, data.y, parts)
        assert made.num_classes == 4 and (made.split[0] == split[0]).all() and girih.train(made, **QUICK).runs == loaded.runs
    some = data.y.astype(np.int32)
    some[split[2]] = -1
    assert girih.Dataset(graph, girih.compress(data.x, "int8"), some, split).y.min() == -1
    several = np.eye(4, dtype=np.float32)[data.y]
    outcome = girih.train(girih.Dataset(graph, data.x, several, split), **QUICK)
    assert 0 <= outcome.runs[0].best["val_accuracy"] <= 1
    for error, match, arguments in (
        (ValueError, "rows|nodes", (data.x[:10], data.y)),
        (ValueError, "node 0 is -2", (data.x, np.full(400, -2))),
        (TypeError, "float64", (data.x, data.y.astype(float))),
        (ValueError, "0 or 1|0 and 1|is 0.5|0.5", (data.x, np.full((400, 4), 0.5))),
        (IndexError, "training node 0 is node 400", (data.x, data.y, ([400], [1], [2]))),
        (ValueError, "mask of 3", (data.x, data.y, (np.ones(3, bool), [1], [2]))),
    ):
        with pytest.raises(error, match=match):
            girih.Dataset(graph, *arguments)


def test_a_callback_ends_training(data, tmp_path):
    outcome = girih.train(data, **QUICK, out=tmp_path / "a", on_event=lambda e: e.get("epoch") != 5)
    assert outcome.stopped and outcome.curves["epoch"].tolist() == [1, 2, 3, 4, 5]
    resumed = girih.train(data, **QUICK, out=tmp_path / "a", resume=True)
    assert resumed.curves["epoch"].tolist() == list(range(6, 13))
    assert resumed.runs == girih.train(data, **QUICK).runs

    def fails(event):
        if event["kind"] == "epoch":
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        girih.train(data, **QUICK, on_event=fails)


def test_ctrl_c_ends_training_with_a_checkpoint(data, tmp_path):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        girih.train(data, **{**QUICK, "epochs": 100_000}, out=tmp_path)
    assert girih.Checkpoint.open(tmp_path / "run-000.safetensors").epoch > 0


def test_every_setting_has_a_word():
    made = girih.config(model="gat", heads=2, lr=0.5, batch="neighbor", fanout=[1, 2], val_links=0.2, epochs=3, optimizer="sgd")
    assert (made["model"]["heads"], made["optimizer"]["lr"], made["optimizer"]["kind"]) == (2, 0.5, "sgd")
    assert (made["batch"]["kind"], made["batch"]["fanout"], made["links"]["val"], made["epochs"]) == ("neighbor", [1, 2], 0.2, 3)
    words = {girih._train._SETTINGS[word] for word in girih._train._SETTINGS}
    for section, settings in girih.config().items():
        if section == "tiers" or section == "task":
            continue
        for setting in settings if isinstance(settings, dict) else [section]:
            assert ((section if isinstance(settings, dict) else ""), setting) in words or (section, setting) == ("model", "kind")


def test_settings_of_triples_and_their_models(tmp_path):
    made = girih.config(task="triples", embedding_width=8, negatives=3)
    assert (made["triples"]["width"], made["triples"]["negatives"], made["model"]["kind"]) == (8, 3, "embedding")
    assert girih.config(embedding_width=8)["links"]["width"] == 8
    people = [(f"p{head}", "knows", f"p{tail}") for head in range(12) for tail in range(12) if head % 3 == tail % 3]
    for part, triples in (("train", people), ("valid", people[:6]), ("test", people[6:12])):
        (tmp_path / f"{part}.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    words = dict(embedding_width=8, epochs=12, lr=0.05, batch_size=10, seed=1)
    for model in ({}, {"model": "rgcn", "hidden": 8, "blocks": 2}):
        outcome = girih.train(tmp_path, task="triples", **model, **words)
        assert outcome.runs[0].best["triples"]["val"]["mrr"] > 0.3


@pytest.mark.parametrize(
    "error,match,settings",
    [
        (TypeError, "no setting 'hiden'", dict(hiden=3)),
        (ValueError, "model", dict(model="transformer")),
        (ValueError, "layers", dict(layers=0)),
        (ValueError, "no device", dict(device="tpu")),
        (ValueError, "dropout", dict(dropout=2.0)),
        (ValueError, "invalid type|layers", dict(layers="many")),
        (ValueError, "out", dict(resume=True)),
        (ValueError, "features_from|has features|codec", dict(codec="pq:3000")),
    ],
)
def test_refusals(data, error, match, settings):
    with pytest.raises(error, match=match):
        girih.train(data, **{**QUICK, **settings})
