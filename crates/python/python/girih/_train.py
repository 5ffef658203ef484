"""Whole trainings: `train`, and what it returns."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _girih, _libraries
from ._girih import Checkpoint, Dataset

#: Section and name in a configuration of each setting that `train` takes by one word.
_SETTINGS: dict[str, tuple[str, str]] = {
    **{
        name: ("model", name)
        for name in (
            "layers hidden dropout input_dropout aggregate_once aggregator bases blocks self_weight heads out_heads attention_dropout slope hops "
            "teleport mixing normalization residual norm jump"
        ).split()
    },
    **{
        name: ("optimizer", name)
        for name in "lr weight_decay decay beta1 beta2 eps momentum warmup schedule".split()
    },
    "optimizer": ("optimizer", "kind"),
    **{
        name: ("batch", name)
        for name in "fanout replace clusters clusters_per_batch saint walk_length subgraphs_per_step prefetch score_by".split()
    },
    "batch": ("batch", "kind"),
    "val_links": ("links", "val"),
    "test_links": ("links", "test"),
    "negatives": ("links", "negatives"),
    "embedding_width": ("links", "width"),
    **{name: ("time", name) for name in "until before window".split()},
    "time_strategy": ("time", "strategy"),
    "edge_features": ("edges", "features"),
    "edge_label": ("edges", "label"),
    "time_encoding": ("edges", "time_encoding"),
    "decoder": ("triples", "decoder"),
    "distance": ("triples", "distance"),
    **{
        name: ("", name)
        for name in "epochs patience eval_every runs seed batch_size metric precision codec features_from".split()
    },
}

#: Sections that `train` also takes whole, as mappings.
_SECTIONS = ("model", "optimizer", "batch", "links", "time", "edges", "triples", "node", "tiers")


@dataclass(frozen=True)
class Run:
    """One run of a training, which has its own initial weights.

    best and last are the scores at the best and at the last epoch, such as `{"val_accuracy": 0.8, "test_accuracy": 0.81}`.
    """

    run: int
    epochs: int
    best_epoch: int
    chosen_by: str
    best: dict[str, Any]
    last: dict[str, Any]
    train_loss: float


@dataclass(frozen=True)
class Outcome:
    """Result of a training.

    test: scores of the best parameters of the last run on the test nodes: `f1`, `roc_auc`, `average_precision`.
    curves: an array for each number of the epochs of the last run: `epoch`, `train_loss`, `lr`, `seconds`, and scores;
        NaN where an epoch was not evaluated.
    checkpoints: the state at the end of each run, with its best parameters.
    stopped: whether `on_event` ended the training early.
    """

    runs: list[Run]
    test: dict[str, Any] | None
    curves: dict[str, np.ndarray[Any, Any]]
    checkpoints: list[Checkpoint] = field(repr=False)
    stopped: bool = False

    @property
    def checkpoint(self) -> Checkpoint:
        """Checkpoint of the last run. Raises ValueError if no run has one."""
        if not self.checkpoints:
            raise ValueError("the training was stopped before its first checkpoint")
        return self.checkpoints[-1]

    def parameters(self, library: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Best parameters of the last run: by girih's names, or as a state dict of "pyg" or "dgl"."""
        return self.checkpoint.parameters() if library is None else self.checkpoint.state_dict(library)


def _plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list, np.ndarray)):
        return [_plain(inner) for inner in value]
    return value


def config(*, model: str | Mapping[str, Any] | None = None, task: str = "nodes", **settings: Any) -> dict[str, Any]:
    """All settings of a training, in the sections of `config.toml`: defaults of task and model, replaced by `settings`.

    A setting is named by one word, as the flag of `girih train` is (`hidden`, `lr`, `fanout`), or a section is given
    whole (`model={"kind": "gat", "heads": 4}`). `embedding_width` and `negatives` are those of the task. Without a model,
    it is "gcn", and "embedding" for triples. Raises TypeError for a setting that does not exist.
    """
    usual = "embedding" if task == "triples" else "gcn"
    kind = model.get("kind", usual) if isinstance(model, Mapping) else model or usual
    made: dict[str, Any] = json.loads(_girih.default_config(task, str(kind)))
    if isinstance(model, Mapping):
        settings = {"model": model, **settings}
    for name, value in settings.items():
        if name in _SECTIONS and isinstance(value, Mapping):
            made.setdefault(name, {}).update(_plain(value))
            continue
        if name not in _SETTINGS:
            raise TypeError(f"train() has no setting {name!r}; it has {', '.join(sorted(_SETTINGS))}")
        section, key = _SETTINGS[name]
        if task == "triples" and name in ("embedding_width", "negatives"):
            section = "triples"
        if name == "fanout" and isinstance(value, str):
            value = [int(hop) for hop in value.split(",")]
        if name == "fanout" and isinstance(value, Mapping):
            by_type = {of if isinstance(of, str) else ".".join(of): list(hops) for of, hops in value.items()}
            value = by_type.pop("*", [])
            made.setdefault(section, {})["fanout_by_type"] = by_type
        (made.setdefault(section, {}) if section else made)[key] = _plain(value)
    return made


