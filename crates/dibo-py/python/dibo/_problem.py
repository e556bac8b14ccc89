"""Problems: two losses or two gradients, with the agents' data."""

from __future__ import annotations

import copy
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _core
from ._data import Data
from ._tree import Variable, flatten

Metrics = Mapping[str, Any]

#: What is better: lower, higher, or neither.
_BETTER = {"lower": -1, "higher": 1, "neither": 0}


class _Problem:
    """What every problem written in Python has. Each run gets an oracle of its own, which the core calls."""

    def __init__(
        self,
        *,
        x: Any,
        y: Any,
        agents: int | None,
        train: Any,
        val: Any,
        batch: int | tuple[int | None, int | None] | None,
        seed: int,
        private: bool,
        metrics: Metrics | None,
        single: Callable[..., Any] | None,
        single_of: str,
        framework: Any,
        lend: bool | None = None,
    ) -> None:
        self.framework, self.lend = framework, lend
        self.seed = _whole("seed", seed, 0)
        self.private = bool(private)
        self.single, self.single_of = single, single_of
        if single_of not in ("x", "y"):
            raise ValueError(f"single_of is {single_of!r}; it must be 'x' or 'y'")
        sizes = batch if isinstance(batch, tuple) else (batch, batch)
        self.batch = tuple(None if size is None else _whole("batch", size, 1) for size in sizes)
        xs = list(x) if private else [x]
        if private and not (isinstance(x, (list, tuple)) and xs):
            raise ValueError("x: a private upper variable is a list with a start for each agent")
        self._start(xs, y)
        agents = len(xs) if private and agents is None else agents
        self.train = Data(train, agents, framework.join, "train")
        self.val = Data(val, self.train.agents, framework.join, "val")
        self.agents = (
            _whole("agents", self.val.agents or agents or 0, 1) if (self.val.agents or agents) else 0
        )
        if not self.agents:
            raise ValueError("agents: give train or val as a list with each agent's data, or agents=")
        if private and len(xs) != self.agents:
            raise ValueError(f"x has starts for {len(xs)} agents; there are {self.agents}")
        self.metrics = _metrics(metrics)

    def _start(self, xs: list[Any], y: Any) -> None:
        framework = self.framework
        y = framework.variable(y)
        xs = [framework.variable(x) for x in xs]
        y_leaves, x_leaves = flatten(y)[0], [flatten(x)[0] for x in xs]
        if not y_leaves:
            raise ValueError("y has no arrays")
        all_leaves = [*y_leaves, *(leaf for leaves in x_leaves for leaf in leaves)]
        self.dtype, self.device = framework.dtype(all_leaves), framework.device(all_leaves)
        self.y = Variable(y, [leaf.shape for leaf in y_leaves])
        if self.private:
            if any(len(leaves) != 1 or len(leaves[0].shape) != 1 for leaves in x_leaves):
                raise ValueError("x: a private upper variable is one vector for each agent")
            self.widths = [int(leaves[0].shape[0]) for leaves in x_leaves]
            self.x = Variable(xs[0], [(max(self.widths),)])
        else:
            self.x = Variable(xs[0], [leaf.shape for leaf in x_leaves[0]])
            self.widths = [self.x.width]
        vector = framework.vector
        self.x0 = [np.ascontiguousarray(vector(leaves), dtype=np.float64) for leaves in x_leaves]
        self.y0 = np.ascontiguousarray(vector(y_leaves), dtype=np.float64)
        for name, values in [("x", self.x0), ("y", [self.y0])]:
            if not all(np.isfinite(value).all() for value in values):
                raise ValueError(f"{name} starts at numbers that are not finite")

    @property
    def single_width(self) -> int:
        return self.y.width if self.single_of == "y" else self.x.width

    def on(self, device: str) -> Any:
        """This problem with its data on a GPU, moved there once; arrays begin there where products are
        fast."""
        placed = self.__dict__.setdefault("_placed", {})
        if device not in placed:
            other = copy.copy(self)
            # What was compiled knows how variables lie.
            other.__dict__.pop("_compiled", None)
            other.device = device
            move = self.framework.mover(device)
            other.train, other.val = self.train.on(move), self.val.on(move)
            if device != "cpu":
                other._align(self.framework.ALIGNED)
            placed[device] = other
        return placed[device]

    def _align(self, multiple: int) -> None:
        self.y = self.y.aligned(multiple)
        self.y0 = self.y.spread(self.y0)
        if not self.private:
            self.x = self.x.aligned(multiple)
            self.x0 = [self.x.spread(start) for start in self.x0]
            self.widths = [self.x.width]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_placed", "_compiled")}

    def oracle(self) -> Any:
        """What the core calls during one run."""
        raise NotImplementedError

    def __repr__(self) -> str:
        upper = f"{sum(self.widths)} private entries" if self.private else f"{self.x.width}"
        return (
            f"{type(self).__name__}(agents={self.agents}, upper={upper}, lower={self.y.width}, "
            f"dtype={self.dtype}, framework={self.framework.name!r})"
        )


