"""MLP cleaning, ten agents, 256 hidden units, batches of 64: PyTorch loops and dibo with PyTorch and JAX,
in turn."""

from __future__ import annotations

import io
import re
import runpy
import sys
from contextlib import redirect_stdout

import numpy as np
import torch

import dibo

N, HIDDEN, BATCH, SAMPLES, VAL = 10, 256, 64, 5400, 600
LAM, DECAY, ETA_X, ETA = 1.0, 0.002, 1e-3, 0.03
SHAPES = [(784, HIDDEN), (1, HIDDEN), (HIDDEN, 10), (1, 10)]


def data():
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(N, SAMPLES, 784, generator=g), torch.randint(0, 10, (N, SAMPLES), generator=g)
    xv, yv = torch.rand(N, VAL, 784, generator=g), torch.randint(0, 10, (N, VAL), generator=g)
    return x, y, xv, yv, [0.03 * torch.randn(*shape, generator=g) for shape in SHAPES]


def mixing(k):
    r = np.random.default_rng(k)
    m = (r.random((N, N)) < 0.5).astype(np.float32)
    np.fill_diagonal(m, 1)
    m[(np.arange(N) + 1) % N, np.arange(N)] = 1
    return torch.tensor(m / m.sum(1, keepdims=True)), torch.tensor(m / m.sum(0, keepdims=True))


class Better:
    """A loop with a leaf for each parameter, so that no gradient is padded."""

    def __init__(self, x, y, xv, yv, start):
        self.data = x, y, xv, yv
        self.y = [w.expand(N, *w.shape).clone() for w in start]
        self.z = [w.clone() for w in self.y]
        self.psi = torch.zeros(N, SAMPLES)
        self.mats = [mixing(k) for k in range(30)]
        self.k = 0
        _, self.dy, self.dz = self.gradients(*self.draw())
        self.ty, self.tz = [d.clone() for d in self.dy], [d.clone() for d in self.dz]

    def draw(self):
        return torch.randint(0, SAMPLES, (N, BATCH)), torch.randint(0, VAL, (N, BATCH))

    @staticmethod
    def loss(w, x, y):
        out = torch.baddbmm(w[3], torch.relu(torch.baddbmm(w[1], x, w[0])), w[2])
        ce = torch.nn.functional.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="none")
        return ce.view(N, -1)

    def gradients(self, idx, vidx):
        x, y, xv, yv = self.data
        ar = torch.arange(N)[:, None]
        xb, yb, xvb, yvb = x[ar, idx], y[ar, idx], xv[ar, vidx], yv[ar, vidx]
        ys, zs = ([w.detach().requires_grad_() for w in v] for v in (self.y, self.z))
        pb = self.psi.gather(1, idx).requires_grad_()
        s = torch.sigmoid(pb)
        square = lambda w: DECAY / 2 * sum((p * p).sum() for p in w)
        f = self.loss(ys, xvb, yvb).mean(1).sum()
        gy = (s * self.loss(ys, xb, yb)).mean(1).sum() + square(ys)
        gz = (s * self.loss(zs, xb, yb)).mean(1).sum() + square(zs)
        grads = torch.autograd.grad(f + LAM * (gy - gz), [pb, *ys, *zs])
        return grads[0], list(grads[1:5]), [-g for g in grads[5:]]

    def step(self):
        a, b = self.mats[self.k % 30]
        mix = lambda m, v: (m @ v.view(N, -1)).view_as(v)
        self.y = [mix(a, v) - ETA * t for v, t in zip(self.y, self.ty)]
        self.z = [mix(a, v) - ETA * t for v, t in zip(self.z, self.tz)]
        idx, vidx = self.draw()
        dp, dy, dz = self.gradients(idx, vidx)
        self.psi.scatter_add_(1, idx, -ETA_X * dp)
        self.ty = [mix(b, t) + new - old for t, new, old in zip(self.ty, dy, self.dy)]
        self.tz = [mix(b, t) + new - old for t, new, old in zip(self.tz, dz, self.dz)]
        self.dy, self.dz, self.k = dy, dz, self.k + 1


def torch_problem(x, y, xv, yv, start, compile=False):
    def losses(w, d):
        out = torch.relu(d["x"] @ w[0] + w[1]) @ w[2] + w[3]
        return torch.nn.functional.cross_entropy(out, d["y"], reduction="none")

    def lower(psi, w, d):
        return (torch.sigmoid(psi[d["place"]]) * losses(w, d)).mean() + DECAY / 2 * sum(
            (p * p).sum() for p in w
        )

    place = torch.arange(SAMPLES)
    return dibo.Problem(
        lambda psi, w, d: losses(w, d).mean(),
        lower,
        x=[torch.zeros(SAMPLES) for _ in range(N)],
        y=start,
        private=True,
        train=[{"x": x[i], "y": y[i], "place": place} for i in range(N)],
        val=[{"x": xv[i], "y": yv[i]} for i in range(N)],
        batch=BATCH,
        compile=compile,
    )


