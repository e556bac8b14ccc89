"""Compares exported models with other programs: onnxruntime, PyTorch (where it is installed) and NumPy.

Usage: check_export.py FOLDER, written by `cargo run -p dibo-learn --example export_check -- FOLDER` or by
`cargo run --release -p dibo-run --example bert_check -- FOLDER`. For what `dibo clean --model bert` left and
`dibo predict` said there is check_texts.py.
Needs onnx, onnxruntime, safetensors and numpy. Prints the largest differences; fails if a probability differs
by more than 1e-5, or a label where its probability is not within that of another's.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors import safe_open

try:
    import torch
except ImportError:
    torch = None

LIMIT = 1e-5


def raw_columns(case):
    """The rows as they were before the encoding, by the names of their columns."""
    return {
        path.read_bytes().decode(): path.with_suffix(".data").read_bytes()
        for path in sorted(case.glob("column-*.name"))
    }


def encode(description, columns):
    """From what model.json says alone: the raw numbers (none with words) and the encoded ones."""
    raw, encoded = [], []
    for column in description["encoding"]["columns"]:
        ((kind, column),) = column.items()
        data = columns[column["name"]]
        if kind == "numbers":
            values = np.frombuffer(data, "<f4").reshape(-1, len(column["mean"]))
            scaled = (values.astype(np.float64) - column["mean"]) * column["factor"]
            raw.append(values)
            encoded.append(np.where(np.isnan(values), 0, scaled).astype(np.float32))
        else:
            assert kind == "one-hot", kind
            words = json.loads(data)
            known = column["words"]
            places = np.array([[w == k for k in known] for w in words], np.float32)
            encoded.append(places.reshape(len(words), len(known)))
    words = any("one-hot" in c for c in description["encoding"]["columns"])
    return None if words else np.concatenate(raw, 1), np.concatenate(encoded, 1)


def softmax(scores):
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def with_numpy(tensors, x, architecture):
    """In double precision, with weights in PyTorch's order: outputs x inputs."""
    tensors = {name: value.astype(np.float64) for name, value in tensors.items()}
    if architecture["kind"] == "bert":
        return np.concatenate([bert(tensors, text, architecture["sizes"]) for text in x])
    x = x.astype(np.float64)
    if "linear.weight" in tensors:
        return softmax(x @ tensors["linear.weight"].T + tensors.get("linear.bias", 0))
    hidden = np.maximum(x @ tensors["hidden.weight"].T + tensors["hidden.bias"], 0)
    return softmax(hidden @ tensors["output.weight"].T + tensors["output.bias"])


