"""Losses in PyTorch: one backward pass an iteration for all agents, over leaves that are views of dibo's
rows."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Sequence

import numpy as np
import torch

from . import _problem
from ._cuda import Padded, check_finite, place, stream, tensor
from ._gpu import ALIGNED
from ._tree import Variable, flatten

__all__ = ["ALIGNED", "place"]

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
    return np.dtype(np.float32 if kinds == {torch.float32} else np.float64)


def device(leaves: Sequence[Any]) -> str:
    """Where x and y lie, and so where a problem runs unless a run says otherwise."""
    devices = {str(leaf.device) for leaf in leaves}
    if len(devices) != 1 or not devices.pop().startswith(("cpu", "cuda")):
        found = ", ".join(sorted({str(leaf.device) for leaf in leaves}))
        raise TypeError(f"x and y lie on {found}; all must lie on the processor, or all on one GPU")
    return str(leaves[0].device)


def mover(device: str) -> Callable[[Any], Any]:
    """Moves an array of data to a device; one that lies there stays."""
    return lambda leaf: leaf.to(device)


def vector(leaves: Sequence[Any]) -> Any:
    if not leaves:
        return np.zeros(0)
    return torch.cat([leaf.reshape(-1) for leaf in leaves]).double().cpu().numpy()


def join(parts: Sequence[Any]) -> Any:
    return torch.cat([torch.as_tensor(part) for part in parts])


def take(leaf: Any, places: Any) -> Any:
    index = places if isinstance(places, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(places))
    return leaf.index_select(0, index.reshape(-1)).reshape(tuple(places.shape) + tuple(leaf.shape[1:]))


def shown(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([_tensor(leaf) for leaf in leaves])


def _tensor(array: Any) -> Any:
    return array if isinstance(array, torch.Tensor) else torch.as_tensor(np.ascontiguousarray(array))


def lent(problem: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """The rows of a run on a GPU as tensors there, without what lies between arrays."""
    out = {}
    for name, array in variables.items():
        rows = array if isinstance(array, np.ndarray) else tensor(array, problem.device)
        alone = "y" not in variables and problem.single_of == "y"
        like = problem.x if name.endswith("x") and not alone else problem.y
        if isinstance(rows, torch.Tensor) and rows.shape[-1] == like.width:
            pieces = like.pieces(rows)
            rows = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
        out[name] = rows
    return out


def mean(rows: Any) -> Any:
    """The mean over agents, summed in double precision."""
    return rows.mean(0, dtype=torch.float64).to(rows.dtype)


def _leaves(like: Variable, rows: Any) -> list[Any]:
    """Leaves that autograd knows, one for each array: views, so that nothing is copied and no gradient
    padded."""
    return [leaf.detach().requires_grad_() for leaf in like.leaves(rows)]


def _loss(value: Any, what: str, shape: tuple[int, ...], device: str = "cpu") -> Any:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{what} must give a tensor with one number, not {type(value).__name__}")
    if str(value.device) != device:
        right = "the processor" if device == "cpu" else device
        raise TypeError(f"{what} gives a tensor on {value.device}; it must lie on {right}")
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
    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.device: str = problem.device
        self.on_gpu = self.device != "cpu"
        if self.on_gpu and getattr(problem, "compile", False):
            raise ValueError("compile=True is for the processor; leave it away on a GPU")
        if self.on_gpu:
            # What was begun in other streams, such as data on its way, is there when dibo's stream reads it.
            torch.cuda.synchronize(self.device)

    def has_loss(self) -> bool:
        return True

    def has_products(self) -> bool:
        return True

    def _loss(self, value: Any, what: str, shape: tuple[int, ...] = ()) -> Any:
        return _loss(value, what, shape, self.device)

    def index(self, places: Any) -> Any:
        # Without waiting: what is read from is small and taken at once.
        index = torch.from_numpy(np.ascontiguousarray(places))
        return index.to(self.device, non_blocking=True) if self.on_gpu else index

    def _seen(self, array: Any) -> Any:
        return tensor(array, self.device) if self.on_gpu else torch.from_numpy(array)

    def _order(self, arrays: Any) -> Callable[[], Any]:
        """Contexts whose work is done in the stream of these arrays, so that nothing waits for anything."""
        if not self.on_gpu:
            return contextlib.nullcontext
        own = stream(arrays, self.device)
        return lambda: torch.cuda.stream(own)

    def _ordered(self, arrays: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that works in the stream of these arrays."""
        if not self.on_gpu:
            return function
        order = self._order(arrays)

        def within(*arguments: Any) -> Any:
            with order():
                return function(*arguments)

        return within

    def _private(self, call: Callable[..., Any], *pads: Padded) -> Callable[..., Any]:
        """A function on private rows of different lengths: filled up before it, cut after it."""
        points, directions = pads

        def copied(*arguments: Any) -> None:
            points.copy_in()
            call(*arguments)
            directions.copy_out()

        return copied

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
                return self._loss(values, what, (count,)).sum()

            return stacked

        which = 0 if what == "upper" else 1

        def one_by_one(arguments: Sequence[Any], batch: Any, k: int) -> Any:
            total = 0.0
            for row, agent in enumerate(owned):
                own = []
                for tree in arguments:
                    leaves, rebuild = flatten(tree)
                    own.append(rebuild([leaf[row] for leaf in leaves]))
                total = total + self._loss(function(*own, self.samples(which, agent, k)), what)
            return total

        return one_by_one

    def bind(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], rows: Any
    ) -> Callable[[int, float, float], None]:
        ins, outs = [self._seen(array) for array in inputs], [self._seen(array) for array in outputs]
        pads = []
        if isinstance(ins[0], list):
            with self._order(inputs)():
                pads = [Padded(ins[0], self.device), Padded(outs[0], self.device)]
            ins[0], outs[0] = (pad.rows for pad in pads)
        pair = self._pair(owned, rows)
        call = self._apart(owned, ins, outs) if pair is None else self._twins(owned, ins, outs, *pair)

        def directions(k: int, f: float, g: float) -> None:
            try:
                with torch.enable_grad():
                    call(k, f, g)
            except Exception as error:
                self.locate(error, k, owned, lambda agent: self._try(agent, k))
                raise
            if k == 0 and self.on_gpu:
                p = self.problem
                leaves = [like.leaves(out) for like, out in zip((p.x, p.y, p.y), outs)]
                check_finite(leaves, owned, "xyz")

        return self._ordered(inputs, self._private(directions, *pads) if pads else directions)

    def _gradients(self, value: Any, leaves: Sequence[Any]) -> Any:
        if not value.requires_grad:
            raise ValueError("neither loss depends on x or y: was a gradient cut off by detach()?")
        return torch.autograd.grad(value, leaves, allow_unused=True)

    def _apart(self, owned: Sequence[int], inputs: list[Any], outputs: list[Any]) -> Callable[..., None]:
        """Directions from three sums of losses: upper at y, lower at y and at z."""
        p = self.problem
        likes = (p.x, p.y, p.y)
        points = [_leaves(like, array) for like, array in zip(likes, inputs)]
        outs = [like.leaves(array) for like, array in zip(likes, outputs)]
        x, y, z = (like.rebuild(leaves) for like, leaves in zip(likes, points))
        upper, lower = self._sum(p.upper, owned, "upper"), self._sum(p.lower, owned, "lower")
        all_leaves = [leaf for leaves in points for leaf in leaves]
        nx, ny = len(points[0]), len(points[1])
        together = self.stackable(owned)

        def directions(k: int, f: float, g: float) -> None:
            val = self.batch(p.val, 0, owned, k) if together else None
            train = self.batch(p.train, 1, owned, k) if together else None
            value = f * upper((x, y), val, k) + g * (lower((x, y), train, k) - lower((x, z), train, k))
            gradients = self._gradients(value, all_leaves)
            _write(gradients[:nx], outs[0])
            _write(gradients[nx : nx + ny], outs[1])
            # L falls in z where g does: dz = −∂/∂z.
            _write(gradients[nx + ny :], outs[2], negative=True)

        return self._compiled(owned, points, outs, directions) if p.compile and together else directions

    def _compiled(
        self, owned: Sequence[int], points: list[Any], outs: list[Any], plain: Callable[..., None]
    ) -> Callable[..., None]:
        """The same by one function that `torch.compile` makes, once for all runs of a problem: products stay
        as they are, what lies between them is done in fewer passes."""
        p = self.problem
        known = p.__dict__.setdefault("_compiled", {})
        if tuple(owned) not in known:
            upper, lower = self._sum(p.upper, owned, "upper"), self._sum(p.lower, owned, "lower")

            def value(xs: Any, ys: Any, zs: Any, val: Any, train: Any, f: Any, g: Any) -> Any:
                x, y, z = p.x.rebuild(xs), p.y.rebuild(ys), p.y.rebuild(zs)
                return f * upper((x, y), val, 0) + g * (lower((x, y), train, 0) - lower((x, z), train, 0))

            gradients = torch.func.grad(value, argnums=(0, 1, 2))
            known[tuple(owned)] = torch.compile(gradients, dynamic=False)
        compiled = known[tuple(owned)]
        here = [[leaf.detach() for leaf in leaves] for leaves in points]
        tried: list[int] = []

        def directions(k: int, f: float, g: float) -> None:
            if not tried:
                # A loss that cannot be differentiated is told in plain words before it is compiled.
                plain(k, f, g)
                tried.append(k)
            val, train = self.batch(p.val, 0, owned, k), self.batch(p.train, 1, owned, k)
            # As tensors: a number would be compiled in, and a schedule compile again and again.
            weights = [torch.tensor(weight, dtype=here[1][0].dtype) for weight in (f, g)]
            with torch.no_grad():
                dx, dy, dz = compiled(*here, val, train, *weights)
            for gradients, out, negative in zip((dx, dy, dz), outs, (False, False, True)):
                _write(gradients, out, negative)

        return directions

    def _pair(self, owned: Sequence[int], rows: Any) -> Any:
        """y and z of all agents as rows of one matrix, and their directions, where they lie so: on a GPU,
        with a private x."""
        p = self.problem
        batched = p.batch[1] is not None or p.train.empty
        if not (self.on_gpu and p.private and batched and self.stackable(owned)) or rows[0] is None:
            return None
        points, directions = (self._seen(array) for array in rows)
        shape = (2 * len(owned), p.y.width)
        lie_so = points.is_contiguous() and points.numel() == shape[0] * shape[1]
        return (points.view(shape), directions.view(shape)) if lie_so else None

    def _twins(
        self, owned: Sequence[int], inputs: list[Any], outputs: list[Any], points: Any, directions: Any
    ) -> Callable[..., None]:
        """Directions from two sums of losses: upper at y, and lower at y and z at once. Half the kernels are
        started, which is what small models wait for."""
        p = self.problem
        xs, ys, pair = _leaves(p.x, inputs[0]), _leaves(p.y, inputs[1]), _leaves(p.y, points)
        dx, dy, both = p.x.leaves(outputs[0]), p.y.leaves(outputs[1]), p.y.leaves(directions)
        x, y, yz = p.x.rebuild(xs), p.y.rebuild(ys), p.y.rebuild(pair)
        twice = [agent for agent in owned for _ in "yz"]
        upper, lower = self._sum(p.upper, owned, "upper"), self._sum(p.lower, twice, "lower")
        nx, ny = len(xs), len(ys)

        def call(k: int, f: float, g: float) -> None:
            # At z, x has the same value and the opposite gradient: dx has g(x, y) − g(x, z), dz is g's own.
            of_both = [torch.stack([leaf, 2 * leaf.detach() - leaf], 1).flatten(0, 1) for leaf in xs]
            val, train = self.batch(p.val, 0, owned, k), self.batch(p.train, 1, twice, k)
            value = f * upper((x, y), val, k) + g * lower((p.x.rebuild(of_both), yz), train, k)
            gradients = self._gradients(value, [*xs, *ys, *pair])
            _write(gradients[:nx], dx)
            _write(gradients[nx + ny :], both)
            for gradient, out in zip(gradients[nx : nx + ny], dy):
                if gradient is not None:
                    out.add_(gradient)

        return call

    def _try(self, agent: int, k: int) -> None:
        p = self.problem
        x = torch.from_numpy(np.array(p.x0[agent if p.private else 0], dtype=p.dtype)).to(self.device)
        y = torch.from_numpy(np.array(p.y0, dtype=p.dtype)).to(self.device)
        self._loss(p.upper(p.x.tree(x), p.y.tree(y), self.samples(0, agent, k)), "upper")
        self._loss(p.lower(p.x.tree(x), p.y.tree(y), self.samples(1, agent, k)), "lower")

    def gradients(self, level: int, agent: int, k: int, x: Any, y: Any) -> Any:
        p = self.problem
        function, what = (p.lower, "lower") if level else (p.upper, "upper")
        try:
            with torch.enable_grad():
                xs, ys = _leaves(p.x, torch.from_numpy(x)), _leaves(p.y, torch.from_numpy(y))
                value = function(p.x.rebuild(xs), p.y.rebuild(ys), self.samples(level, agent, k))
                value = self._loss(value, what)
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
        p = self.problem
        like = p.y if p.single_of == "y" else p.x
        points = _leaves(like, self._seen(inputs[0]))
        outs = like.leaves(self._seen(outputs[0]))
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
            if k == 0 and self.on_gpu:
                check_finite([outs], owned, "x")

        return self._ordered(inputs, gradient)

    def _point(self, agents: Sequence[int], variables: dict[str, Any]) -> tuple[Any, Any]:
        x, y = super()._point(agents, variables)
        return (_tensor(x).to(self.device), y) if self.on_gpu else (x, y)

    def _tensors(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Variables as matrices where they lie; private ones of different lengths are filled up."""
        seen = {name: tensor(array, self.device) for name, array in variables.items()}
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            name: pad(rows, batch_first=True) if isinstance(rows, list) else rows
            for name, rows in seen.items()
        }

    def losses(self, agents: Sequence[int], variables: dict[str, Any]) -> list[float]:
        with self._order(variables.values())():
            return super().losses(agents, self._tensors(variables) if self.on_gpu else variables)

    def evaluate(self, variables: dict[str, Any]) -> list[tuple[str, float]]:
        with self._order(variables.values())():
            return super().evaluate(self._tensors(variables) if self.on_gpu else variables)

    def upper_loss(self, agent: int, x: Any, y: Any) -> float:
        p = self.problem
        with torch.no_grad():
            at = p.x.tree(_tensor(x)), p.y.tree(_tensor(y))
            return float(self._loss(p.upper(*at, self.whole(p.val, agent)), "upper"))


def _flat(gradients: Sequence[Any], like: Sequence[Any]) -> Any:
    parts = [torch.zeros_like(at) if part is None else part for part, at in zip(gradients, like)]
    return torch.cat([part.reshape(-1) for part in parts]).contiguous().numpy() if parts else np.zeros(0)


def oracle(problem: Any) -> TorchOracle:
    return TorchOracle(problem)
