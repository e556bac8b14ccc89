"""Agents of one problem as processes: the simulator's bits, and reasons that reach the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time

import numpy as np
import pytest

import dibo
from dibo import _core

pytestmark = pytest.mark.skipif(not _core.net, reason="this dibo was built without the network")
FAB = dibo.FAB(lam=5, eta=0.02)
GRAPH = dibo.Cycle(3, 0.5, seed=1)
CONTEXT = multiprocessing.get_context("spawn")


def problem(own=None, broken=False):
    """f_i = ½ |y − t_i|², g_i = ½ |y − x|²; others' data is None."""
    targets = [np.full((4, 2), float(i)) for i in range(3)]
    if own is not None:
        targets = [t if i == own else None for i, t in enumerate(targets)]
    calls = []

    def upper(x, y, t):
        calls.append(1)
        if broken and len(calls) > 20:
            raise KeyError("a sensor is off")
        return np.zeros(2), y - t[0]

    return dibo.GradientProblem(
        upper,
        lambda x, y, t: (x - y, y - x),
        x=np.zeros(2),
        y=np.zeros(2),
        train=targets,
        val=targets,
        batch=2,
        metrics={"size": lambda x, y: float(np.abs(x).sum())},
    )


def process(own, ports, folder, iterations, broken, queue):
    scheme = "tls" if folder else "tcp"
    host = "localhost" if folder else "127.0.0.1"
    ends = [f"{scheme}/{host}:{port}" for port in ports]
    agent = dibo.Agent(
        problem(own, broken),
        FAB,
        GRAPH,
        own=own,
        listen=ends[own],
        connect=ends[:own],
        certificates=folder,
        patience=20,
    )
    queue.put((own, "ready", time.monotonic()))
    try:
        run = agent.run(iterations, every=10)
        queue.put((own, run.status, run.variables, run.columns["size"]))
    except KeyboardInterrupt:
        queue.put((own, "interrupted"))
    except Exception as error:
        queue.put((own, "raised", f"{type(error).__name__}: {error}", time.monotonic()))


def launch(folder=None, iterations=100, broken=None, started=range(3)):
    sockets = [socket.socket() for _ in range(3)]
    [s.bind(("127.0.0.1", 0)) for s in sockets]
    ports = [s.getsockname()[1] for s in sockets]
    [s.close() for s in sockets]
    queue = CONTEXT.Queue()
    arguments = [(own, ports, folder, iterations, own == broken, queue) for own in started]
    processes = [CONTEXT.Process(target=process, args=a) for a in arguments]
    [p.start() for p in processes]
    return processes, queue


def ends(processes, queue):
    out = {}
    while len(out) < len(processes):
        own, status, *rest = queue.get(timeout=90)
        if status != "ready":
            out[own] = (status, *rest)
    [p.join(30) for p in processes]
    return out


@pytest.mark.parametrize("secure", [False, True])
def test_processes_give_the_simulators_bits(secure, tmp_path):
    folder = None
    if secure:
        dibo.certificates(tmp_path, {"localhost": range(3)})
        folder = str(tmp_path)
    got = ends(*launch(folder))
    want = dibo.solve(problem(), FAB, GRAPH, iterations=100, every=10)
    for own, (status, variables, sizes) in got.items():
        assert status == "finished"
        for name, rows in variables.items():
            assert (rows[0] == want.variables[name][own]).all(), name
        assert (sizes == want.columns["size"]).all()


def test_others_hear_why_one_failed():
    got = ends(*launch(iterations=100_000, broken=1))
    assert all(status == "raised" for status, *_ in got.values())
    assert got[1][1].startswith("KeyError") and "a sensor is off" in got[1][1]
    assert all("a sensor is off" in got[own][1] for own in (0, 2))
    # All within moments of each other.
    assert max(g[2] for g in got.values()) - min(g[2] for g in got.values()) < 5


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
def test_interrupting_one_stops_all():
    processes, queue = launch(iterations=10_000_000)
    for _ in range(3):
        assert queue.get(timeout=60)[1] == "ready"
    time.sleep(3)
    os.kill(processes[2].pid, signal.SIGINT)
    got = ends(processes, queue)
    assert got[2][0] == "stopped"
    assert all(got[own][0] == "raised" for own in (0, 1))


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
def test_interrupting_one_that_has_met_nobody():
    processes, queue = launch(started=[0])
    assert queue.get(timeout=60)[1] == "ready"
    time.sleep(1)
    os.kill(processes[0].pid, signal.SIGINT)
    assert ends(processes, queue)[0][0] == "interrupted"