class Oracle:
    """One run's calls of a problem. The core lends it arrays once and then calls what `bind` gave."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self._full: dict[tuple[int, ...], Any] = {}

    def about(self) -> dict[str, Any]:
        p = self.problem
        measures = [(name, name.replace("_", " "), better) for name, (_, better) in p.metrics.items()]
        if self.has_loss():
            measures.insert(0, ("upper_loss", "upper loss", -1))
        return {
            "agents": p.agents,
            "upper": p.widths,
            "lower": p.y.width,
            "private": p.private,
            "x": p.x0,
            "y": [p.y0],
            "measures": measures,
            "single": None if p.single is None else (p.single_width, p.single_of == "y"),
            "second_order": self.has_products(),
            "lend": p.lend,
            "own_losses": self.has_loss() and not p.metrics,
        }

    def has_loss(self) -> bool:
        return False

    def has_products(self) -> bool:
        return False

    def upper_loss(self, agent: int, x: Any, y: Any) -> float:
        """An agent's upper loss on all its val data."""
        raise NotImplementedError

    def _point(self, agents: Sequence[int], variables: dict[str, Any]) -> tuple[Any, Any]:
        """x and y of these agents; a method on y alone leaves x where it starts."""
        p = self.problem
        x, y = variables.get("x"), variables.get("y")
        alone = y is None and p.single is not None and p.single_of == "y"
        if alone and x is not None and x.shape[-1] == p.y.width:
            x, y = None, x
        if x is None:
            x = np.zeros((len(agents), max(p.widths)), dtype=p.dtype)
            for to, agent in zip(x, agents):
                start = p.x0[agent if p.private else 0]
                to[: len(start)] = start
        return x, y

    def losses(self, agents: Sequence[int], variables: dict[str, Any]) -> list[float]:
        """The upper losses of these agents, each at its own point."""
        p = self.problem
        x, y = self._point(agents, variables)
        if y is None:
            return []
        out = []
        for row, agent in enumerate(agents):
            width = p.widths[agent] if p.private else p.x.width
            try:
                out.append(float(self.upper_loss(agent, x[row, :width], y[row])))
            except Exception as error:
                error.add_note(f"dibo: in the upper loss of agent {agent}, measured on all its data")
                raise
        return out

    def evaluate(self, variables: dict[str, Any]) -> list[tuple[str, float]]:
        """The metrics of a state: x and y of all agents."""
        p = self.problem
        x, y = self._point(range(p.agents), variables)
        values = []
        if self.has_loss() and y is not None:
            values.append(("upper_loss", sum(self.losses(range(p.agents), variables)) / p.agents))
        for name, (metric, _) in p.metrics.items():
            mean_x = [row[:width] for row, width in zip(x, p.widths)] if p.private else p.x.tree(x.mean(0))
            mean_y = None if y is None else p.y.tree(y.mean(0))
            point = [p.framework.shown(mean_x), p.framework.shown(mean_y)]
            try:
                values.append((name, float(metric(*point))))
            except Exception as error:
                error.add_note(f"dibo: in the metric {name!r}")
                raise
        return values

    def batch(self, data: Data, which: int, owned: Sequence[int], k: int) -> Any:
        """The samples of iteration k of these agents, stacked."""
        p = self.problem
        if data.empty:
            return None
        if p.batch[which] is not None:
            places = data.places(2 * p.seed + which, owned, k, p.batch[which])
            return self._take(data, places)
        key = (which, *owned)
        if key not in self._full:
            places = data.places(0, owned, 0, None)
            self._full[key] = self._take(data, places)
        return self._full[key]

    def samples(self, which: int, agent: int, k: int) -> Any:
        """The samples of iteration k of one agent: of val (0) or train (1)."""
        data = self.problem.train if which else self.problem.val
        if data.empty:
            return None
        if self.problem.batch[which] is None:
            return self.whole(data, agent)
        places = data.places(2 * self.problem.seed + which, [agent], k, self.problem.batch[which])[0]
        return self._take(data, places)

    def index(self, places: Any) -> Any:
        """Places as the framework wants them where its data lies."""
        return places

    def _take(self, data: Data, places: Any) -> Any:
        index = self.index(places)
        return data.rebuild([self.problem.framework.take(leaf, index) for leaf in data.leaves])

    def whole(self, data: Data, agent: int) -> Any:
        """All samples of one agent."""
        if data.empty:
            return None
        cut = slice(int(data.starts[agent]), int(data.starts[agent] + data.counts[agent]))
        return data.rebuild([leaf[cut] for leaf in data.leaves])

    def stackable(self, owned: Sequence[int]) -> bool:
        """Whether the samples of an iteration can be stacked over these agents."""
        p = self.problem
        pairs = [(p.val, p.batch[0]), (p.train, p.batch[1])]
        return all(size is not None or data.regular(owned) for data, size in pairs)

    def locate(self, error: Exception, k: int, agents: Sequence[int], one: Callable[[int], Any]) -> None:
        """Notes the iteration, and the agent whose function fails alone as well."""
        for agent in agents:
            try:
                one(agent)
            except type(error):
                error.add_note(f"dibo: iteration {k}, agent {agent}")
                return
            except Exception:
                pass
        error.add_note(f"dibo: iteration {k}, all agents together")