class _Curves:
    """Numbers of epochs, as they come."""

    def __init__(self) -> None:
        self.run: Any = None
        self.epochs: list[dict[str, float]] = []

    def add(self, event: dict[str, Any]) -> None:
        if event["kind"] != "epoch":
            return
        if event["run"] != self.run:
            self.run, self.epochs = event["run"], []
        numbers = {**event, **(event["scores"] or {})}
        self.epochs.append({k: v for k, v in numbers.items() if isinstance(v, (int, float)) and k != "run"})

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch)
        return {name: np.array([epoch.get(name, np.nan) for epoch in self.epochs]) for name in names}


def train(
    data: Dataset | str | os.PathLike[str],
    *,
    model: str | Mapping[str, Any] | None = None,
    task: str = "nodes",
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    on_event: Callable[[dict[str, Any]], bool | None] | None = None,
    **settings: Any,
) -> Outcome:
    """Trains a model, as `girih train` does: equal settings and seeds give equal results.

    data: a `Dataset`, or what `load` takes.
    device: "auto" for the first GPU if there is one, "cpu", "cuda" or "cuda:N".
    out: folder for checkpoints; None for none that stay.
    resume: go on from the checkpoints in `out`.
    on_event: called with each event, a dict with `kind` "prepared", "run_started", "batch", "epoch" or
        "run_finished". Returning False ends the training after the current step; an exception does, too, and is raised.
    settings: those of `config`, such as `layers=3, hidden=256, batch="neighbor", fanout=[15, 10, 5]`.

    Raises ValueError if settings and data do not fit, and KeyboardInterrupt after Ctrl-C, which ends training after
    the current step.
    """
    made = config(model=model, task=task, **settings)
    settings_text = json.dumps(made)
    if not isinstance(data, Dataset):
        edge_features = made.get("edges", {}).get("features", [])
        data = _girih.load(data, times="time" in made, edge_features=edge_features)
    if resume and out is None:
        raise ValueError("resume needs the folder of an earlier training: give out")
    curves = _Curves()

    def observe(text: str) -> bool | None:
        event = json.loads(text)
        curves.add(event)
        return None if on_event is None else on_event(event)

    with tempfile.TemporaryDirectory(prefix="girih-") as scratch:
        folder = Path(scratch if out is None else out)
        folder.mkdir(parents=True, exist_ok=True)
        if not resume and any(folder.glob("run-*.safetensors")):
            raise ValueError(f"{folder}: there are checkpoints already; go on with resume=True, or choose another folder")
        if device != "cpu":
            _libraries.load()
        text = _girih.train(
            data, settings_text, device, folder, checkpoint_every=checkpoint_every, resume=resume, on_event=observe
        )
        checkpoints = [Checkpoint.open(path) for path in sorted(folder.glob("run-*.safetensors"))]
    told = json.loads(text)
    runs = [Run(**run) for run in told["runs"]]
    return Outcome(runs, told["test"], curves.arrays(), checkpoints, told["stopped"])


@dataclass(frozen=True)
class Applied:
    """Predictions of a model for all nodes: logits (n × classes), and the scores of the data's split."""

    logits: np.ndarray[Any, Any]
    scores: dict[str, Any]
    test: dict[str, Any]


def apply(checkpoint: Checkpoint, data: Dataset | str | os.PathLike[str], *, device: str = "auto") -> Applied:
    """Applies the best parameters of a checkpoint to a data set, which may be another graph with as many features.

    Raises ValueError if model and data do not fit.
    """
    data = data if isinstance(data, Dataset) else _girih.load(data)
    if device != "cpu":
        _libraries.load()
    logits, told = checkpoint._apply(data, device=device)
    return Applied(logits, **json.loads(told))


def settings_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Settings that a checkpoint was trained by, in the sections of `config.toml`."""
    made: dict[str, Any] = json.loads(checkpoint._config)
    return made


def checkpoint_of_weights(
    settings: Mapping[str, Any],
    weights: Mapping[str, Any],
    *,
    library: str = "pyg",
    data: Dataset | None = None,
    multi_label: bool = False,
) -> Checkpoint:
    """Model of `settings` (of `config`) with the tensors of a state dict of "pyg" or "dgl".

    Raises ValueError if a tensor is missing, left over or of another shape.
    """
    arrays = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in weights.items()}
    return Checkpoint.from_weights(json.dumps(_plain(settings)), arrays, library=library, data=data, multi_label=multi_label)
