#!/usr/bin/env python3
"""Judges given labels with cleanlab, the way its users do, for a side-by-side comparison.

Needs: pip install cleanlab scikit-learn numpy

FOLDER holds
  features.npy           float, n x d: all rows whose given labels are judged
  given.npy              int, n: their given labels, 0 to K-1
  checked_features.npy   float, m x d: a few rows whose labels are known to be right
  checked_labels.npy     int, m
  test_features.npy, test_labels.npy   optional: for the test accuracy
  truth.npy              optional: right labels of all n rows, only used to print how well
                         the scores find the wrong ones; nothing is fitted or chosen with it

and receives
  peer.csv    row,label_score,is_label_issue,predicted_label (a low score: probably wrong)
  peer.json   name, test_accuracy (null without a test set), seconds

The checked rows should not be among the n rows: they are in every training fold, so their
own scores would not be out-of-fold.
"""
import argparse
import csv
import json
import sys
import time
import warnings
from pathlib import Path

import cleanlab
import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
# The best penalty depends on the number of rows, so the search uses all of them where it can;
# the limit only keeps the search on very large problems within bounds.
TUNING_ROWS = 50_000


class OneScale(BaseEstimator, TransformerMixin):
    """Centres the columns and divides all of them by one number.

    Columns that came out of a principal component analysis carry meaning in their sizes;
    scaling each to unit variance would blow up the weakest ones.
    """

    def fit(self, x, y=None):
        self.mean_ = x.mean(axis=0)
        self.scale_ = float(np.sqrt(np.mean((x - self.mean_) ** 2))) or 1.0
        return self

    def transform(self, x):
        return (x - self.mean_) / self.scale_


def parse():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="FOLDER", type=Path, help="where the files are read and written")
    p.add_argument("--model", choices=("linear", "mlp"), default="linear",
                   help="linear: LogisticRegression; mlp: MLPClassifier with early stopping (default: linear)")
    p.add_argument("--hidden", metavar="H", type=int, default=128,
                   help="units of the one hidden layer of --model mlp (default: 128)")
    p.add_argument("--patience", metavar="N", type=int, default=10,
                   help="passes without progress after which --model mlp stops learning (default: 10, as in "
                        "scikit-learn)")
    p.add_argument("--folds", type=int, default=5, help="cross-validation folds (default: 5)")
    p.add_argument("--score", choices=SCORES, default="self_confidence",
                   help="cleanlab's label quality score (default: self_confidence, as in cleanlab)")
    p.add_argument("--filter-by", default="prune_by_noise_rate",
                   choices=("prune_by_noise_rate", "prune_by_class", "both", "confident_learning",
                            "predicted_neq_given", "low_normalized_margin", "low_self_confidence"),
                   help="how cleanlab picks the issues (default: prune_by_noise_rate, as in cleanlab)")
    p.add_argument("--no-tune", action="store_true",
                   help="keep scikit-learn's default regularisation and scale each column to unit "
                        "variance, instead of choosing both on held-out given labels")
    p.add_argument("--seed", type=int, default=0, help="seed of folds and models (default: 0)")
    p.add_argument("--threads", type=int, default=1, help="threads for linear algebra (default: 1)")
    a = p.parse_args()
    if a.hidden < 1 or a.patience < 1 or a.folds < 2 or a.threads < 1:
        p.error("--hidden, --patience and --threads must be at least 1, --folds at least 2")
    return a


def read(folder, name, optional=False):
    path = folder / name
    if optional and not path.exists():
        return None
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as e:
        sys.exit(f"{path}: {e}")


def read_pair(folder, dtype, features, labels, width=None, optional=False):
    x, y = read(folder, features, optional), read(folder, labels, optional)
    if x is None or y is None:
        return None
    if x.ndim != 2 or y.shape != (len(x),) or (width is not None and x.shape[1] != width):
        sys.exit(f"{features}, {labels}: shapes {x.shape} and {y.shape} do not fit")
    if not np.isfinite(x).all():
        sys.exit(f"{features}: numbers that are not finite")
    if not np.issubdtype(y.dtype, np.integer) or (len(y) and y.min() < 0):
        sys.exit(f"{labels}: labels must be whole numbers from 0")
    return x.astype(dtype), y.astype(np.int64)


def make_model(a, scaler, strength):
    """strength: the penalty; C of the linear model is its inverse."""
    if a.model == "linear":
        model = LogisticRegression(C=1 / strength, max_iter=1000)
    else:
        model = MLPClassifier((a.hidden,), alpha=strength, early_stopping=True, n_iter_no_change=a.patience,
                              validation_fraction=0.1, max_iter=200, random_state=a.seed)
    return make_pipeline(clone(scaler), model)


def probabilities(model, x, classes):
    """One column for each class, also for those the model has not seen."""
    out = np.zeros((len(x), classes))
    out[:, model.classes_] = model.predict_proba(x)
    return out