def _metrics(metrics: Metrics | None) -> dict[str, tuple[Callable[..., float], int]]:
    out = {}
    for name, metric in (metrics or {}).items():
        function, better = metric if isinstance(metric, tuple) else (metric, "lower")
        if not callable(function) or better not in _BETTER:
            raise ValueError(
                f"metrics: {name!r} must be a function or a pair (function, 'lower' or 'higher')"
            )
        out[str(name)] = (function, _BETTER[better])
    return out


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of {least} or more")
    return int(value)


class Problem(_Problem):
    """Two losses make a problem: minimise Σ upper(x, y*(x), val_i), where y*(x) minimises Σ lower(x, ·,
    train_i).

    Losses are ``fn(x, y, data)`` of one agent, in PyTorch or JAX, and give a number. ``x`` and ``y`` are
    where all agents start: arrays, or dicts, lists and tuples of arrays
    (``dict(model.named_parameters())``; a ``torch.nn.Module`` stands for that). ``train`` and ``val`` are
    lists with a tree of arrays for each agent (also a torch ``Dataset`` or ``DataLoader``, or a Hugging
    Face data set), or one tree of arrays whose first axis is the agent. With ``batch``, each call sees so
    many samples, a pure function of (seed, agent, k).

    ``private=True``: every agent has an upper variable of its own, which no other sees; ``x`` is a list of
    vectors. ``single(v, data)`` is a single-level loss for methods that need one, of the variable
    ``single_of``. ``metrics`` are functions ``fn(x, y)`` of the agents' mean; ``(fn, "higher")`` says that
    more is better. ``compile=True`` has `torch.compile` make one function of the losses' gradients for FAB
    and its variants, on the processor, where ``batch`` is given or all agents have equally many samples:
    half a minute at first (it needs a C++ compiler), then faster iterations with other last digits. JAX
    compiles in any case.
    """

    def __init__(
        self,
        upper: Callable[[Any, Any, Any], Any],
        lower: Callable[[Any, Any, Any], Any],
        *,
        x: Any,
        y: Any,
        train: Any = None,
        val: Any = None,
        agents: int | None = None,
        batch: int | tuple[int | None, int | None] | None = None,
        seed: int = 0,
        private: bool = False,
        metrics: Metrics | None = None,
        single: Callable[[Any, Any], Any] | None = None,
        single_of: str = "y",
        compile: bool = False,
    ) -> None:
        self.upper, self.lower, self.compile = upper, lower, compile
        super().__init__(
            x=x,
            y=y,
            agents=agents,
            train=train,
            val=val,
            batch=batch,
            seed=seed,
            private=private,
            metrics=metrics,
            single=single,
            single_of=single_of,
            framework=_framework(x, y),
        )

    def oracle(self) -> Any:
        return self.framework.oracle(self)


