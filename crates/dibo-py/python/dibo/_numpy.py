"""Gradients in NumPy."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import numpy as np

from . import _gpu, _problem
from ._tree import flatten

name = "numpy"


def variable(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([np.asarray(leaf) for leaf in leaves])


def dtype(leaves: Sequence[Any]) -> Any:
    kinds = {leaf.dtype for leaf in leaves if leaf.dtype.kind == "f"}
    return np.dtype(np.float32) if kinds == {np.dtype(np.float32)} else np.dtype(np.float64)


def device(leaves: Sequence[Any]) -> str:
    return "cpu"


def place(device: Any) -> str:
    return _gpu.processor(device, "NumPy")


def vector(leaves: Sequence[Any]) -> Any:
    return np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)


def join(parts: Sequence[Any]) -> Any:
    return np.concatenate([np.asarray(part) for part in parts])


def take(leaf: Any, places: Any) -> Any:
    return leaf[places]


def shown(tree: Any) -> Any:
    return tree


def fit(what: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array as it must be, or an error that says what it is instead."""
    if type(value) is not np.ndarray:
        if value is None:
            raise TypeError(f"{what} is None; an array of shape {shape} is needed")
        try:
            value = np.asarray(value)
        except Exception as error:
            raise TypeError(f"{what} is a {type(value).__name__}, not an array: {error}") from None
    if value.shape != shape:
        raise ValueError(f"{what} has shape {value.shape}; it must have {shape}")
    if value.dtype != dtype:
        if value.dtype.kind not in "fiu":
            raise TypeError(f"{what} has dtype {value.dtype}; it must have {dtype}")
        value = value.astype(dtype)
    return value


def pair(what: str, value: Any) -> Any:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{what} must give a pair (gradient of x, gradient of y), not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