def choose(a, x, given, cx, cy, classes):
    """Scaling and penalty with the lowest log loss on held-out given labels.

    The given labels are what a user has at this point. The penalty matters: with many wrong
    labels, a model that fits them too closely gives them too much trust.
    """
    if a.no_tune:
        return StandardScaler(), 1.0 if a.model == "linear" else 1e-4
    rng = np.random.default_rng(a.seed)
    rows = rng.permutation(len(x))[:TUNING_ROWS]
    # A part as large as a fold, so that the penalty suits the models that judge the labels.
    fit, held = train_test_split(rows, test_size=1 / a.folds, random_state=a.seed)
    tx, ty = np.concatenate([x[fit], cx]), np.concatenate([given[fit], cy])
    grid = (1, 10, 100, 300, 1000, 3000, 10_000) if a.model == "linear" else (1e-4, 0.1, 1, 3, 10, 30)
    best = None
    for scaler in (StandardScaler(), OneScale()):
        for strength in grid:
            model = make_model(a, scaler, strength).fit(tx, ty)
            p = np.clip(probabilities(model, x[held], classes), 1e-12, 1)
            p /= p.sum(axis=1, keepdims=True)
            loss = log_loss(given[held], p, labels=np.arange(classes))
            print(f"  {type(scaler).__name__}, penalty {strength:g}: log loss {loss:.4f}", flush=True)
            if best is None or loss < best[0]:
                best = (loss, scaler, strength)
    return best[1], best[2]


def out_of_fold(a, scaler, strength, x, given, cx, cy, classes):
    probs = np.zeros((len(x), classes))
    folds = StratifiedKFold(a.folds, shuffle=True, random_state=a.seed)
    for fit, held in folds.split(x, given):
        # The checked rows are right, so every fold may learn from all of them.
        model = make_model(a, scaler, strength)
        model.fit(np.concatenate([x[fit], cx]), np.concatenate([given[fit], cy]))
        probs[held] = probabilities(model, x[held], classes)
    return probs


def main():
    a = parse()
    # 32-bit floats can stop the linear solver too early; the MLP is trained in small steps
    # that do not need more, and is faster with them.
    dtype = np.float64 if a.model == "linear" else np.float32
    x, given = read_pair(a.folder, dtype, "features.npy", "given.npy")
    cx, cy = read_pair(a.folder, dtype, "checked_features.npy", "checked_labels.npy", x.shape[1])
    test = read_pair(a.folder, dtype, "test_features.npy", "test_labels.npy", x.shape[1], optional=True)
    truth = read(a.folder, "truth.npy", optional=True)
    if truth is not None and truth.shape != given.shape:
        sys.exit(f"truth.npy: shape {truth.shape}, {given.shape} expected")
    classes = int(max(given.max(), cy.max(initial=0))) + 1
    if classes < 2:
        sys.exit("given.npy: at least two classes are needed")
    # Reaching the iteration limit or a class with few rows is no reason to stop, and the
    # warnings would repeat for each fold.
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    warnings.filterwarnings("ignore", message="The least populated class")

    start = time.perf_counter()
    with threadpool_limits(a.threads):
        scaler, strength = choose(a, x, given, cx, cy, classes)
        tuned = time.perf_counter()
        probs = out_of_fold(a, scaler, strength, x, given, cx, cy, classes)
        scores = get_label_quality_scores(given, probs, method=a.score)
        issues = find_label_issues(given, probs, filter_by=a.filter_by, n_jobs=1)
        judged = time.perf_counter()
        accuracy = None
        if test is not None:
            model = make_model(a, scaler, strength)
            model.fit(np.concatenate([x[~issues], cx]), np.concatenate([given[~issues], cy]))
            accuracy = float((model.predict(test[0]) == test[1]).mean())
    end = time.perf_counter()

    with open(a.folder / "peer.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["row", "label_score", "is_label_issue", "predicted_label"])
        for i, (s, bad, p) in enumerate(zip(scores, issues, probs.argmax(axis=1))):
            w.writerow([i, f"{s:.9g}", bool(bad), int(p)])
    name = f"cleanlab {cleanlab.__version__}"
    with open(a.folder / "peer.json", "w", encoding="utf-8") as f:
        json.dump({"name": name, "test_accuracy": accuracy, "seconds": round(end - start, 3)}, f)
        f.write("\n")

    print(f"{name}, {a.model}: {type(scaler).__name__}, penalty {strength:.4g}; "
          f"{int(issues.sum())} of {len(x)} rows are issues")
    print(f"choosing {tuned - start:.1f} s, judging {judged - tuned:.1f} s, test model {end - judged:.1f} s")
    if accuracy is not None:
        print(f"test accuracy {accuracy:.4f}")
    if truth is not None:
        wrong = given != truth
        if wrong.any() and not wrong.all():
            for method in SCORES:
                s = get_label_quality_scores(given, probs, method=method)
                print(f"AUC for wrong labels, {method}: {roc_auc_score(wrong, -s):.4f}")
        hit = int((issues & wrong).sum())
        print(f"issues: precision {hit / max(int(issues.sum()), 1):.4f}, recall {hit / max(int(wrong.sum()), 1):.4f}")


if __name__ == "__main__":
    main()
