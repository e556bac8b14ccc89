"""Runs on a GPU as far as a machine without one can tell: refusals, how variables lie there, and the
functions that are called there, on tensors of the processor. What needs a GPU is in gpu/check.py."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import installed, needs_jax, needs_torch, quadratic

import dibo
from dibo import _core
from dibo._tree import Variable

FAB = dibo.FAB(lam=5, eta=0.02)


def no_gpu() -> bool:
    if not (_core.cuda and installed("torch")):
        return True
    import torch

    return not torch.cuda.is_available()


def problem(x="private", batch=4, dtype="float32", agents=3):
    import torch

    g = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    counts = [9 + (i if x == "ragged" else 0) for i in range(agents)]

    def losses(y, d):
        return ((torch.tanh(d["a"] @ y["w"]) @ y["v"] + y["b"] - d["b"]) ** 2).sum(-1)

    def lower(v, y, d):
        weight = torch.sigmoid(v[d["place"]]) if x != "shared" else torch.nn.functional.softplus(v[0])
        return (weight * losses(y, d)).mean() + 0.1 * sum((p * p).sum() for p in y.values())

    def samples(count):
        a, b = torch.randn(count, 3, generator=g, dtype=kind), torch.randn(count, 1, generator=g, dtype=kind)
        return {"a": a, "b": b, "place": torch.arange(count)}

    start = [torch.zeros(count, dtype=kind) for count in counts]
    y = {"w": torch.randn(3, 5, generator=g, dtype=kind), "v": torch.randn(5, 1, generator=g, dtype=kind)}
    return dibo.Problem(
        lambda v, y, d: losses(y, d).mean(),
        lower,
        x=torch.zeros(2, dtype=kind) if x == "shared" else start,
        y={**y, "b": torch.zeros(1, dtype=kind)},
        private=x != "shared",
        train=[samples(count) for count in counts],
        val=[samples(6) for _ in counts],
        batch=batch,
    )


@needs_torch
@pytest.mark.skipif(not no_gpu(), reason="there is a GPU")
def test_a_machine_without_a_gpu_says_so_in_one_line():
    words = "PyTorch finds none" if _core.cuda else "built without CUDA: maturin build --release --features"
    with pytest.raises(RuntimeError, match=words) as caught:
        dibo.solve(problem(), FAB, iterations=5, device="cuda")
    assert str(caught.value).endswith("give device='cpu' to run on the processor")
    assert "\n" not in str(caught.value)


@needs_torch
@pytest.mark.parametrize("device", ["gpu", "mps", "meta", 1.5])
def test_words_that_are_no_device_are_refused(device):
    with pytest.raises(ValueError, match="it must be 'cpu', 'cuda' or such as 'cuda:1'"):
        dibo.solve(problem(), FAB, iterations=5, device=device)


@needs_torch
def test_the_processor_is_a_device():
    a, b = (dibo.solve(problem(), FAB, iterations=20, **o) for o in ({}, {"device": "cpu"}))
    assert np.array_equal(a.variables["y"], b.variables["y"])


def test_numpy_and_rust_run_on_the_processor():
    with pytest.raises(TypeError, match="needs losses in PyTorch; NumPy's run on the processor"):
        dibo.solve(quadratic("numpy"), FAB, iterations=5, device="cuda")
    with pytest.raises(TypeError, match="problems in Rust run on the processor: give device='cpu'"):
        dibo.solve(dibo.Quadratic(), FAB, iterations=5, device="cuda")
    assert dibo.solve(dibo.Quadratic(), FAB, iterations=5, device="cpu").status == "finished"


@needs_jax
def test_jax_runs_on_the_processor():
    with pytest.raises(TypeError, match="needs losses in PyTorch; JAX's run on the processor"):
        dibo.solve(quadratic("jax"), FAB, iterations=5, device="cuda")


@needs_torch
def test_variables_on_two_devices_are_refused():
    import torch

    loss = lambda x, y, d: y.sum()
    t = [torch.zeros(1, 1) for _ in range(3)]
    with pytest.raises(TypeError, match="x and y lie on cpu, meta; all must lie on the processor, or all on"):
        dibo.Problem(loss, loss, x=torch.zeros(1), y=torch.zeros(1, device="meta"), train=t, val=t)


@needs_torch
def test_double_precision_and_own_algorithms_are_refused(monkeypatch):
    from dibo import _torch

    monkeypatch.setattr(_torch, "place", lambda device: "cuda:0")
    with pytest.raises(TypeError, match="x and y are float64; on a GPU all must be float32"):
        dibo.solve(problem(dtype="float64"), FAB, iterations=5, device="cuda")
    with pytest.raises(TypeError, match="an algorithm in Python runs on the processor; give device='cpu'"):
        dibo.solve(problem(), object(), iterations=5, device="cuda")


def test_arrays_begin_where_products_are_fast():
    plain = Variable({"a": 0, "b": 0, "c": 0}, [(3, 5), (4,), (16, 2)])
    aligned = plain.aligned(16)
    assert (aligned.starts, aligned.width, plain.width) == ([0, 16, 32], 64, 51)
    dense = np.arange(2.0 * 51).reshape(2, 51)
    rows = aligned.spread(dense)
    assert rows.shape == (2, 64) and rows.sum() == dense.sum()
    for a, b in zip(plain.leaves(dense), aligned.leaves(rows)):
        assert np.array_equal(a, b) and a.shape == b.shape
    assert np.array_equal(np.concatenate(aligned.pieces(rows), axis=-1), dense)
    # What lies together stays together.
    assert [piece.shape for piece in Variable([0, 0], [(16,), (3,)]).aligned(16).pieces(rows)] == [(2, 19)]


@needs_torch
def test_y_and_z_at_once_are_y_and_z_apart():
    import torch

    p = problem()
    p._align(16)
    oracle, n, width, owned = p.oracle(), p.agents, p.y.width, [0, 1, 2]
    g = torch.Generator().manual_seed(1)
    rows, x = torch.zeros(n, 2 * width), torch.randn(n, 9, generator=g)
    for start, size in zip(p.y.starts, p.y.sizes):
        for twin in (0, width):
            rows[:, twin + start : twin + start + size] = torch.randn(n, size, generator=g)
    found = []
    for together in (False, True):
        out, dx = torch.zeros(n, 2 * width), torch.zeros(n, 9)
        ins, outs = ([a, b[:, :width], b[:, width:]] for a, b in ((x, rows), (dx, out)))
        pair = rows.view(2 * n, width), out.view(2 * n, width)
        call = oracle._twins(owned, ins, outs, *pair) if together else oracle._apart(owned, ins, outs)
        for k in (0, 7):
            call(k, 0.7, 1.3)
        found.append((dx, out))
    for a, b in zip(*found):
        assert a.abs().max() > 0.01 and torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@needs_torch
def test_private_rows_of_different_lengths_are_filled_up_and_cut():
    import torch

    from dibo._cuda import Padded

    vectors = [torch.arange(float(n)) + 1 for n in (3, 0, 5)]
    padded = Padded(vectors, "cpu")
    padded.copy_in()
    assert padded.rows.tolist() == [[1, 2, 3, 0, 0], [0] * 5, [1, 2, 3, 4, 5]]
    padded.rows.mul_(2)
    padded.copy_out()
    assert vectors[2].tolist() == [2, 4, 6, 8, 10]


@needs_torch
def test_the_first_direction_that_is_not_finite_is_named():
    import torch

    from dibo._cuda import check_finite

    fine, bad = torch.zeros(2, 3), torch.zeros(2, 2, 2)
    bad[1, 0, 1] = float("inf")
    check_finite([[fine], [fine], [fine]], [4, 7], "xyz")
    with pytest.raises(ValueError, match="the direction of y of agent 7 holds inf at iteration 0"):
        check_finite([[fine], [fine, bad], [fine]], [4, 7], "xyz")


@needs_torch
def test_a_problem_keeps_what_it_placed_and_its_own_shape():
    p = problem("shared")
    there = p.on("cpu")
    assert there is p.on("cpu") and there is not p and there.y.width == p.y.width
    assert there.train.leaves[0] is p.train.leaves[0]