def _framework(x: Any, y: Any) -> Any:
    """The framework that the variables belong to."""
    for tree in (y, x):
        leaves = flatten(tree)[0]
        for leaf in leaves:
            for kind in type(leaf).__mro__:
                module = kind.__module__.split(".")[0]
                if module == "torch":
                    from . import _torch

                    return _torch
                if module in ("jax", "jaxlib"):
                    from . import _jax

                    return _jax
    raise TypeError(
        "x and y are neither PyTorch's nor JAX's, so losses cannot be differentiated: give tensors of one of "
        "them, or gradients in NumPy to dibo.GradientProblem"
    )


class GradientProblem(_Problem):
    """Two gradients in NumPy make a problem: ``upper(x, y, data)`` and ``lower(x, y, data)`` give (∇ₓ, ∇ᵧ).

    With ``stacked=True`` they are called once for all agents: x and y then have the agents as first axis,
    and so have the data and the gradients. ``products(x, y, v, data)`` gives (∇²ₓᵧg v, ∇²ᵧᵧg v) of one
    agent, for methods that need them; ``single(v, data)`` the gradient of a single-level loss.
    ``directions(x, y, z, dx, dy, dz, k, f, g)``, if given, writes FAB's directions of all agents itself:
    ``dx = f ∇ₓf(x,y) + g (∇ₓg(x,y) − ∇ₓg(x,z))``, ``dy = f ∇ᵧf(x,y) + g ∇ᵧg(x,y)``, ``dz = g ∇ᵧg(x,z)``.
    ``lend=True`` gives views of dibo's own rows, ``False`` contiguous copies; by default short rows are
    copied. All else is as in `Problem`.
    """

    def __init__(
        self,
        upper: Callable[[Any, Any, Any], Any] | None = None,
        lower: Callable[[Any, Any, Any], Any] | None = None,
        *,
        x: Any,
        y: Any,
        train: Any = None,
        val: Any = None,
        agents: int | None = None,
        batch: int | tuple[int | None, int | None] | None = None,
        seed: int = 0,
        private: bool = False,
        metrics: Metrics | None = None,
        products: Callable[[Any, Any, Any, Any], Any] | None = None,
        directions: Callable[..., None] | None = None,
        single: Callable[[Any, Any], Any] | None = None,
        single_of: str = "y",
        stacked: bool = False,
        lend: bool | None = None,
    ) -> None:
        from . import _numpy

        if directions is None and (upper is None or lower is None):
            raise TypeError("give upper and lower, which give gradients, or directions")
        self.upper, self.lower, self.products = upper, lower, products
        self.fused, self.stacked = directions, stacked
        super().__init__(
            x=x,
            y=y,
            agents=agents,
            train=train,
            val=val,
            batch=batch,
            seed=seed,
            private=private,
            metrics=metrics,
            single=single,
            single_of=single_of,
            framework=_numpy,
            lend=lend,
        )

    def oracle(self) -> Any:
        return self.framework.oracle(self)


class PolicyEvaluation:
    """The paper's policy evaluation, in Rust: rewards of ``agents``, ``states`` and ``features`` at
    random."""

    def __init__(self, agents: int = 10, states: int = 20, features: int = 5, seed: int = 0) -> None:
        self._shown = f"agents={agents}, states={states}, features={features}, seed={seed}"
        self.core = _core.Builtin.policy_evaluation(agents, states, features, seed)
        self.agents = agents

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown})"


class Quadratic(PolicyEvaluation):
    """A quadratic problem with random matrices, in Rust."""

    def __init__(self, agents: int = 5, upper: int = 3, lower: int = 4, seed: int = 0) -> None:
        self._shown = f"agents={agents}, upper={upper}, lower={lower}, seed={seed}"
        self.core = _core.Builtin.quadratic(agents, upper, lower, seed)
        self.agents = agents


class Robust(PolicyEvaluation):
    """A nonconvex problem, in Rust."""

    def __init__(self, agents: int = 5, upper: int = 3, lower: int = 4, seed: int = 0) -> None:
        self._shown = f"agents={agents}, upper={upper}, lower={lower}, seed={seed}"
        self.core = _core.Builtin.robust(agents, upper, lower, seed)
        self.agents = agents
