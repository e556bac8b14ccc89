"""Runs: `solve`, what comes out of it, and algorithms that are written in Python."""

from __future__ import annotations

import sys
import time
from typing import Any, Iterable, Protocol, Sequence

import numpy as np

from . import _core
from ._algorithms import Algorithm
from ._graphs import Graph


def _log() -> Any:
    import logging

    return logging.getLogger("dibo")


class Run:
    """What came out of a run.

    ``status`` is ``"finished"``, ``"reached"`` (its target), ``"diverged"`` or ``"stopped"`` (Ctrl-C);
    ``reason`` says why, where there is something to say. ``curves`` is a pandas table of what was measured,
    ``columns`` the same as arrays. ``x`` and ``y`` are the agents' means as the user wrote them;
    ``variables`` has the rows of all agents under the paper's names. After a run on a GPU these are tensors
    or JAX's arrays there; PyTorch's rows are dibo's own, without a copy.
    """

    def __init__(
        self,
        result: dict[str, Any],
        problem: Any,
        algorithm: Any,
        graph: Graph,
        own: Sequence[int] | None = None,
    ) -> None:
        #: The agents whose rows are here: all, but for a process of several.
        self.agents = list(range(problem.agents)) if own is None else list(own)
        self.status: str = result["status"]
        self.iterations: int = result["k"]
        self.reason: str | None = result["reason"]
        self.columns: dict[str, np.ndarray[Any, Any]] = result["columns"]
        self.variables: dict[str, np.ndarray[Any, Any]] = result["variables"]
        self.state_bytes: int = result.get("state_bytes", 0)
        self.algorithm, self.graph = repr(algorithm), repr(graph)
        self.problem = repr(problem)
        self.x = self._of(problem, "x")
        self.y = self._of(problem, "y")

    def _of(self, problem: Any, name: str) -> Any:
        single = getattr(problem, "single_of", "x") == "y" and "y" not in self.variables
        rows = self.variables.get("x" if single and name == "y" else name)
        if rows is None or single and name == "x":
            return None
        like = getattr(problem, name, None)
        if name == "x" and getattr(problem, "private", False):
            cut = [row[: problem.widths[agent]] for row, agent in zip(rows, self.agents)]
            return [row.clone() if hasattr(row, "clone") else row.copy() for row in cut]
        mean = _mean(rows) if isinstance(rows, np.ndarray) else problem.framework.mean(rows)
        return mean if like is None else problem.framework.shown(like.tree(mean))

    @property
    def curves(self) -> Any:
        """The metrics along the run as a pandas table."""
        import pandas

        return pandas.DataFrame(self.columns)

    @property
    def last(self) -> dict[str, float]:
        """The metrics at the end."""
        return {name: float(column[-1]) for name, column in self.columns.items() if len(column)}

    def __repr__(self) -> str:
        known = ("iteration", "seconds", "bytes", "gradients", "products")
        shown = ", ".join(f"{k}={v:.4g}" for k, v in self.last.items() if k not in known)
        why = f" ({self.reason})" if self.reason else ""
        return f"Run({self.status}{why} after {self.iterations} iterations{', ' if shown else ''}{shown})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><td>{escape(k)}</td><td>{v:.6g}</td></tr>" for k, v in self.last.items())
        head = f"{escape(self.status)} after {self.iterations} iterations"
        why = f" ({escape(self.reason)})" if self.reason else ""
        return (
            f"<p><b>{head}</b>{why}<br><code>{escape(self.algorithm)}</code> on "
            f"<code>{escape(self.problem)}</code> over <code>{escape(self.graph)}</code></p>"
            f"<table>{rows}</table>"
        )


