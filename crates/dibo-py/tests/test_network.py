"""Agents of one problem as processes: the simulator's bits, and reasons that reach the others."""

from __future__ import annotations

import logging
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


class Sayer(logging.Handler):
    """Hands on what dibo says."""

    def __init__(self, own, queue):
        super().__init__()
        self.own, self.queue = own, queue

    def emit(self, record):
        self.queue.put((self.own, "says", record.getMessage(), time.monotonic()))


def process(own, ports, folder, iterations, broken, queue):
    logging.getLogger("dibo").addHandler(Sayer(own, queue))
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
        patience=6,
    )
    queue.put((own, "ready", time.monotonic()))
    try:
        run = agent.run(iterations, every=10)
        queue.put((own, run.status, run.variables, run.columns["size"], time.monotonic()))
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
    return [start(a) for a in arguments], queue


def start(arguments):
    started = CONTEXT.Process(target=process, args=arguments)
    started.start()
    started.arguments = arguments
    return started


def ends(processes, queue, said=None):
    out = {}
    while len(out) < len(processes):
        own, status, *rest = queue.get(timeout=90)
        if status == "says" and said is not None:
            said.append((own, *rest))
        if status not in ("ready", "says"):
            out[own] = (status, *rest)
    [p.join(30) for p in processes]
    return out


def begin(folder=None, iterations=10_000_000):
    """Processes that have met, and are in the middle of it."""
    processes, queue = launch(folder, iterations)
    ready = 0
    while ready < 3:
        ready += queue.get(timeout=60)[1] == "ready"
    time.sleep(3)
    return processes, queue


def secured(tmp_path):
    dibo.certificates(tmp_path, {"localhost": range(3)})
    return str(tmp_path)


@pytest.mark.parametrize("secure", [False, True])
def test_processes_give_the_simulators_bits(secure, tmp_path):
    got = ends(*launch(secured(tmp_path) if secure else None))
    want = dibo.solve(problem(), FAB, GRAPH, iterations=100, every=10)
    for own, (status, variables, sizes, _) in got.items():
        assert status == "finished"
        for name, rows in variables.items():
            assert (rows[0] == want.variables[name][own]).all(), name
        assert (sizes == want.columns["size"]).all()


@pytest.mark.parametrize("secure", [False, True])
def test_others_hear_why_one_failed(secure, tmp_path):
    got = ends(*launch(secured(tmp_path) if secure else None, iterations=100_000, broken=1))
    assert all(status == "raised" for status, *_ in got.values())
    assert got[1][1].startswith("KeyError") and "a sensor is off" in got[1][1]
    assert all("a sensor is off" in got[own][1] for own in (0, 2))
    assert max(g[2] for g in got.values()) - min(g[2] for g in got.values()) < 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
@pytest.mark.parametrize("secure", [False, True])
def test_interrupting_one_stops_all_within_a_second(secure, tmp_path):
    processes, queue = begin(secured(tmp_path) if secure else None)
    then = time.monotonic()
    os.kill(processes[2].pid, signal.SIGINT)
    got = ends(processes, queue)
    assert got[2][0] == "stopped"
    assert all(got[own][0] == "raised" for own in (0, 1))
    assert all(g[-1] - then < 1 for g in got.values())


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
@pytest.mark.parametrize("victim", [0, 2])
def test_others_say_within_a_second_that_one_was_killed(victim, tmp_path):
    processes, queue = begin(secured(tmp_path))
    then, said = time.monotonic(), []
    processes[victim].kill()
    others = [own for own in range(3) if own != victim]
    got = ends([processes[own] for own in others], queue, said)
    for own in others:
        closed = [at for who, what, at in said if who == own and f"to agent {victim} has closed" in what]
        assert len(closed) == 1 and closed[0] - then < 1, said
        # It might have come back: it was waited for, but only so long.
        status, why, at = got[own]
        assert status == "raised" and f"agent {victim}" in why and 5 < at - then < 8, why


def test_one_that_is_started_again_alone_is_told():
    processes, queue = begin()
    processes[1].kill()
    processes[1].join()
    processes[1] = start(processes[1].arguments)
    got = ends(processes, queue)
    assert all(status == "raised" and "start all processes again" in why for status, why, _ in got.values())


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
def test_interrupting_one_that_has_met_nobody():
    processes, queue = launch(started=[0])
    assert queue.get(timeout=60)[1] == "ready"
    time.sleep(1)
    os.kill(processes[0].pid, signal.SIGINT)
    assert ends(processes, queue)[0][0] == "interrupted"
