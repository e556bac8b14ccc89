"""Losses in JAX: one compiled function an iteration for all agents."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from . import _problem
from ._gpu import ALIGNED
from ._jax_cuda import Lent, copies, device_of, place
from ._tree import Variable, flatten

__all__ = ["ALIGNED", "place"]

name = "jax"


def variable(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([jnp.asarray(leaf) for leaf in leaves])


def dtype(leaves: Sequence[Any]) -> Any:
    kinds = {np.dtype(leaf.dtype) for leaf in leaves}
    if len(kinds) != 1 or not kinds <= {np.dtype(np.float32), np.dtype(np.float64)}:
        found = ", ".join(sorted(str(kind) for kind in kinds))
        raise TypeError(
            f"x and y have dtypes {found}; all must be float32, or all float64 (with jax_enable_x64)"
        )
    return kinds.pop()


def device(leaves: Sequence[Any]) -> str:
    """Where a problem runs unless a run says otherwise. JAX puts arrays on a GPU unasked, so where they lie
    says nothing."""
    return "cpu"


def mover(device: str) -> Callable[[Any], Any]:
    """Moves an array of data to a device; one that lies there stays."""
    at = device_of(device)
    return lambda leaf: leaf if at is None else jax.device_put(leaf, at)


def vector(leaves: Sequence[Any]) -> Any:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]) if leaves else np.zeros(0)


def join(parts: Sequence[Any]) -> Any:
    return jnp.concatenate([jnp.asarray(np.asarray(part)) for part in parts])


def take(leaf: Any, places: Any) -> Any:
    return leaf[places]


def shown(tree: Any) -> Any:
    return tree


def lent(problem: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """The rows of a run on a GPU as arrays of JAX's own there, without what lies between arrays."""
    out = dict(variables)
    there = {name: rows for name, rows in variables.items() if not isinstance(rows, np.ndarray)}
    alone = "y" not in variables and problem.single_of == "y"
    for name, rows in copies(there).items():
        like = problem.x if name.endswith("x") and not alone else problem.y
        if rows.shape[-1] == like.width:
            pieces = like.pieces(rows)
            rows = pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=-1)
        out[name] = rows
    return out


def mean(rows: Any) -> Any:
    """The mean over agents."""
    return rows.mean(0)


def _loss(value: Any, what: str) -> Any:
    if value is None or not hasattr(value, "shape"):
        kind = type(value).__name__
        if not isinstance(value, (int, float)):
            raise TypeError(f"{what} must give an array with one number, not {kind}")
        value = jnp.asarray(value, dtype=float)
    if tuple(value.shape) != ():
        raise ValueError(f"{what} must give one number, not an array of shape {tuple(value.shape)}")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{what} gives {value.dtype}; a loss is a floating-point number")
    return value


