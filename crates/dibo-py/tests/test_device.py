"""Runs on a GPU as far as a machine without one can tell: refusals, how variables lie there, and the
functions that are called there, on tensors and arrays of the processor. What needs a GPU is in
gpu/check.py."""

from __future__ import annotations

import ctypes
import gc
import weakref

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


def jax_problem(x="private", batch=4, loss=None, agents=3, single_of="y"):
    """The same in JAX."""
    import jax
    import jax.numpy as jnp

    g = np.random.default_rng(0)
    counts = [9 + (i if x == "ragged" else 0) for i in range(agents)]
    normal = lambda *shape: g.standard_normal(shape).astype(np.float32)

    def losses(y, d):
        return ((jnp.tanh(d["a"] @ y["w"]) @ y["v"] + y["b"] - d["b"]) ** 2).sum(-1)

    def lower(v, y, d):
        weight = jax.nn.sigmoid(v[d["place"]]) if x != "shared" else jax.nn.softplus(v["s"][0])
        return (weight * losses(y, d)).mean() + 0.1 * sum((p * p).sum() for p in y.values())

    def samples(count):
        return {"a": normal(count, 3), "b": normal(count, 1), "place": np.arange(count)}

    zeros = lambda *shape: jnp.zeros(shape, jnp.float32)
    return dibo.Problem(
        loss or (lambda v, y, d: losses(y, d).mean()),
        lower,
        x={"s": zeros(2), "t": zeros(3)} if x == "shared" else [zeros(count) for count in counts],
        y={"w": jnp.asarray(normal(3, 5)), "v": jnp.asarray(normal(5, 1)), "b": zeros(1)},
        private=x != "shared",
        train=[samples(count) for count in counts],
        val=[samples(6) for _ in counts],
        batch=batch,
        single=lambda y, d: losses(y, d).mean(),
        single_of=single_of,
        metrics={"norm": (lambda x, y: float(jnp.abs(y["w"]).sum()), "neither")},
    )


class Memory:
    """An array of dibo's on a GPU as far as JAX's side knows it, in the processor's memory."""

    def __init__(self, rows, column=0, width=None, log=None):
        self.rows, self.column, self.log = rows, column, [] if log is None else log
        self.shape = (rows.shape[0], width) if width is not None else rows.shape
        self.address = rows.ctypes.data + 4 * column

    def padded(self):
        return Memory(self.rows, log=self.log)

    def wait(self):
        self.log.append("wait")

    def write(self, address, bytes):
        assert self.column == 0 and bytes == self.rows.nbytes and self.shape == self.rows.shape
        ctypes.memmove(self.address, address, bytes)
        self.log.append("write")

    def __dlpack_device__(self):
        return self.rows.__dlpack_device__()

    def __dlpack__(self, **options):
        assert self.shape == self.rows.shape
        return self.rows.__dlpack__()


def aligned(*shape):
    """Zeros that begin where JAX takes them without a copy."""
    size = 4 * int(np.prod(shape))
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)


