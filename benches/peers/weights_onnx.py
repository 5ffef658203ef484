"""ONNX graphs of girih under onnx and onnxruntime.

    python weights_onnx.py FOLDER [FOLDER …]

A FOLDER has `data`, a girih folder with dense features, and for each model `MODEL.onnx` of `girih export --format onnx`
and `MODEL-logits.npy` of `girih predict --logits` on the data. Each graph is checked, with inference of shapes, and run.
"""

import pathlib
import sys

import numpy
import onnx
import onnxruntime


def inputs(data):
    """Inputs of the graphs from a girih folder."""
    read = lambda name: numpy.load(data / f"{name}.npy")
    indptr, sources = read("indptr"), read("indices").astype(numpy.int64)
    destinations = numpy.repeat(numpy.arange(len(indptr) - 1), numpy.diff(indptr).astype(numpy.int64))
    given = {"x": read("features"), "edge_index": numpy.stack([sources, destinations])}
    if (data / "values.npy").exists():
        given["edge_weight"] = read("values")
    return given


def main():
    worst = 0.0
    for folder in map(pathlib.Path, sys.argv[1:]):
        given = inputs(folder / "data")
        for file in sorted(folder.glob("*.onnx")):
            model = onnx.load(file)
            onnx.checker.check_model(model, full_check=True)
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            names = {value.name for value in session.get_inputs() + session.get_overridable_initializers()}
            (found,) = session.run(None, {name: value for name, value in given.items() if name in names})
            expected = numpy.load(folder / f"{file.stem}-logits.npy")
            off = float(numpy.abs(found - expected).max() / max(1.0, numpy.abs(expected).max()))
            worst = max(worst, off)
            print(f"{file}: {len(model.graph.node)} nodes, inputs {sorted(names)}, largest difference {off:.2e}")
    sys.exit(0 if worst < 1e-5 else f"logits differ by {worst:.2e}")


if __name__ == "__main__":
    main()