class JaxOracle(_problem.Oracle):
    """Places of samples go in with each call; data stays with JAX."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        p = problem
        self.on_gpu: bool = p.device != "cpu"
        self.at = device_of(p.device)
        self.upper: Callable[..., Any] = lambda x, y, data: _loss(
            p.upper(p.x.tree(x), p.y.tree(y), data), "upper"
        )
        self.lower: Callable[..., Any] = lambda x, y, data: _loss(
            p.lower(p.x.tree(x), p.y.tree(y), data), "lower"
        )

    def has_loss(self) -> bool:
        return True

    def has_products(self) -> bool:
        return True

    def jit(self, key: str, function: Callable[..., Any]) -> Any:
        """The compiled function, made once for all runs of a problem."""
        compiled = self.problem.__dict__.setdefault("_compiled", {})
        if key not in compiled:
            compiled[key] = jax.jit(function)
        return compiled[key]

    def _places(self, which: int, owned: Sequence[int], k: int) -> Any:
        data = self.problem.train if which else self.problem.val
        if data.empty:
            return None
        return data.places(2 * self.problem.seed + which, owned, k, self.problem.batch[which])

    def _fixed(self, which: int, owned: Sequence[int]) -> Callable[[int], Any]:
        """The places of iteration k: drawn anew, the same at every call, or none where agents have different
        numbers of samples."""
        data = self.problem.train if which else self.problem.val
        if self.problem.batch[which] is not None:
            return lambda k: self._places(which, owned, k)
        same = jax.device_put(self._places(which, owned, 0), self.at) if data.regular(owned) else None
        return lambda k: same

    def _gather(self, which: int, leaves: Any, places: Any) -> Any:
        data = self.problem.train if which else self.problem.val
        return None if data.empty else data.rebuild([leaf[places] for leaf in leaves])

    def _sum(self, function: Callable[..., Any], which: int, owned: Sequence[int]) -> Callable[..., Any]:
        """Σ over agents of a loss at stacked rows."""
        data = self.problem.train if which else self.problem.val

        def total(arguments: Any, leaves: Any, places: Any) -> Any:
            if data.empty:
                return jax.vmap(lambda *a: function(*a, None))(*arguments).sum()
            if places is not None:
                batch = self._gather(which, leaves, places)
                return jax.vmap(function)(*arguments, batch).sum()
            # Agents with different numbers of samples are summed one by one.
            out = 0.0
            for row, agent in enumerate(owned):
                own = [jax.tree_util.tree_map(lambda leaf: leaf[row], tree) for tree in arguments]
                out = out + function(*own, self.whole(data, agent))
            return out

        return total

    def bind(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int, float, float], None]:
        p = self.problem
        compute, likes = self._directions(owned), (p.x, p.y, p.y)
        leaves = [[] if data.empty else data.leaves for data in (p.val, p.train)]
        places_at, kind = [self._fixed(which, owned) for which in (0, 1)], p.dtype.type
        if self.on_gpu:
            call = self._there("directions", owned, (inputs, outputs), compute, likes)
        else:
            arguments, compiled = self._arguments(owned, inputs, rows[0], compute)
            call = _here(compiled, arguments, outputs, likes)
        last: list[Any] = [None, None]

        def factors(f: float, g: float) -> Any:
            # They seldom change, and each way to a GPU takes time.
            if last[0] != (f, g):
                last[:] = (f, g), (kind(f), kind(g))
                last[1] = jax.device_put(last[1], self.at) if self.on_gpu else last[1]
            return last[1]

        def directions(k: int, f: float, g: float) -> None:
            try:
                call(k, *factors(f, g), leaves, [at(k) for at in places_at])
            except Exception as error:
                self.locate(error, k, owned, lambda agent: self._try(agent, k))
                raise

        return directions

    def _directions(self, owned: Sequence[int]) -> Callable[..., Any]:
        """FAB's directions at stacked rows: the arrays of x, y and z."""
        p = self.problem
        high = lambda x, y, data: _loss(p.upper(p.x.rebuild(x), p.y.rebuild(y), data), "upper")
        low = lambda x, y, data: _loss(p.lower(p.x.rebuild(x), p.y.rebuild(y), data), "lower")
        upper, lower = self._sum(high, 0, owned), self._sum(low, 1, owned)

        def compute(x: Any, y: Any, z: Any, f: Any, g: Any, leaves: Any, places: Any) -> Any:
            def total(x: Any, y: Any, z: Any) -> Any:
                (val, train), (at_val, at_train) = leaves, places
                twice = lower((x, y), train, at_train) - lower((x, z), train, at_train)
                return f * upper((x, y), val, at_val) + g * twice

            # A gradient for each array of the user's: none is padded to the whole row.
            points = p.x.leaves(x), p.y.leaves(y), p.y.leaves(z)
            dx, dy, dz = jax.grad(total, argnums=(0, 1, 2))(*points)
            return dx, dy, [-d for d in dz]

        return compute

    def _there(
        self,
        what: str,
        owned: Sequence[int],
        arrays: tuple[list[Any], list[Any]],
        compute: Callable[..., Any],
        likes: Sequence[Variable],
    ) -> Callable[..., None]:
        """A function of iteration k that computes on a GPU: one compiled function, which reads dibo's rows
        where they lie and gives whole rows of directions, which are copied to dibo's."""
        points, directions = Lent(arrays[0]), Lent(arrays[1])
        # What is compiled stays with the problem: it must not keep rows.
        here, there = points.layout, directions.layout

        def on_rows(memory: Any, *rest: Any) -> Any:
            return there.join(likes, compute(*here.split(memory), *rest))

        compiled = self.jit(f"{what} {list(owned)} {here} {there}", on_rows)
        seen = points.seen()

        def call(k: int, *rest: Any) -> None:
            points.wait()
            given = compiled(seen, *rest)
            if k == 0:
                directions.check_finite(given, owned, "xyz")
            directions.write(given)

        return call

    def _arguments(
        self, owned: Sequence[int], inputs: list[Any], rows: Any, compute: Callable[..., Any]
    ) -> tuple[list[Any], Any]:
        """What the compiled function is called with. Long rows go in as they lie, padding included, since JAX
        takes no part of a row without a copy; they are cut inside."""
        p = self.problem
        # Where JAX computes on a GPU, they are copied there in any case.
        if rows is None or jax.default_backend() != "cpu":
            return inputs, self.jit(f"directions {list(owned)}", compute)
        width, low, apart = (0 if p.private else p.x.width), p.y.width, p.private

        def on_rows(x: Any, rows: Any, *rest: Any) -> Any:
            x = x if apart else rows[:, :width]
            return compute(x, rows[:, width : width + low], rows[:, width + low : width + 2 * low], *rest)

        # The same memory as JAX sees it: read anew at every call, which ends before the rows change.
        x = inputs[0] if apart else None
        if apart and inputs[0].flags.c_contiguous:
            x = jax.dlpack.from_dlpack(inputs[0])
        return [x, jax.dlpack.from_dlpack(rows)], self.jit(f"rows {list(owned)}", on_rows)

    def _try(self, agent: int, k: int) -> None:
        p = self.problem
        x, y = p.x0[agent if p.private else 0].astype(p.dtype), p.y0.astype(p.dtype)
        self.upper(x, y, self.samples(0, agent, k))
        self.lower(x, y, self.samples(1, agent, k))

    def _own(self, which: int, agent: int, k: int) -> tuple[Any, Any]:
        """One agent's arrays and the places of its samples in them; gathered inside the compiled function."""
        data = self.problem.train if which else self.problem.val
        if data.empty:
            return [], None
        places = data.places(2 * self.problem.seed + which, [agent], k, self.problem.batch[which])[0]
        return data.leaves, places

    def gradients(self, level: int, agent: int, k: int, x: Any, y: Any) -> Any:
        function = self.lower if level else self.upper

        def pair(x: Any, y: Any, leaves: Any, places: Any) -> Any:
            return jax.grad(function, argnums=(0, 1))(x, y, self._gather(level, leaves, places))

        try:
            compiled = self.jit(f"gradients {level}", pair)
            return tuple(np.array(part) for part in compiled(x, y, *self._own(level, agent, k)))
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise

    def products(self, agent: int, k: int, x: Any, y: Any, v: Any) -> Any:
        def both(x: Any, y: Any, v: Any, leaves: Any, places: Any) -> Any:
            gradient, data = jax.grad(self.lower, argnums=(0, 1)), self._gather(1, leaves, places)
            return jax.jvp(lambda y: gradient(x, y, data), (y,), (v,))[1]

        try:
            compiled = self.jit("products", both)
            return tuple(np.array(part) for part in compiled(x, y, v, *self._own(1, agent, k)))
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise

    def bind_single(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int], None]:
        p = self.problem
        like, data = (p.y if p.single_of == "y" else p.x), p.train
        function = self._sum(lambda v, data: _loss(p.single(like.rebuild(v), data), "single"), 1, owned)
        places_at, leaves = self._fixed(1, owned), [] if data.empty else data.leaves

        def compute(v: Any, leaves: Any, places: Any) -> Any:
            return [jax.grad(lambda v: function((v,), leaves, places))(like.leaves(v))]

        if self.on_gpu:
            call = self._there("single", owned, (inputs, outputs), compute, [like])
        else:
            call = _here(self.jit(f"single {list(owned)}", compute), inputs, outputs, [like])

        def gradient(k: int) -> None:
            try:
                call(k, leaves, places_at(k))
            except Exception as error:
                error.add_note(f"dibo: iteration {k}, all agents together")
                raise

        return gradient

    def _point(self, agents: Sequence[int], variables: dict[str, Any]) -> tuple[Any, Any]:
        x, y = super()._point(agents, variables)
        return (jax.device_put(x, self.at), y) if self.on_gpu else (x, y)

    def losses(self, agents: Sequence[int], variables: dict[str, Any]) -> list[float]:
        return super().losses(agents, self._own_arrays(variables))

    def evaluate(self, variables: dict[str, Any]) -> list[tuple[str, float]]:
        return super().evaluate(self._own_arrays(variables))

    def _own_arrays(self, variables: dict[str, Any]) -> dict[str, Any]:
        there = self.on_gpu and not all(isinstance(rows, jax.Array) for rows in variables.values())
        return copies(variables) if there else variables

    def upper_loss(self, agent: int, x: Any, y: Any) -> float:
        compiled = self.jit("loss", self.upper)
        x = x if self.on_gpu else np.ascontiguousarray(x)
        return float(compiled(x, y, self.whole(self.problem.val, agent)))


def _here(
    compiled: Callable[..., Any], arguments: list[Any], outputs: list[Any], likes: Sequence[Variable]
) -> Callable[..., None]:
    """A function of iteration k that computes on the processor and writes to dibo's rows."""
    outs = [like.leaves(out) for like, out in zip(likes, outputs)]

    def call(k: int, *rest: Any) -> None:
        for to, values in zip(outs, compiled(*arguments, *rest)):
            for out, value in zip(to, values):
                np.copyto(out, np.asarray(value))

    return call


def oracle(problem: Any) -> JaxOracle:
    return JaxOracle(problem)