def lend(p, alone=False):
    """Rows of a problem that was placed on a GPU: variables as they lie there, the arrays behind them, and
    what was done with them."""
    up = lambda width: -(-width // 16) * 16
    n, log = p.agents, []
    if alone:
        rows = aligned(n, up(p.single_width))
        return [Memory(rows, 0, p.single_width, log)], [rows], log
    if not p.private:
        rows = aligned(n, up(p.x.width + 2 * p.y.width))
        starts = [0, p.x.width, p.x.width + p.y.width]
        cuts = [(rows, start, like.width) for start, like in zip(starts, (p.x, p.y, p.y))]
        return [Memory(*cut, log) for cut in cuts], [rows], log
    rows = aligned(n, up(2 * p.y.width))
    both = [Memory(rows, start, p.y.width, log) for start in (0, p.y.width)]
    if len(set(p.widths)) == 1:
        own = aligned(n, up(p.widths[0]))
        return [Memory(own, 0, p.widths[0], log), *both], [own, rows], log
    vectors = [aligned(width) for width in p.widths]
    return [[Memory(vector, log=log) for vector in vectors], *both], [*vectors, rows], log


@pytest.fixture
def placed(monkeypatch):
    """Places problems on a GPU that is the processor."""
    import jax

    from dibo import _jax

    monkeypatch.setattr(_jax, "device_of", lambda name: jax.devices("cpu")[0])
    return lambda problem: problem.on("cuda:0")


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
    with pytest.raises(TypeError, match="needs losses in PyTorch or JAX; NumPy's run on the processor"):
        dibo.solve(quadratic("numpy"), FAB, iterations=5, device="cuda")
    with pytest.raises(TypeError, match="problems in Rust run on the processor: give device='cpu'"):
        dibo.solve(dibo.Quadratic(), FAB, iterations=5, device="cuda")
    assert dibo.solve(dibo.Quadratic(), FAB, iterations=5, device="cpu").status == "finished"


def jax_finds_no_gpu() -> bool:
    from dibo._jax_cuda import _gpus

    return not (_core.cuda and _gpus())


@needs_jax
def test_jax_without_a_gpu_says_so_in_one_line(monkeypatch):
    if not jax_finds_no_gpu():
        pytest.skip("there is a GPU")
    words = "JAX finds none" if _core.cuda else "built without CUDA: maturin build --release --features"
    with pytest.raises(RuntimeError, match=words) as caught:
        dibo.solve(jax_problem(), FAB, iterations=5, device="cuda:0")
    assert str(caught.value).endswith("give device='cpu' to run on the processor")
    assert "\n" not in str(caught.value)
    from dibo import _gpu, _jax_cuda

    class Cuda:
        cuda = True
        gpu = staticmethod(lambda index: "a GPU")

    for module in (_gpu, _jax_cuda):
        monkeypatch.setattr(module, "_core", Cuda)
    with pytest.raises(RuntimeError, match="^no GPU can be used: JAX finds none; give device='cpu' to run"):
        dibo.solve(jax_problem(), FAB, iterations=5, device="cuda")
    monkeypatch.setattr(_jax_cuda, "_gpus", lambda: {0: "zero", 3: "three"})
    with pytest.raises(RuntimeError, match="^no GPU can be used: JAX finds no cuda:2; give device='cpu'"):
        dibo.solve(jax_problem(), FAB, iterations=5, device="cuda:2")
    assert [_jax_cuda.place(name) for name in ("cuda", "cuda:3", "cpu")] == ["cuda:0", "cuda:3", "cpu"]
    import jax

    assert _jax_cuda.place(jax.devices("cpu")[0]) == "cpu"
    assert _jax_cuda.device_of("cuda:3") == "three" and _jax_cuda.device_of("cpu") is None


@needs_jax
@pytest.mark.parametrize("device", ["gpu", "mps", "tpu:0", "cuda:x", "cuda:-1", 1.5])
def test_words_that_are_no_device_of_jax_are_refused(device):
    with pytest.raises(ValueError, match="it must be 'cpu', 'cuda' or such as 'cuda:1'"):
        dibo.solve(jax_problem(), FAB, iterations=5, device=device)


@needs_jax
def test_double_precision_in_jax_is_refused(monkeypatch):
    from dibo import _jax

    monkeypatch.setattr(_jax, "place", lambda device: "cuda:0")
    with pytest.raises(TypeError, match="x and y are float64; on a GPU all must be float32"):
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


@needs_jax
@pytest.mark.parametrize("batch", [4, None])
@pytest.mark.parametrize("x", ["shared", "private", "ragged"])
def test_rows_on_a_gpu_go_to_jax_and_back(placed, x, batch):
    problem = jax_problem(x, batch)
    there, owned, n = placed(problem), [0, 1, 2], 3
    points, directions = lend(there), lend(there)
    g = np.random.default_rng(1)
    # The same points where they lie on the processor, and on a GPU, where arrays begin at multiples.
    widths = [max(problem.widths), problem.y.width, problem.y.width]
    here = [g.standard_normal((n, width)).astype(np.float32) for width in widths]
    likes = (there.x, there.y, there.y)
    for array, values, like in zip(points[0], here, likes):
        if isinstance(array, list):
            for row, vector in zip(values, array):
                row[len(vector.rows) :] = 0
                vector.rows[:] = row[: len(vector.rows)]
        else:
            spread = values if like is there.x and there.private else like.spread(values)
            array.rows[:, array.column : array.column + array.shape[1]] = spread
    for rows in directions[1]:
        rows[...] = 7.0
    outs = [np.zeros_like(values) for values in here]
    want = problem.oracle().bind(owned, here, outs, (None, None))
    call = there.oracle().bind(owned, points[0], directions[0], (None, None))
    for k in (0, 7):
        for each in (points[2], directions[2]):
            each.clear()
        want(k, 0.7, 1.3)
        call(k, 0.7, 1.3)
        # Nothing is read before dibo is done, and nothing is let go before it was copied.
        assert points[2] == ["wait"] and directions[2] == ["write"] * len(directions[1]) + ["wait"]
        for array, out, like in zip(directions[0], outs, likes):
            if isinstance(array, list):
                for row, vector in zip(out, array):
                    assert np.allclose(vector.rows, row[: len(vector.rows)], rtol=1e-5, atol=1e-6)
                continue
            found = array.rows[:, array.column : array.column + array.shape[1]]
            spread = out if like is there.x and there.private else like.spread(out)
            assert np.allclose(found, spread, rtol=1e-5, atol=1e-6) and np.abs(out).max() > 0.01
            # What lies between is zero, and stays so.
            assert not (found != 0)[spread == 0].any()
    variables = dict(zip("xy", points[0]))
    named = dict(zip("xy", here))
    for (name, a), (same, b) in zip(there.oracle().evaluate(variables), problem.oracle().evaluate(named)):
        assert name == same and np.isclose(a, b, rtol=1e-5)
    from dibo import _jax

    for name, rows in _jax.lent(there, variables).items():
        assert np.array_equal(np.asarray(rows), named[name])


@needs_jax
@pytest.mark.parametrize("of", ["x", "y"])
def test_one_level_in_jax_on_a_gpu(placed, of):
    import jax.numpy as jnp

    problem = jax_problem("shared", single_of=of)
    problem.metrics = {}
    if of == "x":
        problem.single = lambda x, d: ((x["s"] - d["b"].mean()) ** 2).sum() + (x["t"] * jnp.arange(3)).sum()
    there, owned = placed(problem), [0, 1, 2]
    like = problem.y if of == "y" else problem.x
    (points, rows, _), (directions, out, _) = lend(there, True), lend(there, True)
    here = np.random.default_rng(2).standard_normal((3, like.width)).astype(np.float32)
    spread = (there.y if of == "y" else there.x).spread
    rows[0][:, : there.single_width] = spread(here)
    want = np.zeros_like(here)
    problem.oracle().bind_single(owned, [here], [want], (None, None))(0)
    there.oracle().bind_single(owned, points, directions, (None, None))(0)
    assert np.allclose(out[0][:, : there.single_width], spread(want), rtol=1e-5, atol=1e-6)
    assert np.abs(want).max() > 0.01


@needs_jax
def test_what_jax_gives_on_a_gpu_is_checked(placed):
    import jax.numpy as jnp

    from dibo._jax_cuda import Lent

    def call(loss):
        there = placed(jax_problem("shared", loss=loss))
        points, directions = lend(there)[0], lend(there)[0]
        there.oracle().bind([0, 1, 2], points, directions, (None, None))(0, 1.0, 1.0)

    with pytest.raises(ValueError, match="^the direction of y of agent 0 holds nan at iteration 0, where"):
        call(lambda x, y, d: jnp.nan * y["w"].sum())
    with pytest.raises(ValueError, match="upper must give one number, not an array of shape") as caught:
        call(lambda x, y, d: y["w"])
    assert "dibo: iteration 0, agent 0" in caught.value.__notes__
    with pytest.raises(ZeroDivisionError):
        call(lambda x, y, d: 1 / 0)
    with pytest.raises(TypeError, match="upper gives int32; a loss is a floating-point number"):
        call(lambda x, y, d: y["w"].sum().astype("int32"))
    lent = Lent([Memory(aligned(3, 16))])
    with pytest.raises(TypeError, match=r"directions are float32 of shape \(2, 16\); float32 of \(3, 16\) is"):
        lent.write([jnp.zeros((2, 16), jnp.float32)])
    with pytest.raises(TypeError, match=r"directions are int32 of shape \(3, 16\); float32 of \(3, 16\) is"):
        lent.write([jnp.zeros((3, 16), jnp.int32)])
    off = aligned(3, 32).reshape(-1)[1:49].reshape(3, 16)
    with pytest.raises(RuntimeError, match="^no GPU can be used: this JAX copies rows instead of seeing"):
        Lent([Memory(off)]).seen()


@needs_jax
def test_a_problem_in_jax_keeps_no_rows_after_a_run(placed):
    there = placed(jax_problem())
    points, directions = lend(there), lend(there)
    call = there.oracle().bind([0, 1, 2], points[0], directions[0], (None, None))
    call(0, 1.0, 1.0)
    lasting = [weakref.ref(array) for array in (*points[0], *directions[0])]
    del call, points, directions
    gc.collect()
    assert not any(ref() for ref in lasting) and there.__dict__["_compiled"]


@needs_jax
def test_what_was_compiled_for_the_processor_is_not_used_on_a_gpu(placed):
    problem = jax_problem("shared")
    dibo.solve(problem, FAB, iterations=2)
    there = placed(problem)
    assert problem._compiled and "_compiled" not in there.__dict__ and there is problem.on("cuda:0")
    assert (there.y.width, problem.y.width) == (48, 21)
