"""Who hears whom at each iteration, as objects with keyword parameters."""

from __future__ import annotations

import json
from typing import Any, Iterable, Sequence

import numpy as np

from . import _core

Edges = Iterable[tuple[int, int]]


class Graph:
    """A sequence of directed graphs on agents 0 … agents − 1; G^k is a pure function of (seed, k).

    All kinds take ``weights`` (None for uniform ones, or numbers that senders use in turn), ``loss`` (the
    share of messages that never arrive), ``burst`` (the mean length of a run of losses) and ``window``
    (iterations whose links together must connect all agents; 0 asks for nothing).
    """

    kind = ""

    def __init__(
        self,
        agents: int,
        *,
        seed: int = 0,
        weights: float | Sequence[float] | None = None,
        loss: float = 0.0,
        burst: float | None = None,
        window: int | None = None,
        **own: Any,
    ) -> None:
        self.agents = int(agents)
        self.seed = int(seed)
        self._own = own
        numbers = [float(weights)] if isinstance(weights, (int, float)) else weights
        common = {"weights": numbers, "loss": loss or None, "burst": burst, "window": window}
        self._common = {key: value for key, value in common.items() if value is not None}
        _core.edges(self.json, 0)

    @property
    def json(self) -> str:
        """Its description for the core."""
        return self._json(self.seed)

    def _json(self, seed: int) -> str:
        parts = {"kind": self.kind, "agents": self.agents, "seed": seed, **self._own, **self._common}
        return json.dumps(parts)

    def edges(self, k: int) -> list[tuple[int, int]]:
        """The links (sender, receiver) of iteration k.

        >>> Ring(3).edges(0)
        [(2, 0), (0, 1), (1, 2)]
        """
        return _core.edges(self.json, k)

    def matrices(self, k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """A, by which decisions are pulled (rows sum to 1), and B, by which trackers are pushed (columns
        do)."""
        return _core.weights(self.json, k)

    def _shown(self) -> dict[str, Any]:
        return {**self._own, **({"seed": self.seed} if self.seed else {}), **self._common}

    def __repr__(self) -> str:
        shown = "".join(f", {key}={value!r}" for key, value in self._shown().items())
        return f"{type(self).__name__}({self.agents}{shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)


class Cycle(Graph):
    """The paper's sequence: random links over a ring, the ring, the ring reversed.

    >>> Cycle(8, nu=0.3)
    Cycle(8, nu=0.3, phases=(10, 10, 10), redraw='iteration')
    """

    kind = "cycle"

    def __init__(
        self,
        agents: int,
        nu: float = 0.3,
        *,
        phases: tuple[int, int, int] = (10, 10, 10),
        redraw: str = "iteration",
        **common: Any,
    ) -> None:
        super().__init__(agents, nu=nu, phases=tuple(phases), redraw=redraw, **common)


class ErdosRenyi(Graph):
    """Random links at every iteration; ``connected`` draws until they connect all agents."""

    kind = "erdos-renyi"

    def __init__(
        self,
        agents: int,
        nu: float = 0.3,
        *,
        connected: bool = True,
        redraw: str = "iteration",
        **common: Any,
    ) -> None:
        super().__init__(agents, nu=nu, connected=connected, redraw=redraw, **common)


class Ring(Graph):
    """A directed ring."""

    kind = "ring"


class Complete(Graph):
    """Everybody hears everybody."""

    kind = "complete"


class Exponential(Graph):
    """Links to the agents 1, 2, 4, … places on."""

    kind = "exponential"


class OnePeerExponential(Graph):
    """One of the exponential graph's links at a time."""

    kind = "one-peer-exponential"


class Alone(Graph):
    """No links: what an agent gets by itself."""

    kind = "none"


class Links(Graph):
    """Graphs by their links (sender, receiver), used in turn."""

    kind = "edges"

    def __init__(self, agents: int, graphs: Iterable[Edges], **common: Any) -> None:
        lists = [[(int(s), int(r)) for s, r in graph] for graph in graphs]
        super().__init__(agents, graphs=lists, **common)

    def __repr__(self) -> str:
        return f"Links({self.agents}, {self._own['graphs']!r})"


class Matrices(Graph):
    """Explicit pairs (A, B), used in turn: A row-stochastic, B column-stochastic, both above 0 on the
    diagonal."""

    kind = "matrices"

    def __init__(self, pairs: Iterable[tuple[Any, Any]], **common: Any) -> None:
        lists = [(np.asarray(a, float).tolist(), np.asarray(b, float).tolist()) for a, b in pairs]
        agents = len(lists[0][0]) if lists else 0
        super().__init__(agents, matrices=lists, **common)

    def __repr__(self) -> str:
        return f"Matrices({self._own['matrices']!r})"