def jax_problem(x, y, xv, yv, start):
    import jax
    import jax.numpy as jnp

    def losses(w, d):
        out = jax.nn.relu(d["x"] @ w[0] + w[1]) @ w[2] + w[3]
        return -jnp.take_along_axis(jax.nn.log_softmax(out), d["y"][:, None], axis=1)[:, 0]

    def lower(psi, w, d):
        return (jax.nn.sigmoid(psi[d["place"]]) * losses(w, d)).mean() + DECAY / 2 * sum(
            (p * p).sum() for p in w
        )

    array = lambda t: jnp.asarray(t.numpy())
    place = np.arange(SAMPLES)
    return dibo.Problem(
        lambda psi, w, d: losses(w, d).mean(),
        lower,
        x=[jnp.zeros(SAMPLES) for _ in range(N)],
        y=[array(w) for w in start],
        private=True,
        train=[{"x": x[i].numpy(), "y": y[i].numpy(), "place": place} for i in range(N)],
        val=[{"x": xv[i].numpy(), "y": yv[i].numpy()} for i in range(N)],
        batch=BATCH,
    )


def timed(problem):
    """The problem, with the time that its function takes."""
    spent = [0.0, 0]
    make = problem.oracle

    def oracle():
        import time

        inner = make()
        bind = inner.bind

        def wrapped(*arguments):
            function = bind(*arguments)

            def directions(k, f, g):
                began = time.perf_counter()
                function(k, f, g)
                spent[0] += time.perf_counter() - began
                spent[1] += 1

            return directions

        inner.bind = wrapped
        return inner

    problem.oracle = oracle
    return problem, spent


def peer(file, threads, iterations):
    arguments, sys.argv = sys.argv, [file, "--threads", str(threads), "--iters", str(iterations)]
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            runpy.run_path(file, run_name="__main__")
    finally:
        sys.argv = arguments
    return float(re.search(r"([\d.]+) ms/iter", said.getvalue()).group(1))


def main(options, _best) -> None:
    threads, k = options.threads, options.iterations
    torch.set_num_threads(threads)
    made = data()
    better = Better(*made)
    fab = dibo.FAB(lam=LAM, eta_x=ETA_X, eta_y=ETA)
    graph = dibo.ErdosRenyi(N, 0.5)
    problems = {"dibo + torch": timed(torch_problem(*made))}
    problems["dibo + torch, compiled"] = timed(torch_problem(*made, compile=True))
    try:
        problems["dibo + JAX"] = timed(jax_problem(*made))
    except ImportError:
        print("JAX is not installed")
    times: dict[str, list[float]] = {}
    whole: dict[str, list[list[tuple[float, float]]]] = {}

    def note(name, ms):
        times.setdefault(name, []).append(ms)

    import time

    for problem, _ in problems.values():
        dibo.solve(problem, fab, graph, iterations=2, every=2, threads=threads)
    for _ in range(options.rounds):
        if options.torch_peer:
            note("the torch peer", peer(options.torch_peer, threads, k))
        for warm in (3, k):
            began = time.perf_counter()
            for _ in range(warm):
                better.step()
            ms = (time.perf_counter() - began) / warm * 1e3
        note("a better torch loop", ms)
        for name, (problem, spent) in problems.items():
            # What a run needs beside its iterations is in both and goes away.
            seconds = []
            for count in (2, k + 2):
                spent[:] = [0.0, 0]
                began = time.perf_counter()
                dibo.solve(problem, fab, graph, iterations=count, every=count, threads=threads)
                seconds.append((time.perf_counter() - began, spent[0]))
            whole.setdefault(name, []).append(seconds)
    shares = {}
    for name, all_seconds in whole.items():
        # The best of the short and of the long runs, each with the time inside the function.
        few, many = (min(run[i] for run in all_seconds) for i in (0, 1))
        note(name, (many[0] - few[0]) / k * 1e3)
        shares[name] = (many[0] - few[0]) / (many[1] - few[1])
    first = next(iter(times))
    for name, all_ms in times.items():
        ms = min(all_ms)
        better_ms = min(times["a better torch loop"])
        ratios = f"{min(times[first]) / ms:.2f} × {first}, {better_ms / ms:.2f} × a better loop"
        share = f", {shares[name]:.3f} × its function alone" if name in shares else ""
        print(f"{name}: {ms:.2f} ms an iteration: {ratios}{share}")


if __name__ == "__main__":
    print("run measure.py cleaning")
