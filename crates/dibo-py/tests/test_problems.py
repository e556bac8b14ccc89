"""Trees, batches, private variables, metrics, losses on models."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from conftest import needs_jax, needs_torch

import dibo
from dibo import _core

FAB = dibo.FAB(lam=5, eta=0.02)


def ridge(framework, **options):
    """Four agents tune one weight decay: trees as variables, batches of 5 from 12 to 15 samples."""
    random = np.random.default_rng(1)
    data = []
    for i in range(4):
        a = random.normal(size=(12 + i, 3))
        data.append({"a": a, "b": a @ [1.0, -2.0, 0.5] + 0.1 * random.normal(size=12 + i)})
    if framework == "numpy":

        def gradient(train):
            def of(x, y, d):
                r = d["a"] @ y["w"] + y["c"][0] - d["b"]
                gw, gc = d["a"].T @ r / len(r), np.array([r.mean()])
                e = np.exp(x["decay"])
                if not train:
                    return {"decay": np.zeros(1)}, {"w": gw, "c": gc}
                return {"decay": 0.5 * e * (y["w"] @ y["w"])}, {"w": gw + e * y["w"], "c": gc}

            return of

        make = lambda **o: dibo.GradientProblem(gradient(False), gradient(True), **o)
        zeros = np.zeros
    else:
        if framework == "torch":
            import torch

            exp, zeros = torch.exp, lambda n: torch.zeros(n, dtype=torch.float64)
        else:
            import jax
            import jax.numpy as jnp

            jax.config.update("jax_enable_x64", True)
            exp, zeros = jnp.exp, jnp.zeros

        def fit(y, d):
            r = d["a"] @ y["w"] + y["c"][0] - d["b"]
            return 0.5 * (r * r).mean()

        upper = lambda x, y, d: fit(y, d)
        lower = lambda x, y, d: fit(y, d) + 0.5 * (exp(x["decay"]) * (y["w"] @ y["w"])).sum()
        make = lambda **o: dibo.Problem(upper, lower, **o)
    start = dict(x={"decay": zeros(1)}, y={"w": zeros(3), "c": zeros(1)})
    return make(train=data, val=data, seed=7, **start, **options)


@pytest.mark.parametrize("batch", [None, 5, (3, None)])
@pytest.mark.parametrize(
    "framework", [pytest.param("torch", marks=needs_torch), pytest.param("jax", marks=needs_jax)]
)
def test_trees_batches_and_ragged_data_agree_with_numpy(framework, batch):
    want = dibo.solve(ridge("numpy", batch=batch), FAB, iterations=200)
    got = dibo.solve(ridge(framework, batch=batch), FAB, iterations=200)
    for name in ("x", "y", "z"):
        assert np.abs(got.variables[name] - want.variables[name]).max() < 1e-12
    assert set(got.y) == {"w", "c"} and tuple(got.y["w"].shape) == (3,)
    # Losses bring a metric of their own.
    assert got.columns["upper_loss"][-1] < got.columns["upper_loss"][0]


def test_batches_are_pure_functions():
    a = _core.batch(3, [0, 2, 5], 11, [10, 20, 30], 8).reshape(3, 8)
    assert (a == _core.batch(3, [0, 2, 5], 11, [10, 20, 30], 8).reshape(3, 8)).all()
    # An agent's batch does not depend on who is asked beside it.
    assert (a[1] == _core.batch(3, [2], 11, [20], 8)).all()
    assert (a != _core.batch(3, [0, 2, 5], 12, [10, 20, 30], 8).reshape(3, 8)).any()
    assert (a < [[10], [20], [30]]).all() and (a >= 0).all()
    with pytest.raises(ValueError):
        _core.batch(3, [0], 1, [0], 8)


def weights(framework, widths=(4, 4, 4)):
    """Every agent weighs its own samples by sigmoid(x): a private upper variable; y is a common mean."""
    random = np.random.default_rng(2)
    train = [{"v": random.normal(size=w), "place": np.arange(w)} for w in widths]
    val = [{"v": random.normal(size=3) + 1} for _ in widths]
    if framework == "numpy":
        s = lambda x: 1 / (1 + np.exp(-x))

        def lower(x, y, d):
            r = y[0] - d["v"]
            p = s(x[d["place"]])
            gx = np.zeros_like(x)
            np.add.at(gx, d["place"], 0.5 * p * (1 - p) * r * r / len(r))
            return gx, np.array([(p * r).mean()])

        upper = lambda x, y, d: (np.zeros_like(x), np.array([(y[0] - d["v"]).mean()]))
        make = lambda **o: dibo.GradientProblem(upper, lower, **o)
        array = np.asarray
    else:
        if framework == "torch":
            import torch

            sigmoid, array = torch.sigmoid, lambda v: torch.as_tensor(np.asarray(v))
        else:
            import jax
            import jax.numpy as jnp

            jax.config.update("jax_enable_x64", True)
            sigmoid, array = jax.nn.sigmoid, jnp.asarray
        lower = lambda x, y, d: 0.5 * (sigmoid(x[d["place"]]) * (y[0] - d["v"]) ** 2).mean()
        upper = lambda x, y, d: 0.5 * ((y[0] - d["v"]) ** 2).mean()
        make = lambda **o: dibo.Problem(upper, lower, **o)
    starts = [array(np.full(w, 0.1 * i)) for i, w in enumerate(widths)]
    return make(x=starts, y=array(np.zeros(1)), train=train, val=val, private=True, batch=(3, 2))


@pytest.mark.parametrize("widths", [(4, 4, 4), (3, 5, 4)])
@pytest.mark.parametrize(
    "framework", [pytest.param("torch", marks=needs_torch), pytest.param("jax", marks=needs_jax)]
)
def test_private_upper_variables(framework, widths):
    want = dibo.solve(weights("numpy", widths), FAB, iterations=300)
    got = dibo.solve(weights(framework, widths), FAB, iterations=300)
    assert [len(x) for x in got.x] == list(widths)
    for a, b in zip(got.x, want.x):
        assert np.abs(a - b).max() < 1e-12
    assert not np.allclose(got.x[0], 0.0)
    assert "consensus_x" not in got.columns and np.abs(np.asarray(got.y) - np.asarray(want.y)).max() < 1e-12


def test_own_metrics_targets_and_starts():
    best = np.array([1.5])
    targets = [np.full((1, 1), float(i)) for i in range(4)]
    problem = dibo.GradientProblem(
        lambda x, y, t: (np.zeros(1), y - t[0]),
        lambda x, y, t: (x - y, y - x),
        x=np.zeros(1),
        y=np.zeros(1),
        train=targets,
        val=targets,
        metrics={
            "distance": lambda x, y: abs(x - best)[0],
            "closeness": (lambda x, y: -abs(x - best)[0], "higher"),
        },
    )
    fab = dibo.FAB(lam=10, eta=0.02)
    run = dibo.solve(problem, fab, dibo.Ring(4), iterations=5000, target=("distance", 0.01))
    assert run.status == "reached" and run.last["distance"] < 0.01
    assert run.last["closeness"] == -run.last["distance"]
    same = dibo.solve(problem, fab, dibo.Ring(4), iterations=5000, target=("closeness", -0.01))
    assert same.iterations == run.iterations
    near = dibo.solve(problem, fab, dibo.Ring(4), iterations=1, start={"x": [1.5], "y": [[1.5]] * 4})
    assert near.columns["distance"][0] == 0.0
    with pytest.raises(ValueError, match="metric is 'loss'"):
        dibo.solve(problem, fab, dibo.Ring(4), iterations=5, target=("loss", 1))

    def broken(x, y):
        raise KeyError("no such column")

    problem.metrics["broken"] = (broken, 0)
    with pytest.raises(KeyError) as caught:
        dibo.solve(problem, fab, dibo.Ring(4), iterations=5)
    assert "metric 'broken'" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "framework", ["numpy", pytest.param("torch", marks=needs_torch), pytest.param("jax", marks=needs_jax)]
)
@pytest.mark.parametrize("of", ["x", "y"])
def test_metrics_of_one_level_see_the_same_from_the_start(framework, of):
    """Of methods that ask for a gradient first, and of those that measure first."""
    if framework == "numpy":
        make, start = dibo.GradientProblem, np.ones
        upper = lower = lambda x, y, t: (x, y)
        single = lambda v, t: v - t[0]
    else:
        if framework == "torch":
            import torch

            start = lambda n: torch.ones(n, dtype=torch.float64)
        else:
            import jax.numpy as jnp

            start = jnp.ones
        make = dibo.Problem
        upper = lower = lambda x, y, t: (x * x).sum() + (y * y).sum()
        single = lambda v, t: 0.5 * ((v - t[0]) ** 2).sum()
    seen = []

    def metric(x, y):
        seen.append((None if x is None else tuple(x.shape), None if y is None else tuple(y.shape)))
        return 0.0

    targets = [np.full((1, 1), float(i)) for i in range(3)]
    problem = make(
        upper,
        lower,
        x=start(2),
        y=start(4),
        train=targets,
        val=targets,
        single=single,
        single_of=of,
        metrics={"seen": metric},
    )
    names = ["push-pull", "subgradient-push", "push-sgd", "push-diging"]
    for algorithm in (dibo.Algorithm(name, eta=0.01) for name in names):
        seen.clear()
        run = dibo.solve(problem, algorithm, dibo.Ring(3), iterations=4, every=2)
        assert seen == [((2,), (4,) if of == "y" else None)] * 3, algorithm.name
        if of == "y" and framework != "numpy":
            assert np.isfinite(run.columns["upper_loss"]).all()


@needs_torch
def test_a_module_and_its_loaders():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 40, 4)
    labels = (x[..., 0] > 0).long()
    loaders = [DataLoader(TensorDataset(a, b), batch_size=4) for a, b in zip(x, labels)]

    def loss(y, data):
        out = torch.func.functional_call(model, y, (data[0],))
        return torch.nn.functional.cross_entropy(out, data[1])

    def lower(x, y, data):
        return loss(y, data) + 0.5 * torch.exp(x[0]) * sum((p * p).sum() for p in y.values())

    problem = dibo.Problem(
        lambda x, y, data: loss(y, data),
        lower,
        x=torch.tensor([-3.0]),
        y=model,
        train=loaders,
        val=loaders,
        batch=16,
        single=lambda y, data: loss(y, data),
    )
    assert problem.dtype == np.float32
    run = dibo.solve(problem, dibo.FAB(lam=5, eta_x=0.05, eta_y=0.05), iterations=300, every=50)
    assert run.last["upper_loss"] < 0.5 * run.columns["upper_loss"][0]
    assert set(run.y) == set(dict(model.named_parameters()))
    model.load_state_dict(run.y)
    alone = dibo.solve(problem, dibo.PushPull(0.3), iterations=300, every=50)
    assert alone.last["upper_loss"] < 0.5 * alone.columns["upper_loss"][0]
    assert alone.x is None and set(alone.y) == set(run.y)


@pytest.mark.parametrize(
    "framework", ["numpy", pytest.param("torch", marks=needs_torch), pytest.param("jax", marks=needs_jax)]
)
@pytest.mark.parametrize("private", [False, True])
def test_long_rows_are_lent_and_give_what_copies_give(framework, private):
    """f_i = ½|y − i|² + ½|x|², g_i = ½|y − x₀|² + x₁ y₀, with rows so long that they are lent."""
    wide, agents, k = 30_000, 3, 25
    data = [np.full((1, 1), float(i)) for i in range(agents)]
    if framework == "numpy":

        def upper(x, y, d):
            return x, y - d[0, 0]

        def lower(x, y, d):
            gy = y - x[0]
            gx = np.array([-gy.sum(), y[0]])
            gy[0] += x[1]
            return gx, gy

        make, zeros = dibo.GradientProblem, np.zeros
    else:
        if framework == "torch":
            import torch

            zeros = lambda n: torch.zeros(n, dtype=torch.float64)
        else:
            import jax
            import jax.numpy as jnp

            jax.config.update("jax_enable_x64", True)
            zeros = jnp.zeros
        upper = lambda x, y, d: 0.5 * ((y - d[0, 0]) ** 2).sum() + 0.5 * (x * x).sum()
        lower = lambda x, y, d: 0.5 * ((y - x[0]) ** 2).sum() + x[1] * y[0]
        make = dibo.Problem
    start = [zeros(2)] * agents if private else zeros(2)
    problem = make(upper, lower, x=start, y=zeros(wide), train=data, val=data, private=private)
    run = dibo.solve(
        problem, dibo.FAB(lam=3, eta_x=1e-6, eta_y=0.02), dibo.Ring(agents), iterations=k, every=k
    )
    # The same in a few lines of NumPy.
    a, b = dibo.Ring(agents).matrices(0)
    x, y, z = np.zeros((agents, 2)), np.zeros((agents, wide)), np.zeros((agents, wide))
    i = np.arange(agents)[:, None]

    def directions():
        gy, gz = y - x[:, :1], z - x[:, :1]
        dx = x + 3 * np.stack([gz.sum(1) - gy.sum(1), y[:, 0] - z[:, 0]], axis=1)
        gy[:, 0] += x[:, 1]
        gz[:, 0] += x[:, 1]
        return dx, y - i + 3 * gy, 3 * gz

    d = directions()
    t = d
    for _ in range(k):
        x = x - 1e-6 * d[0] if private else a @ x - 1e-6 * t[0]
        y, z = a @ y - 0.02 * t[1], a @ z - 0.02 * t[2]
        new = directions()
        t = [b @ old + n - o for old, n, o in zip(t, new, d)]
        d = new
    assert np.abs(x).max() > 1e-3
    for name, want in (("x", x), ("y", y), ("z", z)):
        assert np.abs(run.variables[name] - want).max() < 1e-12, name


@needs_torch
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("c++")), reason="no C++ compiler here")
def test_compiled_losses_agree_and_fail_in_the_same_words():
    fab = dibo.FAB(lam={"start": 2, "power": 0.25}, eta=0.02)

    def ends(compile):
        problem = ridge("torch", batch=5, compile=compile)
        runs = [dibo.solve(problem, fab, dibo.Ring(4), iterations=30, every=30) for _ in range(2)]
        return [run.variables for run in runs]

    plain, compiled = ends(False), ends(True)
    for name in ("x", "y"):
        np.testing.assert_allclose(compiled[0][name], plain[0][name], rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(compiled[0][name], compiled[1][name])
    import torch

    start = dict(x=torch.zeros(1), y=torch.zeros(2), agents=2)
    wrong = dibo.Problem(lambda x, y, d: y, lambda x, y, d: (y * y).sum() + x.sum(), compile=True, **start)
    with pytest.raises(ValueError, match="upper must give one number"):
        dibo.solve(wrong, FAB, dibo.Ring(2), iterations=1)
