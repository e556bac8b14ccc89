"""Errors, Ctrl-C, threads, memory: what a run does when something goes wrong."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback

import numpy as np
import pytest
from conftest import AGENTS, FRAMEWORKS, needs_jax, needs_torch, quadratic

import dibo

FAB = dibo.FAB(lam=5, eta=0.02)


def toy(upper=None, lower=None, agents=3, dtype=float, **options):
    """f_i = ½ (y − t_i)², g_i = ½ (y − x)²."""
    targets = [np.full((1, 1), float(i), dtype=dtype) for i in range(agents)]
    upper = upper or (lambda x, y, t: (np.zeros_like(x), y - t[0]))
    lower = lower or (lambda x, y, t: (x - y, y - x))
    at = dict(x=np.zeros(1, dtype), y=np.zeros(1, dtype))
    return dibo.GradientProblem(upper, lower, train=targets, val=targets, **{**at, **options})


class Own(Exception):
    pass


def test_exceptions_keep_type_traceback_iteration_and_agent():
    calls = []

    def upper(x, y, t):
        calls.append(1)
        if len(calls) > 3 * 10 and t[0, 0] == 2:
            raise Own("a sensor is off")
        return np.zeros(1), y - t[0]

    with pytest.raises(Own, match="a sensor is off") as caught:
        dibo.solve(toy(upper), FAB, iterations=50, every=5)
    error = caught.value
    assert error.__notes__ == ["dibo: iteration 10, agent 2"]
    assert any(frame.name == "upper" for frame in traceback.extract_tb(error.__traceback__))
    # What was done is there.
    assert error.run.columns["iteration"].tolist() == [0, 5]
    assert error.run.variables["x"].shape == (3, 1)


@needs_torch
def test_exceptions_in_torch_name_the_agent():
    import torch

    def shapes(x, y, t):
        return (y.reshape(2, 2) ** 2).sum()

    t = [torch.full((1, 1), float(i)) for i in range(3)]
    problem = dibo.Problem(shapes, shapes, x=torch.zeros(1), y=torch.zeros(1), train=t, val=t)
    with pytest.raises(RuntimeError) as caught:
        dibo.solve(problem, FAB, iterations=5)
    assert caught.value.__notes__ == ["dibo: iteration 0, agent 0"]


@pytest.mark.parametrize(
    "value, kind, words",
    [
        (None, TypeError, "pair"),
        (3.0, TypeError, "pair"),
        ((None, np.zeros(1)), TypeError, "None"),
        ((np.zeros(2), np.zeros(1)), ValueError, r"shape \((3, )?2"),
        ((np.zeros(1), np.zeros((1, 1))), ValueError, r"shape \((3, )?1, 1\)"),
        ((np.zeros(1), np.zeros(1, complex)), TypeError, "complex"),
        ((np.zeros(1), np.array(["a"])), TypeError, "dtype"),
        ((np.zeros(1), "text"), ValueError, "shape"),
        ((np.zeros(1), np.array([np.nan])), ValueError, "nan at iteration 0|NaN at iteration 0"),
        ((np.zeros(1), np.array([np.inf])), ValueError, "inf at iteration 0"),
        ((np.zeros(1), object()), (TypeError, ValueError), None),
    ],
)
@pytest.mark.parametrize("stacked", [False, True])
def test_wrong_returns_say_what_is_wrong(value, kind, words, stacked):
    def upper(x, y, t):
        if stacked and isinstance(value, tuple):
            return tuple(
                np.stack([part] * len(x)) if isinstance(part, np.ndarray) else part for part in value
            )
        return value

    with pytest.raises(kind, match=words):
        dibo.solve(toy(upper, stacked=stacked), FAB, iterations=5)


def test_integers_and_other_floats_are_taken():
    run = dibo.solve(
        toy(lambda x, y, t: (np.zeros(1, int), (y - t[0]).astype(np.float32))), FAB, iterations=5
    )
    assert run.status == "finished"


@needs_torch
@pytest.mark.parametrize(
    "loss, kind, words",
    [
        (lambda x, y, d: None, (TypeError, ValueError), None),
        (lambda x, y, d: 3.0, (TypeError, ValueError), None),
        (lambda x, y, d: y, ValueError, "one number"),
        (lambda x, y, d: (y.sum() + x.sum()).detach() * 0, ValueError, "depends"),
        (lambda x, y, d: y.sum() * float("nan"), ValueError, "nan|NaN"),
        (lambda x, y, d: y.sum().to("meta"), TypeError, "processor"),
        (lambda x, y, d: y.sum().long(), (TypeError, ValueError), None),
        (lambda x, y, d: y.sum().item(), RuntimeError, None),
    ],
)
def test_wrong_losses_in_torch(loss, kind, words):
    import torch

    t = [torch.zeros(1, 1) for _ in range(3)]
    problem = dibo.Problem(loss, loss, x=torch.zeros(1), y=torch.zeros(1), train=t, val=t)
    with pytest.raises(kind, match=words):
        dibo.solve(problem, FAB, iterations=5)


@needs_jax
@pytest.mark.parametrize(
    "loss, kind, words",
    [
        (lambda x, y, d: None, TypeError, "one number"),
        (lambda x, y, d: y, ValueError, "one number"),
        (lambda x, y, d: y.sum() * float("nan"), ValueError, "nan|NaN"),
    ],
)
def test_wrong_losses_in_jax(loss, kind, words):
    import jax.numpy as jnp

    t = [np.zeros((1, 1), np.float32) for _ in range(3)]
    zero = jnp.zeros(1, jnp.float32)
    problem = dibo.Problem(loss, loss, x=zero, y=zero, train=t, val=t)
    with pytest.raises(kind, match=words):
        dibo.solve(problem, FAB, iterations=5)


def test_divergence_is_a_value():
    run = dibo.solve(toy(), dibo.FAB(lam=5, eta=30), iterations=5000)
    assert run.status == "diverged" and run.iterations < 5000
    assert "diverged" in repr(run)


def test_wrong_values_are_refused():
    for make in [
        lambda: dibo.FAB(lam=0, eta=0.1),
        lambda: dibo.FAB(lam=1, eta=-0.1),
        lambda: dibo.Algorithm("no-such", eta=1),
        lambda: dibo.Algorithm("fab", eta=1),
        lambda: dibo.Cycle(0),
        lambda: dibo.Cycle(3, nu=2),
        lambda: dibo.Links(3, [[(0, 7)]]),
        lambda: dibo.solve(toy(), FAB, dibo.Links(3, [[(0, 1)]]), iterations=5),
        lambda: dibo.solve(toy(), FAB, dibo.Ring(4), iterations=5),
        lambda: dibo.solve(toy(), FAB, iterations=0),
        lambda: dibo.solve(toy(), FAB, iterations=5, threads=0),
        lambda: dibo.solve(toy(), FAB, iterations=5, target=("loss", 1.0), start={"q": 1}),
        lambda: dibo.solve(toy(), dibo.PushPull(0.1), iterations=5),
        lambda: dibo.solve(toy(), dibo.PushPullSOBA(0.1, 0.1), iterations=5),
        lambda: dibo.solve(toy(), dibo.DoubleLoop("push-pull", eta=0.1), iterations=5),
        lambda: toy(batch=0),
        lambda: toy(x=np.array([np.nan])),
        lambda: dibo.GradientProblem(None, None, x=np.zeros(1), y=np.zeros(1), directions=print),
    ]:
        with pytest.raises((ValueError, TypeError)) as caught:
            make()
        assert str(caught.value)
    with pytest.raises(TypeError):
        dibo.solve(toy(), "fab", iterations=5)
    with pytest.raises(TypeError, match="PyTorch"):
        dibo.Problem(min, min, x=np.zeros(1), y=np.zeros(1), agents=2)


def interrupt(after, work):
    """Ctrl-C after so many seconds; gives what the work gave and how long it took to end from then."""
    sent = []

    def send():
        time.sleep(after)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        out = work()
        return out, time.monotonic() - sent[0]
    finally:
        thread.join()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way there")
@pytest.mark.parametrize("kind", ["rust", "numpy", "own"])
def test_ctrl_c_keeps_what_is_done(kind):
    if kind == "rust":
        problem, algorithm = dibo.PolicyEvaluation(10), dibo.FAB(lam=60, eta=0.1, normalised=True)
    else:
        problem, algorithm = quadratic("numpy"), FAB
    if kind == "own":
        from test_agreement import OwnFAB

        algorithm = OwnFAB(5, 0.02)
    options = dict(iterations=10**9, every=10**9 if kind == "rust" else 10)
    run, seconds = interrupt(0.3, lambda: dibo.solve(problem, algorithm, **options))
    assert run.status == "stopped" and run.iterations > 0
    assert np.isfinite(run.variables["x"]).all()
    assert seconds < 0.5  # a tenth of that on a quiet machine


def test_python_runs_while_rust_works():
    count, done = [0], threading.Event()

    def other():
        while not done.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=other)
    thread.start()
    dibo.solve(
        dibo.PolicyEvaluation(10),
        dibo.FAB(lam=60, eta=0.1, normalised=True),
        iterations=300_000,
        every=300_000,
    )
    done.set()
    thread.join()
    assert count[0] > 10


def test_threads_run_side_by_side():
    want = dibo.solve(quadratic("numpy"), FAB, iterations=200).variables["x"]
    problem, out = quadratic("numpy"), []

    def work():
        out.append(dibo.solve(problem, FAB, iterations=200).variables["x"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(out) == 4 and all((x == want).all() for x in out)


def _child(queue):
    queue.put(float(dibo.solve(quadratic("numpy"), FAB, iterations=100, threads=2).variables["x"].sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_after_a_run():
    want = float(dibo.solve(quadratic("numpy"), FAB, iterations=100, threads=2).variables["x"].sum())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == want
    child.join()


def test_results_can_be_pickled():
    run = dibo.solve(quadratic("numpy"), FAB, iterations=50)
    again = pickle.loads(pickle.dumps(run))
    assert (again.variables["y"] == run.variables["y"]).all() and again.status == run.status
    for thing in (FAB, dibo.Cycle(4, 0.2, seed=3)):
        assert pickle.loads(pickle.dumps(thing)) == thing


@pytest.mark.parametrize("width", [3, 20_000])
def test_arrays_kept_after_a_run_stay_valid(width):
    kept = []

    def directions(x, y, z, dx, dy, dz, k, f, g):
        kept.extend([x, y, dy])
        dx[...], dy[...], dz[...] = x, y + k, z

    problem = dibo.GradientProblem(directions=directions, x=np.zeros(2), y=np.ones(width), agents=4)
    run = dibo.solve(problem, dibo.FAB(lam=1, eta=1e-3), iterations=50, every=50)
    want = run.variables["y"]
    del run, problem
    gc.collect()
    junk = [np.random.rand(4, width) for _ in range(20)]
    # The last arrays still hold the last iterate.
    assert any(np.array_equal(array, want) for array in kept)
    assert all(np.isfinite(array).all() for array in kept) and junk


def test_inputs_are_read_only():
    def directions(x, y, z, dx, dy, dz, k, f, g):
        x[...] = 1

    problem = dibo.GradientProblem(directions=directions, x=np.zeros(2), y=np.ones(3), agents=4)
    with pytest.raises(ValueError, match="read-only"):
        dibo.solve(problem, FAB, iterations=5)


def test_a_run_inside_a_function():
    """A function may itself solve something."""

    def upper(x, y, t):
        inner = dibo.solve(dibo.Quadratic(), FAB, iterations=1)
        assert inner.status == "finished"
        return np.zeros(1), y - t[0]

    assert dibo.solve(toy(upper), FAB, iterations=3).status == "finished"


RUNS = int(os.environ.get("DIBO_FUZZ", "10000"))


def test_fuzzed_callbacks_never_crash():
    """Whatever a function gives, there is a result or an exception with words."""
    random = np.random.default_rng(0)
    shapes = [(), (0,), (1,), (2,), (3,), (1, 1), (3, 1), (1, 3), (2, 2, 2)]
    kinds = [float, np.float32, np.float16, int, np.uint8, bool, complex, object, "U3", "M8[s]"]
    values = [
        None,
        0,
        1.5,
        "text",
        b"bytes",
        [],
        {},
        (),
        [1, 2],
        object(),
        float,
        np.nan,
        ...,
        {"a": 1},
        10**400,
    ]

    def anything():
        pick = random.integers(10)
        if pick < 3:
            return values[random.integers(len(values))]
        if pick == 3:
            raise [ValueError, KeyError, ZeroDivisionError, Own, StopIteration, MemoryError, AssertionError][
                random.integers(7)
            ]("fuzz")
        shape, kind = shapes[random.integers(len(shapes))], kinds[random.integers(len(kinds))]
        array = np.zeros(shape, dtype=kind)
        if pick == 4 and array.dtype.kind == "f":
            array[...] = [np.nan, np.inf, -np.inf, 1e300][random.integers(4)]
        if pick == 5 and array.ndim:
            array = array[::-1]
        return array

    def gradient(x, y, data):
        pick = random.integers(6)
        if pick == 0:
            return anything()
        if pick == 1:
            return tuple(anything() for _ in range(random.integers(4)))
        good_x, good_y = np.zeros_like(x), np.ones_like(y)
        return (anything(), good_y) if pick == 2 else (good_x, anything()) if pick == 3 else (good_x, good_y)

    ended = {"finished": 0, "raised": 0}
    made = [toy(gradient, gradient, agents=2, stacked=stacked) for stacked in (False, True)]
    for turn in range(RUNS):
        try:
            run = dibo.solve(made[turn % 2], FAB, iterations=2, every=1)
            ended[run.status] = ended.get(run.status, 0) + 1
        except Exception as error:
            assert str(error) or isinstance(error, AssertionError), repr(error)
            ended["raised"] += 1
    assert ended["raised"] > RUNS // 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_call_gives_the_same_bits(framework):
    problem = quadratic(framework)
    a, b = (dibo.solve(problem, FAB, iterations=60, every=20) for _ in range(2))
    assert all((a.variables[name] == b.variables[name]).all() for name in a.variables)
    assert AGENTS == len(a.variables["x"])
