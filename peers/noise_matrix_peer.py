#!/usr/bin/env python3
"""Learns an MLP and a noise matrix T with all rows in one place: what dibo's ways with a noise matrix
would be if nobody had to keep rows to themselves. Plain NumPy, written apart from dibo.

Needs: pip install numpy

Reads and writes the files that cleanlab_peer.py names. The model p and T[c, g], the probability that a row of
class c is given the label g, go down the gradient of

    mean over checked rows of -log p(label)  +  mean over given rows of -log sum_c p(c) T[c, given]

with plain steps on minibatches, after a start on the checked rows alone; T starts as that model sees it. A label's
score is the probability that it is right: p(given) T[given, given] / sum_c p(c) T[c, given].
"""
import argparse
import csv
import json
import sys
import time
from pathlib import Path

import numpy as np


def parse():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="FOLDER", type=Path, help="where the files are read and written")
    p.add_argument("--hidden", metavar="H", type=int, default=256, help="units of the hidden layer (default: 256)")
    p.add_argument("--iterations", metavar="N", type=int, default=6000, help="steps (default: 6000)")
    p.add_argument("--warm", metavar="N", type=int, default=300,
                   help="steps on checked rows alone before them (default: 300)")
    p.add_argument("--batch", metavar="B", type=int, default=256, help="given rows a step (default: 256)")
    p.add_argument("--eta", type=float, default=0.1, help="step of the model (default: 0.1)")
    p.add_argument("--eta-t", type=float, default=1.0, help="step of T's logits (default: 1)")
    p.add_argument("--seed", type=int, default=0, help="seed of weights and batches (default: 0)")
    a = p.parse_args()
    if min(a.hidden, a.iterations, a.batch) < 1 or a.warm < 0:
        p.error("--hidden, --iterations and --batch must be at least 1, --warm at least 0")
    return a


def read(folder, features, labels, optional=False):
    try:
        x = np.load(folder / features, allow_pickle=False)
        y = np.load(folder / labels, allow_pickle=False)
    except FileNotFoundError as e:
        if optional:
            return None
        sys.exit(f"{folder / features}: {e}")
    except (OSError, ValueError) as e:
        sys.exit(f"{folder / features}: {e}")
    if x.ndim != 2 or y.shape != (len(x),) or not np.isfinite(x).all():
        sys.exit(f"{features}, {labels}: shapes {x.shape} and {y.shape} do not fit, or numbers are not finite")
    return x.astype(np.float32), y.astype(np.int64)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Mlp:
    def __init__(self, rng, inputs, hidden, classes):
        def layer(a, b):
            return rng.uniform(-1, 1, (a, b)).astype(np.float32) / np.float32(np.sqrt(a)), np.zeros(b, np.float32)
        self.w, self.b = layer(inputs, hidden)
        self.v, self.c = layer(hidden, classes)

    def forward(self, x):
        h = np.maximum(x @ self.w + self.b, 0)
        return h, softmax(h @ self.v + self.c)

    def probabilities(self, x):
        return np.concatenate([self.forward(x[i:i + 8192])[1] for i in range(0, len(x), 8192)]).astype(np.float64)

    def step(self, eta, x, h, d):
        """d: the loss's gradient with respect to the logits of rows x."""
        dh = (d @ self.v.T) * (h > 0)
        self.v -= eta * (h.T @ d)
        self.c -= eta * d.sum(axis=0)
        self.w -= eta * (x.T @ dh)
        self.b -= eta * dh.sum(axis=0)


def learn(a, x, given, cx, cy, classes):
    rng = np.random.default_rng(a.seed)
    model = Mlp(rng, x.shape[1], a.hidden, classes)
    logits = None
    eta, checked = np.float32(a.eta), min(len(cx), a.batch)
    for k in range(a.warm + a.iterations):
        i = rng.integers(len(cx), size=checked) if checked < len(cx) else np.arange(checked)
        rows = cx[i]
        both = k >= a.warm
        if both and logits is None:
            # How often each class, as the model of checked rows has it, is given each label; one of each more.
            seen = np.ones((classes, classes))
            np.add.at(seen.T, given, model.probabilities(x))
            logits = np.log(seen / seen.sum(axis=1, keepdims=True))
        if both:
            j = rng.integers(len(x), size=a.batch)
            rows = np.concatenate([rows, x[j]])
        h, p = model.forward(rows)
        d = p.copy()
        d[np.arange(checked), cy[i]] -= 1
        d[:checked] /= checked
        if both:
            t = softmax(logits)
            joint = p[checked:] * t[:, given[j]].T
            truth = joint / joint.sum(axis=1, keepdims=True)
            d[checked:] = (p[checked:] - truth) / a.batch
            # Of -log sum_c p(c) T[c, g] by T's logits: what is probably true and given, less what T expects of it.
            counts = np.zeros((classes, classes))
            np.add.at(counts.T, given[j], truth)
            logits += a.eta_t * (counts - counts.sum(axis=1, keepdims=True) * t) / a.batch
        model.step(eta, rows, h, d.astype(np.float32))
    return model, softmax(logits)


def main():
    a = parse()
    x, given = read(a.folder, "features.npy", "given.npy")
    cx, cy = read(a.folder, "checked_features.npy", "checked_labels.npy")
    test = read(a.folder, "test_features.npy", "test_labels.npy", optional=True)
    if not len(cx):
        sys.exit("checked_features.npy: no row; a noise matrix cannot be told from its mirror without one")
    classes = int(max(given.max(), cy.max())) + 1
    start = time.perf_counter()
    mean, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1

    def scaled(rows):
        return (rows - mean) / spread

    model, t = learn(a, scaled(x), given, scaled(cx), cy, classes)
    p = model.probabilities(scaled(x))
    joint = p * t[:, given].T
    scores = joint[np.arange(len(x)), given] / joint.sum(axis=1)
    predicted = p.argmax(axis=1)
    accuracy = None if test is None else float((model.probabilities(scaled(test[0])).argmax(axis=1) == test[1]).mean())
    seconds = time.perf_counter() - start

    with open(a.folder / "peer.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["row", "label_score", "is_label_issue", "predicted_label"])
        for i, (s, g, c) in enumerate(zip(scores, given, predicted)):
            w.writerow([i, f"{s:.9g}", bool(g != c), int(c)])
    with open(a.folder / "peer.json", "w", encoding="utf-8") as f:
        json.dump({"name": "noise matrix, all rows in one place", "test_accuracy": accuracy,
                   "seconds": round(seconds, 3)}, f)
        f.write("\n")
    print(f"{int((given != predicted).sum())} of {len(x)} rows look wrong; {seconds:.1f} s"
          + ("" if accuracy is None else f"; test accuracy {accuracy:.4f}"))


if __name__ == "__main__":
    main()
