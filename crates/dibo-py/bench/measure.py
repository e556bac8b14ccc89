"""Figures of docs/python.md: ratios within one run, bursts in turn, the best of several counts.

python bench/measure.py crossing
python bench/measure.py policy
python bench/measure.py cleaning --torch-peer FILE
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import dibo

#: Time on the wall, or with --cpu the processor's, which others on the machine disturb less.
CLOCK = time.perf_counter


def best(rounds: int, works: dict[str, object]) -> dict[str, float]:
    """Seconds of each work, the best of so many rounds in which all take turns."""
    out = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            began = CLOCK()
            work()
            out[name] = min(out[name], CLOCK() - began)
    return out


def crossing(rounds: int) -> None:
    """What the way from Rust to Python and back costs: the same run with a function that does nothing, less
    the run's own work, which is the same without Python."""
    from dibo import _core

    k, width = 20000, 20
    for n in (10, 100):
        for lend in (True, False):

            def nothing(x, y, z, dx, dy, dz, k, f, g):
                pass

            options = dict(x=np.zeros(5), y=np.zeros(width), agents=n, lend=lend)
            problem = dibo.GradientProblem(directions=nothing, **options)
            fab, graph = dibo.FAB(lam=1, eta=1e-9), dibo.Ring(n)
            null = _core.Builtin.idle(n, 5, width)

            def entered():
                dibo.solve(problem, fab, graph, iterations=k, every=k)

            def alone():
                _core.solve(null, fab.name, fab.json, graph.json, iterations=k, every=k)

            t = best(rounds, {"entered": entered, "alone": alone})
            cost, how = (t["entered"] - t["alone"]) / k * 1e6, "lent" if lend else "copied"
            own = t["alone"] / k * 1e6
            print(
                f"crossing, n = {n}, rows {how}: {cost:.2f} µs an iteration (the iteration itself {own:.2f})"
            )


S, D = 20, 5
LAM, ETA, TAU, GAMMA = 60.0, 0.1, 0.1, 0.9


def policy(rounds: int) -> None:
    """NumPy policy evaluation: the best NumPy loop there is here, and the same gradients through dibo."""
    for n, nu, k in ((10, 0.3, 4000), (100, 0.05, 2000)):
        r = np.random.default_rng(0)
        phi, p = r.random((S, D)), r.random((S, S))
        p /= p.sum(1, keepdims=True)
        m, rewards = GAMMA * p @ phi, r.random((n, S))
        graphs = [_graph(n, nu, i, np.random.default_rng(i)) for i in range(30)]
        links = [[(int(j), int(i)) for i, j in zip(*np.nonzero(a)) if i != j] for a, _ in graphs]

        def peer():
            return numpy_fab(phi, m, rewards, graphs, k)

        problems = {lend: policy_problem(phi, m, rewards, lend) for lend in (False, True)}
        fab = dibo.FAB(lam=LAM, eta=ETA, normalised=True)
        graph = dibo.Links(n, links)

        def ours(lend=False):
            return dibo.solve(problems[lend], fab, graph, iterations=k, every=k)

        want = peer()
        got = ours().variables
        off = max(np.abs(got["x"] - want[:, :D]).max(), np.abs(got["y"] - want[:, D : D + S]).max())
        t = best(rounds, {"peer": peer, "dibo": ours, "lent": lambda: ours(True)})
        print(
            f"policy evaluation in NumPy, n = {n}: loop {t['peer'] / k * 1e6:.1f} µs, through dibo "
            f"{t['dibo'] / k * 1e6:.1f} µs an iteration: {t['peer'] / t['dibo']:.2f} times, "
            f"{t['peer'] / t['lent']:.2f} with rows lent (largest difference {off:.0e})"
        )


def _graph(n, nu, k, r):
    a = (r.random((n, n)) < nu).astype(float) if k % 3 == 0 else np.zeros((n, n))
    i = np.arange(n)
    if k % 3 < 2:
        a[(i + 1) % n, i] = 1
    else:
        a[i, (i + 1) % n] = 1
    np.fill_diagonal(a, 1)
    return a / a.sum(1, keepdims=True), a / a.sum(0, keepdims=True)


def numpy_fab(phi, m, rewards, graphs, iterations):
    """FAB in NumPy: all variables side by side, products with dense matrices."""
    n, w = len(rewards), D + 2 * S
    v = np.zeros((n, w))
    pt, mt = np.ascontiguousarray(phi.T), np.ascontiguousarray(m.T)

    def gradient(v, o):
        x, y, z = v[:, :D], v[:, D : D + S], v[:, D + S :]
        e = x @ pt
        e -= y
        e /= LAM
        u = x @ mt
        u += rewards
        oy, oz = o[:, D : D + S], o[:, D + S :]
        np.subtract(y, u, out=oy)
        np.subtract(z, u, out=oz)
        o[:, :D] = e @ phi
        o[:, :D] += (oz - oy) @ m
        o[:, :D] += TAU / LAM * x
        oy -= e
        return o

    d = gradient(v, np.empty((n, w)))
    t, other = d.copy(), np.empty((n, w))
    for k in range(iterations):
        a, b = graphs[k % len(graphs)]
        v = a @ v
        v -= ETA * t
        gradient(v, other)
        t = b @ t
        t += other
        t -= d
        d, other = other, d
    return v


def policy_problem(phi, m, rewards, lend):
    """The same gradients for dibo in nine calls of NumPy: all products with x at once, results written where
    they belong. Tables with f in them are made once for each f."""
    n, slope = len(rewards), TAU / LAM
    images, pulled = np.empty((n, 3 * S)), np.empty((n, 2 * S + D))
    high, low, mixed, both = images[:, :S], images[:, S : 2 * S], images[:, 2 * S :], images[:, S:]
    e, dz_dy, own = pulled[:, :S], pulled[:, S : 2 * S], pulled[:, 2 * S :]
    twice = np.hstack([rewards, rewards])
    # np.dot is the shorter way into the same product, but writes to contiguous arrays only.
    product = np.matmul if lend else np.dot
    add, subtract, multiply, copyto = np.add, np.subtract, np.multiply, np.copyto
    tables = {}

    def of(f):
        there = np.ascontiguousarray(np.hstack([phi.T, m.T, (m + f * phi).T]))  # x ↦ (Φx, Mx, (M + fΦ)x)
        tables[f] = there, np.ascontiguousarray(np.vstack([f * phi, m, slope * np.eye(D)]))
        return tables[f]

    def directions(x, y, z, dx, dy, dz, k, f, g):
        there, back = tables.get(f) or of(f)
        product(x, there, images)
        add(both, twice, both)
        subtract(z, low, dz)
        multiply(y, 1 + f, dy)
        subtract(dy, mixed, dy)
        subtract(high, y, e)
        subtract(z, y, dz_dy)
        copyto(own, x)
        product(pulled, back, dx)

    return dibo.GradientProblem(directions=directions, x=np.zeros(D), y=np.zeros(S), agents=n, lend=lend)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["crossing", "policy", "cleaning"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--cpu", action="store_true", help="count processor time; for one thread")
    parser.add_argument("--torch-peer", help="peers/hyper_cleaning_torch.py")
    options = parser.parse_args()
    if options.cpu:
        global CLOCK
        CLOCK = time.perf_counter = time.process_time
    if options.what == "cleaning":
        import cleaning

        cleaning.main(options, best)
    else:
        {"crossing": crossing, "policy": policy}[options.what](options.rounds)


if __name__ == "__main__":
    main()
