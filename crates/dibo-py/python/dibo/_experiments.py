"""Experiment files, tuning, cleaning and pictures: the command's own, called from Python."""

from __future__ import annotations

import copy
import json
import logging
import sys
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from . import _core
from ._algorithms import Algorithm
from ._graphs import Graph
from ._run import _graph

log = logging.getLogger("dibo")


def command(
    arguments: Sequence[str],
    say: Callable[[str], Any] | None = None,
    oracle: Callable[[], Any] | None = None,
) -> int:
    """Runs a command of dibo with these arguments; `say` gets its lines (by default they are printed). Gives
    its exit code; what is wrong is raised as ValueError. Ctrl-C stops it, and what is done is kept (130)."""
    if not _core.experiments:
        raise RuntimeError("this dibo was built without experiment files; install the full wheel")
    return _core.command([str(argument) for argument in arguments], say or _print, oracle)


def _print(line: str) -> None:
    print(line, file=sys.stdout, flush=True)


class Results:
    """A results folder: ``curves`` and ``runs`` as pandas tables, ``report`` the page, ``manifest`` all
    else."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @property
    def labels(self) -> list[str]:
        """Names of the series."""
        return [series["label"] for series in self.manifest["series"]]

    @property
    def curves(self) -> Any:
        """The metrics along all runs."""
        import pandas

        frame = pandas.read_csv(self.folder / "curves.csv")
        frame.insert(0, "algorithm", [self.labels[series] for series in frame["series"]])
        return frame

    @property
    def runs(self) -> Any:
        """One row a run: how it ended, and the last value of each metric."""
        import pandas

        rows = []
        for run in self.manifest["runs"]:
            kept = ("seed", "outcome", "iterations", "seconds", "bytes", "gradients", "products")
            rows.append(
                {"algorithm": self.labels[run["series"]], **{key: run[key] for key in kept}, **run["last"]}
            )
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        return (
            f"Results({str(self.folder)!r}: {len(self.manifest['runs'])} runs of {self.manifest['name']!r})"
        )

    def _repr_html_(self) -> str:
        from html import escape

        head = f"<p><b>{escape(self.manifest['name'])}</b>: {escape(self.manifest['title'])}</p>"
        return head + str(self.runs.to_html(index=False, float_format=lambda value: f"{value:.4g}"))


def _experiment(name: str | Path, set: Mapping[str, Any] | None, seeds: int | None, data: Any) -> list[str]:
    arguments = [str(name)]
    for key, value in (set or {}).items():
        text = json.dumps(value) if isinstance(value, (bool, list, str)) else str(value)
        arguments += ["--set", f"{key}={text}"]
    if seeds is not None:
        arguments += ["--seeds", str(seeds)]
    if data is not None:
        arguments += ["--data", str(data)]
    return arguments


def _folder(name: str | Path, set: Mapping[str, Any] | None, ending: str = "") -> Path:
    stem = Path(name).stem + ending
    if set:
        import hashlib

        stem += "-" + hashlib.sha256(json.dumps(dict(set), sort_keys=True).encode()).hexdigest()[:6]
    return Path("results") / stem


def _common(out: Path, threads: int | None, quiet: bool, fresh: bool) -> list[str]:
    arguments = ["--out", str(out)]
    arguments += ["--threads", str(threads)] if threads is not None else []
    return arguments + ["--quiet"] * quiet + ["--fresh"] * fresh


def run(
    experiment: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    data: str | Path | None = None,
    quiet: bool = True,
    fresh: bool = False,
) -> Results:
    """Runs a built-in experiment by its name, or a TOML file: ``dibo.run("sensitivity",
    set={"run.iterations": 100})``.

    Results stay in a folder (by default ``results/NAME``); what is found finished there is not done again.
    ``quiet=False`` shows what the command shows."""
    folder = Path(out) if out is not None else _folder(experiment, set)
    arguments = ["run", *_experiment(experiment, set, seeds, data), *_common(folder, threads, quiet, fresh)]
    code = command(arguments, log.info if quiet else None)
    if code == 130:
        log.warning("interrupted; what is done is kept, and the same call goes on from there")
    return Results(folder)


def check(
    experiment: Any,
    algorithm: Algorithm | None = None,
    graph: Graph | None = None,
    *,
    iterations: int = 1000,
    set: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    data: str | Path | None = None,
    seconds: float = 20.0,
) -> str:
    """What can be said of an experiment before it runs: graph, proved and practical steps, time, memory,
    and a short trial. Raises nothing for what cannot run; the text says so. ``experiment`` is a name, a file,
    or a problem of your own with an algorithm and a graph."""
    lines: list[str] = []
    if isinstance(experiment, (str, Path)):
        arguments = ["check", *_experiment(experiment, set, seeds, data), "--seconds", str(seconds)]
        command(arguments, lines.append)
        return "\n".join(lines)
    if not isinstance(algorithm, Algorithm):
        raise TypeError("check: a problem needs an algorithm, such as dibo.FAB(lam=20, eta=0.05)")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dibo-") as folder:
        file = Path(folder) / "own.toml"
        _write_file(experiment, algorithm, graph, iterations, file)
        command(["check", str(file), "--seconds", str(seconds)], lines.append, experiment.oracle)
    return "\n".join(lines)


def tune(
    experiment: Any,
    algorithm: str | Algorithm | None = None,
    graph: Graph | None = None,
    *,
    iterations: int = 1000,
    metric: str | None = None,
    set: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    data: str | Path | None = None,
    quiet: bool = True,
    fresh: bool = False,
) -> Any:
    """Finds steps (and FAB's penalty) for an experiment by successive halving; the file with the best
    setting, which `run` takes. ``experiment`` is a name or a file; or a problem of your own, with an
    algorithm to begin with and a graph: then the best algorithm is given."""
    options = ["--metric", metric] if metric else []
    if not isinstance(experiment, (str, Path)):
        if not isinstance(algorithm, Algorithm):
            raise TypeError("tune: a problem needs an algorithm, such as dibo.FAB(lam=20, eta=0.05)")
        options += ["--seeds", str(1 if seeds is None else seeds)]
        options += ["--threads", str(1 if threads is None else threads)] + ["--quiet"] * quiet
        return _tune_own(experiment, algorithm, graph, iterations, options, log.info if quiet else None)
    folder = Path(out) if out is not None else _folder(experiment, set, "-tune")
    arguments = ["tune", *_experiment(experiment, set, seeds, data), *_common(folder, threads, quiet, fresh)]
    arguments += ["--algorithm", algorithm] if isinstance(algorithm, str) else []
    if command(arguments + options, log.info if quiet else None) == 130:
        raise KeyboardInterrupt("tune was interrupted; the same call goes on from there")
    return folder / "best.toml"


def _tune_own(
    problem: Any, algorithm: Algorithm, graph: Graph | None, iterations: int, options: list[str], say: Any
) -> Algorithm:
    import tempfile
    import tomllib

    with tempfile.TemporaryDirectory(prefix="dibo-") as folder:
        file, out = Path(folder) / "own.toml", Path(folder) / "out"
        _write_file(problem, algorithm, graph, iterations, file)
        if command(["tune", str(file), "--out", str(out), *options], say, problem.oracle) == 130:
            raise KeyboardInterrupt("tune was interrupted")
        if not (out / "best.toml").exists():
            raise ValueError("no setting came to its end: begin with smaller steps")
        found = tomllib.loads((out / "best.toml").read_text())["algorithm"][0]
    best = copy.copy(algorithm)
    best.parameters = {key: value for key, value in found.items() if key not in ("name", "label")}
    return best


def _value(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _write_file(problem: Any, algorithm: Algorithm, graph: Graph | None, iterations: int, path: Path) -> None:
    """An experiment file about a problem of the user's own, which the core finds by its kind."""
    over = _graph(graph, problem.agents)
    if over.kind in ("edges", "matrices"):
        raise ValueError(f"{type(over).__name__} is not known in experiment files; give another graph")
    keys = {**over._own, **over._common}
    if keys.get("window") == 0:
        keys["allow_disconnected"] = True
    sections: dict[str, dict[str, Any]] = {
        "problem": {"kind": "python", "agents": problem.agents, "single": str(problem.dtype) == "float32"},
        "graph": {"kind": over.kind, **keys},
        "run": {"iterations": iterations},
    }
    lines = [f"seeds = [{over.seed}]"]
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    parameters = {"name": algorithm.name, **algorithm.parameters}
    lines += ["[[algorithm]]", *(f"{key} = {_value(value)}" for key, value in parameters.items())]
    path.write_text("\n".join(lines) + "\n")


class Cleaned:
    """What `clean` found: ``labels`` (every row, the most suspicious first) and ``owners`` as pandas
    tables."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def _table(self, name: str) -> Any:
        import pandas

        return pandas.read_csv(self.folder / name)

    @property
    def labels(self) -> Any:
        """Every row that was judged: cleanlab's column names, the most suspicious first."""
        return self._table("labels.csv")

    @property
    def cleaned(self) -> Any:
        """The rows in their order with the label that each should have."""
        return self._table("cleaned.csv")

    @property
    def owners(self) -> Any:
        """Each site's rows, and how many look wrong."""
        return self._table("owners.csv")

    @property
    def results(self) -> Results:
        """Curves and report."""
        return Results(self.folder)

    def __repr__(self) -> str:
        return f"Cleaned({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        return str(self.labels.head(20).to_html(index=False))


def clean(
    tables: Sequence[Any],
    *,
    label: str = "label",
    out: str | Path = "cleaned",
    quiet: bool = True,
    fresh: bool = True,
    **options: Any,
) -> Cleaned:
    """Finds labels that look wrong in several sites' tables, of which few rows have been checked.

    ``tables`` are paths, or pandas tables (one a site). ``options`` are the command's: ``id``, ``clean``
    (the column that says whether a row was checked), ``checked``, ``test``, ``truth``, ``features``,
    ``model``, ``hidden``, ``ways``, ``iterations``, ``step``, ``batch``, ``seed``, ``threads`` …"""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dibo-") as folder:
        files = [_file(table, Path(folder) / f"site{i}.csv") for i, table in enumerate(tables)]
        arguments = ["clean", *files, "--label", label, "--out", str(out)]
        for key, value in options.items():
            name = "--" + key.replace("_", "-")
            if key in ("checked",):
                value = [_file(table, Path(folder) / f"checked{i}.csv") for i, table in enumerate(value)]
            elif key == "test":
                value = _file(value, Path(folder) / "test.csv")
            many = isinstance(value, (list, tuple))
            arguments += [name, ",".join(map(str, value)) if many else str(value)]
        arguments += ["--quiet"] * quiet + ["--fresh"] * fresh
        if command(arguments, log.info if quiet else None) == 130:
            raise KeyboardInterrupt("clean was interrupted")
    return Cleaned(out)


def _file(table: Any, path: Path) -> str:
    if isinstance(table, (str, Path)):
        return str(table)
    table.to_csv(path, index=False)
    return str(path)


class LabelCleaner:
    """scikit-learn's habits for tables in memory: rows are dealt to ``agents``, each of whom keeps its own.

    ``fit(X, y, X_clean, y_clean)`` learns from rows with given labels and few checked ones; then
    ``label_quality_`` has a number in [0, 1] for each row of X (low: suspicious), ``is_label_issue_`` says
    which look wrong, and ``predicted_labels_`` what they should be. ``predict`` tells the classes of other
    rows."""

    def __init__(self, agents: int = 10, *, random_state: int = 0, **options: Any) -> None:
        self.agents, self.random_state, self.options = agents, random_state, options

    def fit(self, X: Any, y: Any, X_clean: Any, y_clean: Any) -> LabelCleaner:
        import tempfile

        import numpy as np
        import pandas

        x, xc = np.asarray(X, dtype=float), np.asarray(X_clean, dtype=float)
        labels, checked = np.asarray(y), np.asarray(y_clean)
        if x.ndim != 2 or xc.ndim != 2 or x.shape[1] != xc.shape[1]:
            raise ValueError(f"X has shape {x.shape} and X_clean {xc.shape}; both must be (rows, features)")
        if len(x) != len(labels) or len(xc) != len(checked):
            raise ValueError("X and y, and X_clean and y_clean, must have as many rows")
        order = np.random.default_rng(self.random_state)
        sites, checked_sites = (
            order.permutation(len(x)) % self.agents,
            order.permutation(len(xc)) % self.agents,
        )
        names = [f"f{j}" for j in range(x.shape[1])]

        def table(rows: Any, given: Any, ids: Any, flag: int) -> Any:
            return pandas.DataFrame(rows, columns=names).assign(label=given, row=ids, is_checked=flag)

        tables = []
        for site in range(self.agents):
            own, sure = np.flatnonzero(sites == site), np.flatnonzero(checked_sites == site)
            parts = [table(x[own], labels[own], [f"r{i}" for i in own], 0)]
            parts.append(table(xc[sure], checked[sure], [f"c{i}" for i in sure], 1))
            tables.append(pandas.concat(parts, ignore_index=True))
        self.folder_ = tempfile.mkdtemp(prefix="dibo-cleaned-")
        options = {"id": "row", "clean": "is_checked", "seed": self.random_state, **self.options}
        found = clean(tables, label="label", out=self.folder_, **options).labels
        found = found[found["id"].astype(str).str.startswith("r")]
        at = found["id"].str[1:].astype(int).to_numpy()
        kinds = labels.dtype
        self.classes_ = np.unique(np.concatenate([labels, checked]))
        self.label_quality_ = np.ones(len(x))
        self.label_quality_[at] = found["label_score"].to_numpy()
        self.is_label_issue_ = np.zeros(len(x), dtype=bool)
        self.is_label_issue_[at] = (
            found["is_label_issue"].astype(str).str.lower().isin(["true", "1"]).to_numpy()
        )
        self.predicted_labels_ = labels.copy()
        self.predicted_labels_[at] = found["predicted_label"].to_numpy().astype(kinds)
        return self


class Picture:
    """A picture as SVG: notebooks show it, `save` writes it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes the SVG file."""
        Path(path).write_text(self.svg)

    def __repr__(self) -> str:
        return f"Picture({len(self.svg)} characters of SVG)"


def plot(
    runs: Any,
    metric: str | None = None,
    *,
    x: str = "iteration",
    log: str = "y",
    title: str = "",
) -> Picture:
    """Draws a metric of a run, of `Results`, or of a table that `compare` gave: the median and the middle
    80 % of the seeds. ``x`` may be ``"seconds"``, ``"bytes"``, ``"gradients"`` or ``"products"``; ``log``
    names logarithmic axes."""
    from ._run import Run

    if isinstance(runs, Run):
        columns, labels = dict(runs.columns), [runs.algorithm]
        count = len(columns["iteration"])
        series, seeds = [0] * count, [0] * count
    else:
        frame = runs.curves if isinstance(runs, Results) else runs
        labels = list(dict.fromkeys(frame["algorithm"]))
        place = {label: i for i, label in enumerate(labels)}
        series, seeds = [place[label] for label in frame["algorithm"]], list(map(int, frame["seed"]))
        columns = {name: frame[name].to_numpy() for name in frame.columns}
    fixed = (
        "series",
        "algorithm",
        "seed",
        "status",
        "iteration",
        "seconds",
        "bytes",
        "gradients",
        "products",
    )
    metrics = [name for name in columns if name not in fixed]
    metric = metric or (metrics[0] if metrics else None)
    if metric not in metrics:
        raise ValueError(f"there is no metric {metric!r}; known are {', '.join(metrics)}")

    def number(name: str, i: int) -> int:
        return int(columns[name][i]) if name in columns and columns[name][i] == columns[name][i] else 0

    rows = []
    for i in range(len(columns["iteration"])):
        values = [float(columns[name][i]) for name in metrics]
        seconds = float(columns["seconds"][i]) if "seconds" in columns else 0.0
        counts = [number(name, i) for name in ("bytes", "gradients", "products")]
        rows.append((series[i], seeds[i], number("iteration", i), seconds, *counts, values))
    figure = {"name": "plot", "title": title, "x": x, "y": metric, "log": log}
    manifest = _manifest(labels, metrics, sorted(set(seeds)))
    return Picture(_core.draw(json.dumps(figure), json.dumps(manifest), metrics, rows))


def _manifest(labels: list[str], metrics: list[str], seeds: list[int]) -> dict[str, Any]:
    """As much of a manifest as a picture needs."""
    info = [{"name": name, "label": name.replace("_", " "), "unit": "", "better": ""} for name in metrics]
    series = [{"name": label, "label": label, "algorithm": "", "settings": {}, "swept": []} for label in labels]
    return {
        "version": _core.__version__,
        "name": "python",
        "title": "",
        "file": "",
        "overrides": [],
        "seeds": seeds,
        "machine": {"system": "", "cpu": "", "threads": 1, "memory": 0},
        "started": 0,
        "seconds": 0.0,
        "peak_memory": None,
        "metrics": info,
        "series": series,
        "runs": [],
        "figures": [],
        "claims": [],
    }