def bert(tensors, text, sizes):
    """One text, without its padding, as the paper on BERT has it."""
    ids = text[: np.flatnonzero(text)[-1] + 1].astype(np.int64)
    heads = sizes["heads"]

    def linear(name, x):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + sizes["epsilon"])
        return x * tensors[name + ".LayerNorm.weight"] + tensors[name + ".LayerNorm.bias"]

    def split(x):
        return x.reshape(len(ids), heads, -1).transpose(1, 0, 2)

    table = "embeddings.{}_embeddings.weight".format
    x = tensors[table("word")][ids] + tensors[table("position")][: len(ids)] + tensors[table("token_type")][0]
    x = norm("embeddings", x)
    for number in range(sizes["layers"]):
        at = f"encoder.layer.{number}."
        q, k, v = (split(linear(f"{at}attention.self.{part}", x)) for part in ("query", "key", "value"))
        look = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        look = np.exp(look - look.max(-1, keepdims=True))
        context = (look / look.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(x.shape)
        x = norm(at + "attention.output", x + linear(at + "attention.output.dense", context))
        up = linear(at + "intermediate.dense", x)
        up = up * (1 + np.vectorize(math.erf)(up / math.sqrt(2))) / 2
        x = norm(at + "output", x + linear(at + "output.dense", up))
    pooled = x[:1] if sizes["pooling"] == "first" else x.mean(0, keepdims=True)
    return softmax(linear("classifier", pooled))


def with_torch(file, architecture, inputs, classes, x):
    """As a user would: a module with layers of these names takes the file as its state_dict."""
    from collections import OrderedDict

    from safetensors.torch import load_file

    linear = torch.nn.Linear
    if architecture["kind"] == "linear":
        layers = [("linear", linear(inputs, classes, bias=architecture["bias"]))]
    else:
        hidden = architecture["hidden"]
        layers = [("hidden", linear(inputs, hidden)), ("relu", torch.nn.ReLU())]
        layers.append(("output", linear(hidden, classes)))
    module = torch.nn.Sequential(OrderedDict(layers))
    module.load_state_dict(load_file(file), strict=True)
    with torch.no_grad():
        return torch.softmax(module(torch.from_numpy(x)), 1).numpy()


def with_onnxruntime(case, description, raw, encoded):
    """Probabilities and labels by the graph alone."""
    model = onnx.load(case / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == description["classes"]
    assert json.loads(metadata["dibo"]) == description
    columns = [next(iter(c.values())) for c in description["encoding"]["columns"]]
    assert json.loads(metadata["columns"]) == [c["name"] for c in columns]
    assert json.loads(metadata["widths"]) == [len(c.get("mean", c.get("words"))) for c in columns]
    session = onnxruntime.InferenceSession(case / "model.onnx", providers=["CPUExecutionProvider"])
    assert " ".join(i.name for i in session.get_inputs()) == metadata["input"]
    if description["architecture"]["kind"] == "bert":
        inputs = {"input_ids": encoded.astype(np.int64), "attention_mask": (encoded != 0).astype(np.int64)}
    else:
        inputs = {"features": raw} if raw is not None else {"encoded": encoded}
    scores, probabilities, labels = session.run(["scores", "probabilities", "label"], inputs)
    assert labels.dtype == np.int64 and labels.shape == (len(encoded),), labels.shape
    # A row alone, without the padding that the others need, is the same.
    used = int(np.flatnonzero(encoded[0])[-1]) + 1 if "input_ids" in inputs else None
    one = session.run(["probabilities"], {name: rows[:1, :used] for name, rows in inputs.items()})[0]
    assert one.shape == (1, len(description["classes"]))
    assert np.abs(one - probabilities[:1]).max() < LIMIT, case
    return probabilities, labels


def check(case, worst):
    """Compares one model; keeps the largest differences in `worst`."""
    description = json.loads((case / "model.json").read_text(encoding="utf-8"))
    raw, encoded = encode(description, raw_columns(case))
    classes = len(description["classes"])
    assert description["inputs"] == encoded.shape[1]
    own = np.fromfile(case / "probabilities.f32", "<f4").reshape(-1, classes)
    own_labels = np.fromfile(case / "labels.u32", "<u4")
    own_encoded = np.fromfile(case / "encoded.f32", "<f4").reshape(encoded.shape)

    def note(name, difference):
        assert np.isfinite(difference), (case, name)
        worst[name] = max(worst.get(name, (0.0, "")), (float(difference), case.name))

    note("encoding, NumPy", np.abs(own_encoded - encoded).max())
    with safe_open(case / "model.safetensors", "np") as file:
        assert json.loads(file.metadata()["dibo"]) == description
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    architecture = description["architecture"]
    plain = with_numpy(tensors, encoded, architecture)
    note("probabilities, NumPy in double precision", np.abs(own - plain).max())
    if torch is not None and architecture["kind"] != "bert":
        found = with_torch(case / "model.safetensors", architecture, encoded.shape[1], classes, encoded)
        note("probabilities, PyTorch", np.abs(own - found).max())
    found, labels = with_onnxruntime(case, description, raw, encoded)
    note("probabilities, onnxruntime", np.abs(own - found).max())
    differ = np.flatnonzero(labels != own_labels)
    note("labels that differ, onnxruntime", len(differ))
    # Only where two classes are alike up to rounding.
    assert all(abs(own[r, labels[r]] - own[r, own_labels[r]]) < LIMIT for r in differ), case


def main():
    worst = {}
    cases = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())
    assert cases, "no models"
    for case in cases:
        check(case, worst)
    print(f"{len(cases)} models")
    for name, (difference, case) in worst.items():
        print(f"{name}: at most {difference:.3g} ({case})")
    if torch is None:
        print("PyTorch is not installed: its convention is checked with NumPy only")
    if any(d > LIMIT for name, (d, _) in worst.items() if name.startswith("probabilities")):
        sys.exit(f"differences of more than {LIMIT}")


if __name__ == "__main__":
    main()
