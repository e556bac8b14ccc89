"""Losses in PyTorch: one backward pass an iteration for all agents, over leaves that are views of dibo's
rows."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import torch

from . import _problem
from ._tree import Variable, flatten

name = "torch"


def variable(tree: Any) -> Any:
    if isinstance(tree, torch.nn.Module):
        tree = dict(tree.named_parameters())
    leaves, rebuild = flatten(tree)
    return rebuild([torch.as_tensor(leaf).detach() for leaf in leaves])


def dtype(leaves: Sequence[Any]) -> Any:
    kinds = {leaf.dtype for leaf in leaves}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(str(kind) for kind in kinds))
        raise TypeError(f"x and y have dtypes {found}; all must be torch.float32, or all torch.float64")
    devices = {leaf.device.type for leaf in leaves}
    if devices != {"cpu"}:
        raise TypeError(f"x and y lie on {', '.join(sorted(devices))}; they must start on the processor")
    return np.dtype(np.float32 if kinds == {torch.float32} else np.float64)


def vector(leaves: Sequence[Any]) -> Any:
    return torch.cat([leaf.reshape(-1) for leaf in leaves]).double().numpy() if leaves else np.zeros(0)


def join(parts: Sequence[Any]) -> Any:
    return torch.cat([torch.as_tensor(part) for part in parts])


def take(leaf: Any, places: Any) -> Any:
    index = torch.from_numpy(np.ascontiguousarray(places))
    return leaf.index_select(0, index.reshape(-1)).reshape(tuple(places.shape) + tuple(leaf.shape[1:]))


def shown(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([torch.as_tensor(np.ascontiguousarray(leaf)) for leaf in leaves])


def _leaves(like: Variable, rows: Any) -> list[Any]:
    """Leaves that autograd knows, one for each array: views, so that nothing is copied and no gradient
    padded."""
    return [leaf.detach().requires_grad_() for leaf in like.leaves(rows)]


def _loss(value: Any, what: str, shape: tuple[int, ...]) -> Any:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{what} must give a tensor with one number, not {type(value).__name__}")
    if value.device.type != "cpu":
        raise TypeError(f"{what} gives a tensor on {value.device}; it must lie on the processor")
    if tuple(value.shape) != shape:
        one = value.shape[len(shape) :] if shape else value.shape
        raise ValueError(f"{what} must give one number, not a tensor of shape {tuple(one)}")
    if not value.is_floating_point():
        raise TypeError(f"{what} gives {value.dtype}; a loss is a floating-point number")
    return value


def _write(gradients: Sequence[Any], to: Sequence[Any], negative: bool = False) -> None:
    for gradient, out in zip(gradients, to):
        if gradient is None:
            out.zero_()
        elif negative:
            torch.neg(gradient, out=out)
        else:
            out.copy_(gradient)


class TorchOracle(_problem.Oracle):
    def has_loss(self) -> bool:
        return True

    def has_products(self) -> bool:
        return True

    def _sum(self, function: Callable[..., Any], owned: Sequence[int], what: str) -> Callable[..., Any]:
        """Σ over agents of a loss at stacked arguments; one by one where samples cannot be stacked."""
        count = len(owned)
        if self.stackable(owned):
            mapped = torch.func.vmap(function, in_dims=0, randomness="different")

            def stacked(arguments: Sequence[Any], batch: Any, k: int) -> Any:
                if batch is None:
                    values = torch.func.vmap(lambda *a: function(*a, None), randomness="different")(
                        *arguments
                    )
                else:
                    values = mapped(*arguments, batch)
                return _loss(values, what, (count,)).sum()

            return stacked

        which = 0 if what == "upper" else 1

        def one_by_one(arguments: Sequence[Any], batch: Any, k: int) -> Any:
            total = 0.0
            for row, agent in enumerate(owned):
                own = []
                for tree in arguments:
                    leaves, rebuild = flatten(tree)
                    own.append(rebuild([leaf[row] for leaf in leaves]))
                total = total + _loss(function(*own, self.samples(which, agent, k)), what, ())
            return total

        return one_by_one

    def bind(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int, float, float], None]:
        p = self.problem
        likes = (p.x, p.y, p.y)
        points = [_leaves(like, torch.from_numpy(array)) for like, array in zip(likes, inputs)]
        outs = [like.leaves(torch.from_numpy(array)) for like, array in zip(likes, outputs)]
        x, y, z = (like.rebuild(leaves) for like, leaves in zip(likes, points))
        upper, lower = self._sum(p.upper, owned, "upper"), self._sum(p.lower, owned, "lower")
        all_leaves = [leaf for leaves in points for leaf in leaves]
        nx, ny = len(points[0]), len(points[1])

        together = self.stackable(owned)

        def total(k: int, f: float, g: float) -> Any:
            val = self.batch(p.val, 0, owned, k) if together else None
            train = self.batch(p.train, 1, owned, k) if together else None
            return f * upper((x, y), val, k) + g * (lower((x, y), train, k) - lower((x, z), train, k))

        def directions(k: int, f: float, g: float) -> None:
            try:
                with torch.enable_grad():
                    value = total(k, f, g)
                    if not value.requires_grad:
                        raise ValueError(
                            "neither loss depends on x or y: was a gradient cut off by detach()?"
                        )
                    gradients = torch.autograd.grad(value, all_leaves, allow_unused=True)
            except Exception as error:
                self.locate(error, k, owned, lambda agent: self._try(agent, k))
                raise
            _write(gradients[:nx], outs[0])
            _write(gradients[nx : nx + ny], outs[1])
            # L falls in z where g does: dz = −∂/∂z.
            _write(gradients[nx + ny :], outs[2], negative=True)

        return directions

    def _try(self, agent: int, k: int) -> None:
        p = self.problem
        x = torch.from_numpy(np.array(p.x0[agent if p.private else 0], dtype=p.dtype))
        y = torch.from_numpy(np.array(p.y0, dtype=p.dtype))
        _loss(p.upper(p.x.tree(x), p.y.tree(y), self.samples(0, agent, k)), "upper", ())
        _loss(p.lower(p.x.tree(x), p.y.tree(y), self.samples(1, agent, k)), "lower", ())

    def gradients(self, level: int, agent: int, k: int, x: Any, y: Any) -> Any:
        p = self.problem
        function, what = (p.lower, "lower") if level else (p.upper, "upper")
        try:
            with torch.enable_grad():
                xs, ys = _leaves(p.x, torch.from_numpy(x)), _leaves(p.y, torch.from_numpy(y))
                value = function(p.x.rebuild(xs), p.y.rebuild(ys), self.samples(level, agent, k))
                value = _loss(value, what, ())
                gradients = torch.autograd.grad(value, [*xs, *ys], allow_unused=True)
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise
        return _flat(gradients[: len(xs)], xs), _flat(gradients[len(xs) :], ys)

    def products(self, agent: int, k: int, x: Any, y: Any, v: Any) -> Any:
        p = self.problem
        data = self.samples(1, agent, k)

        def lower(xs: Any, ys: Any) -> Any:
            return p.lower(p.x.tree(xs), p.y.tree(ys), data)

        tensors = [torch.from_numpy(array) for array in (x, y, v)]
        try:
            try:
                pair = self._forward(lower, *tensors)
            except (NotImplementedError, RuntimeError):
                # Some functions have no forward derivative; twice backwards gives the same products.
                pair = self._twice(lower, *tensors)
        except Exception as error:
            error.add_note(f"dibo: iteration {k}, agent {agent}")
            raise
        return tuple(part.detach().contiguous().numpy() for part in pair)

    @staticmethod
    def _forward(lower: Callable[..., Any], x: Any, y: Any, v: Any) -> Any:
        gradient = torch.func.grad(lower, argnums=(0, 1))
        return torch.func.jvp(lambda y: gradient(x, y), (y,), (v,))[1]

    @staticmethod
    def _twice(lower: Callable[..., Any], x: Any, y: Any, v: Any) -> Any:
        with torch.enable_grad():
            x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(lower(x, y), [y], create_graph=True)
            pair = torch.autograd.grad(gradient @ v, [x, y], allow_unused=True)
        return [torch.zeros_like(at) if part is None else part for part, at in zip(pair, (x, y))]

    def bind_single(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int], None]:
        p, self.alone = self.problem, True
        like = p.y if p.single_of == "y" else p.x
        points = _leaves(like, torch.from_numpy(inputs[0]))
        outs = like.leaves(torch.from_numpy(outputs[0]))
        loss, tree = self._sum(p.single, owned, "single"), like.rebuild(points)
        together = self.stackable(owned)

        def gradient(k: int) -> None:
            try:
                with torch.enable_grad():
                    batch = self.batch(p.train, 1, owned, k) if together else None
                    gradients = torch.autograd.grad(loss((tree,), batch, k), points, allow_unused=True)
            except Exception as error:
                error.add_note(f"dibo: iteration {k}, all agents together")
                raise
            _write(gradients, outs)

        return gradient

    def upper_loss(self, agent: int, x: Any, y: Any) -> float:
        p = self.problem
        with torch.no_grad():
            at = p.x.tree(torch.from_numpy(x)), p.y.tree(torch.from_numpy(y))
            return float(_loss(p.upper(*at, self.whole(p.val, agent)), "upper", ()))


def _flat(gradients: Sequence[Any], like: Sequence[Any]) -> Any:
    parts = [torch.zeros_like(at) if part is None else part for part, at in zip(gradients, like)]
    return torch.cat([part.reshape(-1) for part in parts]).contiguous().numpy() if parts else np.zeros(0)


def oracle(problem: Any) -> TorchOracle:
    return TorchOracle(problem)
