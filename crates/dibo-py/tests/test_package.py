"""The package: objects, experiment files, pictures, the command, types of results."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys

import numpy as np
import pytest

import dibo
from dibo import _core

full = pytest.mark.skipif(not _core.experiments, reason="this dibo has no experiment files")


def test_doctests():
    import dibo._algorithms
    import dibo._graphs
    import dibo._run
    import dibo._tree

    for module in (dibo, dibo._algorithms, dibo._graphs, dibo._run, dibo._tree):
        failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
        assert failed == 0 and tried > 0, module


def test_every_algorithm_of_the_registry_has_a_name():
    for name in dibo.algorithms():
        with pytest.raises(ValueError):
            dibo.Algorithm(name, no_such_key=1)


def test_reprs_read_back():
    names = {name: getattr(dibo, name) for name in dibo.__all__}
    things = [
        dibo.FAB(lam=20, eta=0.05),
        dibo.FAB(lam={"start": 1, "power": 0.3}, eta=0.1, normalised=True),
        dibo.DoubleLoop("push-pull", inner=5, eta=0.1),
        dibo.PushASGD(0.1, 0.9),
        dibo.Algorithm("push-sgd", eta=np.float64(0.1)),
        dibo.Cycle(8, 0.2, seed=4, loss=0.1),
        dibo.ErdosRenyi(5, 0.4),
        dibo.Ring(3, weights=0.4),
        dibo.Links(3, [[(0, 1), (1, 2), (2, 0)]]),
        dibo.OnePeerExponential(8),
        dibo.Alone(4),
    ]
    for thing in things:
        assert eval(repr(thing), names) == thing, repr(thing)


def test_graphs_are_as_described():
    cycle = dibo.Cycle(5, 0.3, phases=(1, 1, 1))
    assert set(cycle.edges(1)) == {(i, (i + 1) % 5) for i in range(5)}
    a, b = cycle.matrices(0)
    assert np.allclose(a.sum(1), 1) and np.allclose(b.sum(0), 1)
    assert ((a > 0) == (b > 0)).all()


def test_imports_are_lazy():
    code = (
        "import sys, dibo; print([m for m in ('pandas', 'torch', 'jax', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_curves_are_pandas():
    pandas = pytest.importorskip("pandas")
    run = dibo.solve(dibo.Quadratic(), dibo.FAB(lam=5, eta=0.02), iterations=100)
    assert isinstance(run.curves, pandas.DataFrame)
    assert list(run.curves["iteration"]) == [0, 20, 40, 60, 80, 100]
    assert "<table>" in run._repr_html_() and "finished" in repr(run)


@full
def test_compare_and_plot():
    pytest.importorskip("pandas")
    fabs = {"small": dibo.FAB(lam=5, eta=0.01), "large": dibo.FAB(lam=5, eta=0.03)}
    frame = dibo.compare(lambda seed: dibo.Quadratic(seed=seed), fabs, seeds=2, iterations=200)
    assert set(frame["algorithm"]) == {"small", "large"} and set(frame["seed"]) == {0, 1}
    picture = dibo.plot(frame, "relative_error")
    assert picture.svg.startswith("<svg") and "large" in picture.svg
    assert dibo.plot(dibo.solve(dibo.Quadratic(), fabs["small"], iterations=50))._repr_svg_()
    with pytest.raises(ValueError, match="relative_error"):
        dibo.plot(frame, "no_such")


@full
def test_experiments(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    results = dibo.run("policy", set={"run.iterations": 100}, seeds=1)
    assert set(results.runs["outcome"]) == {"finished"} and results.report.exists()
    assert "relative_error" in results.curves and "<table" in results._repr_html_()
    again = pickle.loads(pickle.dumps(results))
    assert (again.curves["iteration"] == results.curves["iteration"]).all()
    assert "FAB" in dibo.plot(results, "relative_error").svg
    file = tmp_path / "own.toml"
    file.write_text(
        '[problem]\nkind = "quadratic"\nagents = 4\n[run]\niterations = 60\n'
        '[[algorithm]]\nname = "fab"\nlambda = 5\neta_x = 0.02\neta_y = 0.02\n'
    )
    assert len(dibo.run(file).runs) == 1
    assert "FAB" in dibo.check(file, seconds=0.5)
    best = dibo.tune(file, set={"run.iterations": 40}, seeds=1)
    assert best.exists() and "fab" in best.read_text()
    with pytest.raises(ValueError, match="no experiment"):
        dibo.run("no-such")
    with pytest.raises(ValueError, match="set"):
        dibo.command(["run", "policy", "--set"])


@full
def test_own_problems_through_the_door():
    targets = [np.array([[float(i)]]) for i in range(4)]
    problem = dibo.GradientProblem(
        lambda x, y, t: (np.zeros(1), y - t[0]),
        lambda x, y, t: (x - y, y - x),
        x=np.zeros(1),
        y=np.zeros(1),
        train=targets,
        val=targets,
        metrics={"distance": lambda x, y: abs(x[0] - 1.5)},
    )
    slow, graph = dibo.FAB(lam=10, eta=0.001), dibo.Cycle(4, 0.3)
    text = dibo.check(problem, slow, graph, iterations=50, seconds=0.5)
    assert "FAB" in text and "distance" in text
    best = dibo.tune(problem, slow, graph, iterations=100)
    assert isinstance(best, dibo.FAB) and best != slow
    ends = [dibo.solve(problem, fab, graph, iterations=100).last["distance"] for fab in (slow, best)]
    assert ends[1] < ends[0]

    def broken(x, y, t):
        raise KeyError("no such column")

    problem.upper = broken
    with pytest.raises(KeyError, match="no such column"):
        dibo.tune(problem, slow, graph, iterations=100)


@full
def test_clean(tmp_path):
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4))
    truth = (x[:, 0] + x[:, 1] > 0).astype(int)
    given = np.where(random.random(300) < 0.2, 1 - truth, truth)
    cleaner = dibo.LabelCleaner(
        agents=3, random_state=1, iterations=300, ways="clean-only,rounds", model="linear"
    )
    cleaner.fit(x[60:], given[60:], x[:60], truth[:60])
    wrong = given[60:] != truth[60:]
    assert cleaner.label_quality_[wrong].mean() < 0.5 * cleaner.label_quality_[~wrong].mean()
    assert (cleaner.predicted_labels_ == truth[60:]).mean() > 0.85
    frames = [
        pandas.DataFrame(x[part], columns=list("abcd")).assign(label=given[part], ok=np.arange(100) < 20)
        for part in (slice(0, 100), slice(100, 200), slice(200, 300))
    ]
    found = dibo.clean(
        frames, clean="ok", out=tmp_path / "out", iterations=200, ways="clean-only", model="linear"
    )
    assert {"given_label", "label_score"} <= set(found.labels) and len(found.owners) == 3


@full
def test_the_command():
    def call(*arguments):
        return subprocess.run([sys.executable, "-m", "dibo", *arguments], capture_output=True, text=True)

    listed = call("list")
    assert listed.returncode == 0 and "sensitivity" in listed.stdout
    wrong = call("run", "no-such")
    assert wrong.returncode == 2 and wrong.stderr.startswith("dibo: there is no experiment")
    assert call("--version").stdout.strip() == f"dibo-cli {dibo.__version__}"