def _mean(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    mean: np.ndarray[Any, Any] = rows.astype(np.float64).mean(0).astype(rows.dtype)
    return mean


class Stepping(Protocol):
    """An algorithm of your own: `start` gives a state, a dict of arrays (agents, width) with ``"x"`` (and
    ``"y"``) among them; `step` gives the next. ``network.round(k, pull=[...], push=[...])`` mixes arrays:
    it gives ``A v`` for each that is pulled and ``B t`` for each that is pushed."""

    def start(self, problem: Any, network: Any) -> dict[str, Any]: ...

    def step(self, k: int, state: dict[str, Any], problem: Any, network: Any) -> dict[str, Any]: ...


def solve(
    problem: Any,
    algorithm: Algorithm | Stepping,
    graph: Graph | None = None,
    *,
    iterations: int = 1000,
    every: int = 20,
    target: tuple[str, float] | None = None,
    diverged_above: float | None = None,
    threads: int = 1,
    start: dict[str, Any] | None = None,
    progress: bool | None = None,
    device: Any = None,
) -> Run:
    """Runs an algorithm on a problem, all agents in this process.

    Metrics are computed after each ``every`` iterations; ``target=("upper_loss", 0.1)`` stops when the
    metric is better. A run has diverged when a number is no longer finite, or the first metric is above
    ``diverged_above``. ``start`` may hold rows ``"x"`` and ``"y"`` to begin at, one or one an agent. Ctrl-C
    ends the run with status ``"stopped"``, and what is done is kept. What a function of yours raises comes
    out as it is, with the iteration and the agent noted; the run up to then is the exception's attribute
    ``run``.

    ``device="cuda"`` keeps all rows and the problem's data on an NVIDIA GPU, where the losses, in PyTorch or
    JAX and float32, see them without a copy; without it a run is where PyTorch's x and y lie, and on the
    processor for all others.

    >>> import dibo
    >>> fab = dibo.FAB(lam=60, eta=0.1, normalised=True)
    >>> run = dibo.solve(dibo.PolicyEvaluation(10), fab, iterations=6000)
    >>> run.status, run.last["relative_error"] < 0.05
    ('finished', True)
    """
    agents = problem.agents
    graph = _graph(graph, agents)
    iterations, every = _whole("iterations", iterations), _whole("every", every)
    at = _device(problem, device)
    if not isinstance(algorithm, Algorithm):
        if at != "cpu":
            raise TypeError("an algorithm in Python runs on the processor; give device='cpu'")
        return _own(problem, algorithm, graph, iterations, every)
    begin = dict(start or {})
    unknown = set(begin) - {"x", "y"}
    if unknown:
        raise ValueError(f"start: {sorted(unknown)} is not known; it may hold 'x' and 'y'")
    rows = {name: _rows(name, value, agents) for name, value in begin.items()}
    bar = Bar(iterations, progress)
    core = getattr(problem, "core", None)
    placed = problem if at == getattr(problem, "device", "cpu") == "cpu" else problem.on(at)
    if at != "cpu":
        rows = {name: getattr(placed, name).spread(value) for name, value in rows.items()}
    try:
        result = _core.solve(
            placed.oracle() if core is None else core,
            algorithm.name,
            algorithm.json,
            graph.json,
            iterations=iterations,
            every=every,
            target=None if target is None else (str(target[0]), float(target[1])),
            diverged_above=_bound(diverged_above, core),
            threads=int(threads),
            start_x=rows.get("x"),
            start_y=rows.get("y"),
            progress=bar.show if bar.shown else None,
            single=core is None and problem.dtype == np.float32,
            device=None if at == "cpu" else int(at.split(":")[1]),
        )
    finally:
        bar.close()
    if at != "cpu":
        result["variables"] = problem.framework.lent(placed, result["variables"])
    return finish(result, problem, algorithm, graph)


def _device(problem: Any, device: Any) -> str:
    """Where a run is, by its full name; says what would be right where it cannot be there."""
    if getattr(problem, "core", None) is not None:
        if str(device or "cpu") != "cpu":
            raise TypeError(f"device is {device!r}; problems in Rust run on the processor: give device='cpu'")
        return "cpu"
    at: str = problem.framework.place(problem.device if device is None else device)
    if at != "cpu" and problem.dtype != np.float32:
        raise TypeError(f"x and y are {problem.dtype}; on a GPU all must be float32")
    return at


def _bound(diverged_above: float | None, core: Any) -> float:
    """Where a run counts as diverged: a loss of the user's own may be as large as it likes."""
    return float(diverged_above) if diverged_above is not None else 1e300 if core is None else 1e3


def finish(
    result: dict[str, Any], problem: Any, algorithm: Any, graph: Graph, own: Sequence[int] | None = None
) -> Run:
    """The run, or the exception that ended it."""
    run = Run(result, problem, algorithm, graph, own)
    error = result["error"]
    if error is not None:
        try:
            error.run = run
        except AttributeError:  # some exceptions take no attributes
            pass
        raise error
    if run.status == "stopped":
        _log().warning("interrupted after %d iterations; what is done is kept", run.iterations)
    elif run.status == "diverged":
        _log().warning("diverged at iteration %d%s", run.iterations, f": {run.reason}" if run.reason else "")
    else:
        _log().info("%s after %d iterations", run.status, run.iterations)
    return run


def _graph(graph: Graph | None, agents: int) -> Graph:
    if graph is None:
        from ._graphs import Cycle

        return Cycle(agents)
    if not isinstance(graph, Graph):
        raise TypeError(f"graph is a {type(graph).__name__}; give a graph such as dibo.Cycle({agents})")
    if graph.agents != agents:
        raise ValueError(f"the graph has {graph.agents} agents, the problem {agents}")
    return graph


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of 1 or more")
    return int(value)


def _rows(name: str, value: Any, agents: int) -> np.ndarray[Any, Any]:
    rows = np.atleast_2d(np.asarray(value, dtype=np.float64))
    if rows.ndim != 2 or len(rows) not in (1, agents):
        raise ValueError(
            f"start: {name} has shape {rows.shape}; give one row, or one for each of {agents} agents"
        )
    return np.ascontiguousarray(rows)


class Bar:
    """How far it is: one line in a terminal or a notebook; nothing elsewhere unless asked for."""

    def __init__(self, total: int, asked: bool | None) -> None:
        self.total, self.began, self.drawn = total, time.monotonic(), False
        self.shown = sys.stderr.isatty() or "ipykernel" in sys.modules if asked is None else asked
        self.next = self.began + 0.5

    def show(self, k: int) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + 0.2
        done = k / self.total
        left = (now - self.began) * (1 - done) / max(done, 1e-9)
        blocks = int(24 * done)
        bar = "█" * blocks + "░" * (24 - blocks)
        sys.stderr.write(f"\r{bar} {100 * done:3.0f} %  {k} of {self.total}, about {left:.0f} s to go ")
        sys.stderr.flush()
        self.drawn = True

    def close(self) -> None:
        if self.drawn:
            sys.stderr.write("\r" + " " * 78 + "\r")
            sys.stderr.flush()


class Network:
    """The simulated network, for an algorithm of your own."""

    def __init__(self, graph: Graph, iterations: int) -> None:
        self._core = _core.Network(graph.json, iterations)
        self.agents: int = self._core.agents

    def round(
        self, k: int, pull: Sequence[Any] = (), push: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """Round k: ``A v`` for each v in ``pull`` and ``B t`` for each t in ``push``, each (agents,
        width)."""
        return self._core.round(k, [_square(v) for v in pull], [_square(t) for t in push])

    @property
    def bytes(self) -> int:
        """Bytes sent so far."""
        return int(self._core.traffic[2])


def _square(array: Any) -> np.ndarray[Any, Any]:
    square: np.ndarray[Any, Any] = np.ascontiguousarray(array, dtype=np.float64)
    if square.ndim != 2:
        raise ValueError(f"an array of shape {square.shape} cannot be mixed; it must be (agents, width)")
    return square


class Stacked:
    """A problem as algorithms in Python see it: all agents' points stacked."""

    def __init__(self, problem: Any) -> None:
        self._problem, self._core = problem, getattr(problem, "core", None)
        self._oracle = None if self._core is not None else problem.oracle()
        self.agents: int = problem.agents
        core = self._core
        self.widths: list[int] = core.upper if core is not None else problem.widths
        self.lower: int = core.lower if core is not None else problem.y.width
        if core is None:
            if problem.private:
                raise ValueError("algorithms in Python know no private upper variables")
            # Functions are bound to these arrays once, as they are in a run of the core's.
            shapes = [(self.agents, width) for width in (self.widths[0], self.lower, self.lower)]
            self._points, self._outs = ([np.zeros(s, problem.dtype) for s in shapes] for _ in range(2))
            self._call: Any = None

    def start(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Where x and y start, (agents, width)."""
        shapes = [(self.agents, self.widths[0]), (self.agents, self.lower)]
        if self._core is not None:
            return np.zeros(shapes[0]), np.zeros(shapes[1])
        p = self._problem
        return np.broadcast_to(p.x0[0], shapes[0]).copy(), np.broadcast_to(p.y0, shapes[1]).copy()

    def upper_gradients(self, k: int, x: Any, y: Any) -> tuple[Any, Any]:
        """∇ₓf and ∇ᵧf of every agent at its own point with the sample of iteration k."""
        return self._gradients(0, k, x, y)

    def lower_gradients(self, k: int, x: Any, y: Any) -> tuple[Any, Any]:
        """∇ₓg and ∇ᵧg."""
        return self._gradients(1, k, x, y)

    def _gradients(self, level: int, k: int, x: Any, y: Any) -> tuple[Any, Any]:
        of, dtype = (self._oracle, self._problem.dtype) if self._core is None else (self._core, float)
        x, y = np.ascontiguousarray(x, dtype=dtype), np.ascontiguousarray(y, dtype=dtype)
        assert of is not None
        pairs = [of.gradients(level, i, k, x[i], y[i]) for i in range(self.agents)]
        return np.stack([a for a, _ in pairs]).astype(float), np.stack([b for _, b in pairs]).astype(float)

    def directions(self, k: int, x: Any, y: Any, z: Any, f: float, g: float) -> tuple[Any, Any, Any]:
        """FAB's directions of every agent."""
        if self._core is None:
            if self._call is None:
                assert self._oracle is not None
                bound = [array.view() for array in self._points], self._outs
                self._call = self._oracle.bind(list(range(self.agents)), *bound, (None, None))
            for to, given in zip(self._points, (x, y, z)):
                to[...] = given
            self._call(k, f, g)
            dx, dy, dz = (out.astype(float) for out in self._outs)
            return dx, dy, dz
        fx, fy = self.upper_gradients(k, x, y)
        gx, gy = self.lower_gradients(k, x, y)
        hx, hy = self.lower_gradients(k, x, z)
        return f * fx + g * (gx - hx), f * fy + g * gy, g * hy

    def measure(self, state: dict[str, Any]) -> dict[str, float]:
        """The problem's metrics of a state."""
        x, y = state["x"], state.get("y")
        if self._core is not None:
            return dict(self._core.metrics(x.mean(0), None if y is None else y.mean(0)))
        dtype = self._problem.dtype
        rows = {name: np.asarray(v, dtype=dtype) for name, v in (("x", x), ("y", y)) if v is not None}
        assert self._oracle is not None
        return dict(self._oracle.evaluate(rows))


def _own(problem: Any, algorithm: Any, graph: Graph, iterations: int, every: int) -> Run:
    """The same loop for an algorithm in Python: slower, and open to every idea."""
    if not (hasattr(algorithm, "start") and hasattr(algorithm, "step")):
        kind = type(algorithm).__name__
        raise TypeError(
            f"algorithm is a {kind}; give one such as dibo.FAB(...), or an object with start and step"
        )
    network, stacked = Network(graph, iterations), Stacked(problem)
    state: dict[str, Any] = {}
    samples: list[dict[str, float]] = []
    seconds, k, status, error = 0.0, 0, "finished", None
    try:
        state = _state(algorithm.start(stacked, network), stacked)
        while True:
            if k % every == 0 or k == iterations:
                samples.append(_sample(k, seconds, network, stacked, state))
                if not all(np.isfinite(value) for value in samples[-1].values()):
                    status = "diverged"
                    break
            if k == iterations:
                break
            began = time.perf_counter()
            state = _state(algorithm.step(k, state, stacked, network), stacked)
            seconds += time.perf_counter() - began
            k += 1
    except KeyboardInterrupt:
        status = "stopped"
    except Exception as raised:
        raised.add_note(f"dibo: iteration {k}, all agents together")
        error = raised
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    columns = {name: np.array([sample.get(name, np.nan) for sample in samples]) for name in names}
    if "iteration" in columns:
        columns["iteration"] = columns["iteration"].astype(np.int64)
    result = {"status": status, "k": k, "reason": None, "columns": columns, "error": error}
    return finish({**result, "variables": dict(state)}, problem, algorithm, graph)


def _state(state: Any, problem: Stacked) -> dict[str, Any]:
    if not isinstance(state, dict) or "x" not in state:
        raise TypeError("start and step must give a dict of arrays with 'x' among them")
    out = {}
    for name, value in state.items():
        value = np.asarray(value)
        if value.ndim >= 1 and value.ndim != 2 or value.ndim == 2 and len(value) != problem.agents:
            raise ValueError(f"{name} has shape {value.shape}; it must be ({problem.agents}, width)")
        out[name] = value
    return out


def _sample(
    k: int, seconds: float, network: Network, problem: Stacked, state: dict[str, Any]
) -> dict[str, float]:
    sample = {
        "iteration": float(k),
        "seconds": seconds,
        "bytes": float(network.bytes),
        **problem.measure(state),
    }
    for name in "xyz":
        if name in state:
            rows = state[name]
            sample[f"consensus_{name}"] = float(((rows - rows.mean(0)) ** 2).sum(1).mean())
    return sample


def compare(
    problem: Any,
    algorithms: Iterable[Algorithm | Stepping] | dict[str, Algorithm | Stepping],
    graph: Graph | None = None,
    *,
    seeds: int | Iterable[int] = 1,
    **options: Any,
) -> Any:
    """Runs every algorithm with every seed of the graph; a pandas table of all curves, with the columns
    ``algorithm`` and ``seed`` in front. ``problem`` may be a function of the seed. Ctrl-C ends it with what
    is done."""
    import pandas

    named = algorithms.items() if isinstance(algorithms, dict) else [(repr(a), a) for a in algorithms]
    frames: list[Any] = []
    for label, algorithm in list(named):
        for seed in range(seeds) if isinstance(seeds, int) else seeds:
            made = problem(seed) if callable(problem) else problem
            over = _seeded(_graph(graph, made.agents), seed)
            run = solve(made, algorithm, over, **options)
            frame = run.curves
            frame.insert(0, "algorithm", label)
            frame.insert(1, "seed", seed)
            frame["status"] = run.status
            frames.append(frame)
            if run.status == "stopped":
                return pandas.concat(frames, ignore_index=True)
    return pandas.concat(frames, ignore_index=True)


def _seeded(graph: Graph, seed: int) -> Graph:
    import copy

    other = copy.copy(graph)
    other.seed = graph.seed + int(seed)
    return other
