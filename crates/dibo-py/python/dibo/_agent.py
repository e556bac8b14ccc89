"""Agents of one problem as processes on a network."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from . import _core
from ._algorithms import Algorithm
from ._graphs import Graph
from ._run import Run, _graph, _whole, finish


class Agent:
    """The agents ``own`` of a problem in this process; others run the same with agents of their own.

    ``train`` and ``val`` of the problem hold data of the own agents, and ``None`` for the others'.
    Endpoints are ``tls/HOST:PORT`` with ``certificates`` (a folder; `certificates` makes one for tests), or
    ``tcp/`` on one machine. The iterates are the simulator's, to the bit. If one process fails or
    is interrupted, the others raise its reason within a second. If one is killed, they say so as soon
    (``logging``, a warning of ``dibo``), since it may be the link that is down; after ``patience`` seconds
    without a sign of it they give up. What the network has to say beside that goes to ``logging``, too."""

    def __init__(
        self,
        problem: Any,
        algorithm: Algorithm,
        graph: Graph | None = None,
        *,
        own: int | Iterable[int],
        listen: str | Sequence[str] = (),
        connect: str | Sequence[str] = (),
        certificates: str | Path | None = None,
        host: str = "localhost",
        insecure: bool = False,
        network: str = "run",
        patience: float = 60.0,
    ) -> None:
        if not _core.net:
            raise RuntimeError("this dibo was built without the network: maturin build --features net")
        if getattr(problem, "core", None) is not None:
            raise TypeError("give a Problem or a GradientProblem")
        if problem.device != "cpu":
            raise TypeError("x and y lie on a GPU; agents as processes run on the processor: give them there")
        self.problem, self.algorithm = problem, algorithm
        self.graph = _graph(graph, problem.agents)
        self.own = [own] if isinstance(own, int) else sorted({int(agent) for agent in own})
        if not self.own or self.own[0] < 0 or self.own[-1] >= problem.agents:
            raise ValueError(f"own is {self.own}; there are agents 0 to {problem.agents - 1}")
        self.endpoints = [[ends] if isinstance(ends, str) else list(ends) for ends in (listen, connect)]
        self.tls = None if certificates is None else (str(certificates), host)
        self.insecure, self.network, self.patience = insecure, network, float(patience)

    def run(self, iterations: int = 1000, every: int = 20, threads: int = 1) -> Run:
        """Meets the others and runs; ``variables`` has the rows of the own agents."""
        problem, listen = self.problem, self.endpoints[0]
        iterations, every = _whole("iterations", iterations), _whole("every", every)
        common = [
            _core.__version__,
            self.algorithm.name,
            self.algorithm.json,
            self.graph.json,
            iterations,
            every,
        ]
        about = [
            str(problem.dtype),
            problem.widths,
            problem.y.width,
            problem.batch,
            problem.seed,
            problem.private,
        ]
        result = _core.agent(
            problem.oracle(),
            self.algorithm.name,
            self.algorithm.json,
            self.graph.json,
            own=self.own,
            listen=listen,
            connect=self.endpoints[1],
            tls=self.tls,
            insecure=self.insecure,
            network=self.network,
            digest=hashlib.sha256(json.dumps(common + about).encode()).digest(),
            patience=self.patience,
            iterations=iterations,
            every=every,
            threads=int(threads),
            single=problem.dtype == np.float32,
        )
        return finish(result, problem, self.algorithm, self.graph, self.own)


def certificates(
    folder: str | Path, hosts: Mapping[str, Sequence[int]], days: int = 365
) -> list[Path]:
    """Makes a test authority and certificates of hosts, each with the agents that it may speak for:
    ``{"localhost": [0, 1]}``. An authority that lies in the folder signs."""
    if not _core.net:
        raise RuntimeError("this dibo was built without the network: maturin build --features net")
    subjects = [(host, [(int(i), int(i)) for i in agents]) for host, agents in hosts.items()]
    return [Path(file) for file in _core.certificates(str(folder), subjects, int(days))]