class GradientOracle(_problem.Oracle):
    """Calls gradients: once for all agents where they are stacked, else agent by agent."""

    def has_products(self) -> bool:
        return self.problem.products is not None

    def bind(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int, float, float], Any]:
        p = self.problem
        for array in inputs:
            array.flags.writeable = False
        if p.fused is not None:
            return functools.partial(p.fused, *inputs, *outputs)
        return self._stacked(owned, inputs, outputs) if p.stacked else self._loop(owned, inputs, outputs)

    def _stacked(self, owned: Sequence[int], inputs: list[Any], outputs: list[Any]) -> Callable[..., Any]:
        p = self.problem
        (x, y, z), (dx, dy, dz) = inputs, outputs
        tx, ty, tz = p.x.tree(x), p.y.tree(y), p.y.tree(z)
        gradients = self._vectors

        def directions(k: int, f: float, g: float) -> None:
            try:
                train = self.batch(p.train, 1, owned, k)
                hx, hy = gradients("lower", p.lower(tx, tz, train), dx.shape, dy.shape)
                np.multiply(hx, -g, out=dx)
                np.multiply(hy, g, out=dz)
                gx, gy = gradients("lower", p.lower(tx, ty, train), dx.shape, dy.shape)
                dx.__iadd__(g * gx)
                np.multiply(gy, g, out=dy)
                val = self.batch(p.val, 0, owned, k)
                fx, fy = gradients("upper", p.upper(tx, ty, val), dx.shape, dy.shape)
                dx.__iadd__(f * fx)
                dy.__iadd__(f * fy)
            except Exception as error:
                error.add_note(f"dibo: iteration {k}, all agents together")
                raise

        return directions

    def _loop(self, owned: Sequence[int], inputs: list[Any], outputs: list[Any]) -> Callable[..., Any]:
        (x, y, z), (dx, dy, dz) = inputs, outputs

        def directions(k: int, f: float, g: float) -> None:
            for row, agent in enumerate(owned):
                width = self.width(agent)
                xs = x[row, :width]
                hx, hy = self.gradients(1, agent, k, xs, z[row])
                gx, gy = self.gradients(1, agent, k, xs, y[row])
                fx, fy = self.gradients(0, agent, k, xs, y[row])
                dx[row, :width] = -(g * hx) + g * gx + f * fx
                dz[row] = g * hy
                dy[row] = g * gy + f * fy

        return directions

    def width(self, agent: int) -> int:
        p = self.problem
        return int(p.widths[agent] if p.private else p.widths[0])

    def _vectors(self, what: str, value: Any, *shapes: tuple[int, ...]) -> list[Any]:
        """A pair of gradients as rows, from trees like x and y."""
        out = []
        p = self.problem
        for letter, part, like, shape in zip("xy", pair(what, value), (p.x, p.y), shapes):
            label = f"the gradient of {letter} that {what} gives"
            if like.plain:
                part = fit(label, part, shape[:-1] + self._own_shape(like, shape), p.dtype).reshape(shape)
            else:
                leaves = flatten(part)[0]
                if len(leaves) != len(like.shapes):
                    raise ValueError(f"{label} has {len(leaves)} arrays; {letter} has {len(like.shapes)}")
                fitted = [
                    fit(label, leaf, shape[:-1] + own, p.dtype) for leaf, own in zip(leaves, like.shapes)
                ]
                part = np.concatenate([leaf.reshape(shape[:-1] + (-1,)) for leaf in fitted], axis=-1)
            out.append(part)
        return out

    def _own_shape(self, like: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The array's shape; a private vector is as long as its agent's."""
        own: tuple[int, ...] = like.shapes[0]
        return shape[-1:] if len(own) == 1 else own

    def gradients(self, level: int, agent: int, k: int, x: Any, y: Any) -> Any:
        p = self.problem
        function = p.lower if level else p.upper
        if function is None:
            raise TypeError("this problem gives directions alone; give upper and lower for other methods")
        try:
            data = self.samples(level, agent, k)
            label = "lower" if level else "upper"
            if p.stacked:
                lead = data if data is None else data_lead(data)
                value = pair(label, function(p.x.tree(x[None]), p.y.tree(y[None]), lead))
                value = [flatten_first(part) for part in value]
            else:
                value = function(p.x.tree(x), p.y.tree(y), data)
            return tuple(self._vectors(label, value, x.shape, y.shape))
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise

    def products(self, agent: int, k: int, x: Any, y: Any, v: Any) -> Any:
        p = self.problem
        try:
            data = self.samples(1, agent, k)
            value = p.products(p.x.tree(x), p.y.tree(y), p.y.tree(v), data)
            return tuple(self._vectors("products", value, x.shape, y.shape))
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise

    def bind_single(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int], None]:
        p = self.problem
        like = p.y if p.single_of == "y" else p.x
        (v,), (d,) = inputs, outputs
        v.flags.writeable = False

        def one(agent: int, row: int, k: int) -> None:
            try:
                value = p.single(like.tree(v[row]), self.samples(1, agent, k))
                shapes = like.shapes
                leaves = [value] if like.plain else flatten(value)[0]
                label = "the gradient that single gives"
                fitted = [fit(label, leaf, own, p.dtype).ravel() for leaf, own in zip(leaves, shapes)]
                d[row] = fitted[0] if like.plain else np.concatenate(fitted)
            except Exception as error:
                error.add_note(f"dibo: iteration {k}, agent {agent}")
                raise

        def gradient(k: int) -> None:
            for row, agent in enumerate(owned):
                one(agent, row, k)

        return gradient


def data_lead(tree: Any) -> Any:
    """One agent's samples as stacked functions see them."""
    leaves, rebuild = flatten(tree)
    return rebuild([leaf[None] for leaf in leaves])


def flatten_first(tree: Any) -> Any:
    """One agent's part of what a stacked function gave."""
    leaves, rebuild = flatten(tree)
    return rebuild([None if leaf is None else np.asarray(leaf)[0] for leaf in leaves])


def oracle(problem: Any) -> GradientOracle:
    return GradientOracle(problem)
