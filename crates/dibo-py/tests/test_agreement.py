"""The same problem in Rust, NumPy, PyTorch and JAX: the same iterates, for every method that can run on
it."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import AGENTS, FRAMEWORKS, LOWER, UPPER, quadratic, tables

import dibo

FAB = dict(lam=5, eta=0.02)
FIRST_ORDER = [
    dibo.FAB(**FAB),
    dibo.CentralizedFAB(**FAB),
    dibo.StaticFAB(**FAB),
    dibo.RunningSumFAB(**FAB),
    dibo.PushSumFAB(**FAB),
]
SECOND_ORDER = [
    dibo.PushPullSOBA(0.02, 0.05),
    dibo.DoubleLoop("push-pull", inner=1, eta=0.02),
    dibo.DoubleLoop("push-sgd", inner=1, eta=0.02),
    dibo.DoubleLoop("push-saga", inner=1, eta=0.02),
    dibo.DoubleLoop("push-asgd", inner=1, eta=0.01, beta=0.5),
]
SINGLE = [
    dibo.PushPull(0.05),
    dibo.SubgradientPush(0.05),
    dibo.PushSGD(0.05),
    dibo.PushDIGing(0.05),
    dibo.PushSAGA(0.05),
    dibo.PushASGD(0.02, 0.5),
]
GRAPH = dibo.Cycle(AGENTS, 0.5, seed=3)


def same(problem, algorithm, graph=GRAPH, iterations=1000):
    ours = dibo.solve(problem, algorithm, graph, iterations=iterations)
    rust = dibo.solve(quadratic("rust"), algorithm, graph, iterations=iterations)
    assert ours.status == rust.status == "finished"
    for name, rows in rust.variables.items():
        scale = max(1.0, float(np.abs(rows).max()))
        assert np.abs(ours.variables[name] - rows).max() <= 1e-12 * scale, name
    for name in ("bytes", "gradients", "products"):
        assert (ours.columns[name] == rust.columns[name]).all()


def test_every_method_is_here():
    named = {a.name for a in FIRST_ORDER + SECOND_ORDER + SINGLE}
    old = set(dibo.algorithms())
    assert named <= old


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("algorithm", FIRST_ORDER, ids=lambda a: a.name)
def test_first_order(framework, algorithm):
    same(quadratic(framework), algorithm)


@pytest.mark.parametrize("framework", [f for f in FRAMEWORKS if f != "numpy-stacked"])
@pytest.mark.parametrize("algorithm", SECOND_ORDER, ids=lambda a: a.name)
def test_second_order(framework, algorithm):
    same(quadratic(framework), algorithm)


@pytest.mark.parametrize("framework", [f for f in FRAMEWORKS if f != "numpy-stacked"])
@pytest.mark.parametrize("algorithm", SINGLE, ids=lambda a: a.name)
def test_single_level(framework, algorithm):
    # Rust's single-level objective is f(x, 0).
    (hf, of), _ = tables(dibo.Quadratic(AGENTS, UPPER, LOWER).core)
    data = (hf[:, None, :UPPER, :UPPER], of[:, None, :UPPER])
    problem = quadratic(framework)
    if framework == "numpy":
        single = lambda x, d: d[0][0] @ x + d[1][0]
    else:
        single = lambda x, d: 0.5 * x @ (d[0][0] @ x) + d[1][0] @ x
    kind = type(problem)
    like = problem.x.tree(np.zeros(UPPER)) if framework == "numpy" else None
    if framework == "torch":
        import torch

        like = torch.zeros(UPPER, dtype=torch.float64)
    elif framework == "jax":
        import jax.numpy as jnp

        like = jnp.zeros(UPPER)
    low = like[:1]
    nothing = lambda x, y, d: (x, y) if framework == "numpy" else (x * 0).sum() + (y * 0).sum()
    made = kind(nothing, nothing, x=like, y=low, train=data, val=data, single=single, single_of="x")
    same(made, algorithm)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_lost_messages_and_other_graphs(framework):
    lossy = dibo.Cycle(AGENTS, 0.5, seed=1, loss=0.2)
    same(quadratic(framework), dibo.RunningSumFAB(**FAB), lossy, 200)
    same(quadratic(framework), dibo.FAB(**FAB), dibo.Ring(AGENTS, weights=0.3), 200)
    links = dibo.Links(AGENTS, [[(0, 1), (1, 2), (2, 0)], [(1, 0), (2, 1), (0, 2)]])
    same(quadratic(framework), dibo.FAB(**FAB), links, 200)
    a, b = dibo.Ring(AGENTS).matrices(0)
    same(quadratic(framework), dibo.FAB(**FAB), dibo.Matrices([(a, b)]), 200)


class OwnFAB:
    """FAB as the paper writes it."""

    def __init__(self, lam, eta):
        self.lam, self.eta = lam, eta

    def start(self, problem, network):
        x, y = problem.start()
        d = problem.directions(0, x, y, y, 1.0, self.lam)
        return dict(zip(["x", "y", "z", "tx", "ty", "tz", "dx", "dy", "dz"], [x, y, y.copy(), *d, *d]))

    def step(self, k, s, problem, network):
        v, t = [s["x"], s["y"], s["z"]], [s["tx"], s["ty"], s["tz"]]
        pulled, pushed = network.round(k, pull=v, push=t)
        v = [p - self.eta * q for p, q in zip(pulled, t)]
        d = problem.directions(k + 1, *v, 1.0, self.lam)
        t = [p + new - s[name] for p, new, name in zip(pushed, d, ["dx", "dy", "dz"])]
        return dict(zip(["x", "y", "z", "tx", "ty", "tz", "dx", "dy", "dz"], [*v, *t, *d]))


@pytest.mark.parametrize("framework", ["rust", *FRAMEWORKS])
def test_an_algorithm_in_python_is_the_one_in_rust(framework):
    problem = quadratic(framework)
    own = dibo.solve(problem, OwnFAB(5, 0.02), GRAPH, iterations=300)
    rust = dibo.solve(quadratic("rust"), dibo.FAB(**FAB), GRAPH, iterations=300)
    for name in ("x", "y", "z", "tx", "dx"):
        assert np.abs(own.variables[name] - rust.variables[name]).max() < 1e-12
    assert (own.columns["bytes"] == rust.columns["bytes"]).all()
    assert np.allclose(own.columns["consensus_x"], rust.columns["consensus_x"], atol=1e-14)
