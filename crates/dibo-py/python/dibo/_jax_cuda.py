"""JAX on a GPU: dibo's rows as JAX's arrays without a copy, and directions copied to them there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._gpu import missing, no_device, not_finite, opened
from ._tree import Variable

#: Where a variable lies: which memory, its first column and how many; or, for vectors of different lengths,
#: the first one's memory, None and the lengths.
Cut = tuple[int, Any, Any]


def place(device: Any) -> str:
    """A device by its full name; says in one line what is missing where it cannot be used."""
    name = device
    if isinstance(device, jax.Device) and device.platform in ("cpu", "cuda", "gpu"):
        name = "cpu" if device.platform == "cpu" else f"cuda:{_number(device)}"
    found = re.fullmatch(r"cpu(?::\d+)?|cuda(?::(\d+))?", name) if isinstance(name, str) else None
    if found is None:
        raise no_device(device)
    if name.startswith("cpu"):
        return "cpu"
    own = _gpus() if _core.cuda else {}
    if _core.cuda and not own:
        raise missing("JAX finds none")
    index = int(found[1]) if found[1] else next(iter(own), 0)
    at = opened(index, "nvrtc", "cublasLt", "cublas")
    if index not in own:
        raise missing(f"JAX finds no {at}")
    return at


def _number(device: Any) -> int:
    """The number by which CUDA knows a device of JAX's."""
    number = device.local_hardware_id
    return int(device.id if number is None else number)


def _gpus() -> dict[int, Any]:
    """JAX's GPUs by CUDA's numbers; the one that JAX takes by default is the first."""
    try:
        found = jax.local_devices(backend="cuda")
    except RuntimeError:
        return {}
    default = jax.config.jax_default_device
    return {_number(device): device for device in sorted(found, key=lambda device: device != default)}


def device_of(name: str) -> Any:
    """JAX's own device; None, which is where it likes, for the processor."""
    return None if name == "cpu" else _gpus()[int(name.split(":")[1])]


@dataclass(frozen=True)
class Layout:
    """How variables lie in memory, and so how compiled functions cut it: they hold no memory themselves."""

    cuts: tuple[Cut, ...]
    shapes: tuple[tuple[int, ...], ...]

    def split(self, memory: Sequence[Any]) -> list[Any]:
        """The variables in the memory as JAX sees it, one row an agent; vectors of different lengths are
        filled up with zeros."""
        out = []
        for at, start, width in self.cuts:
            if start is None:
                longest = max(width)
                vectors = [jnp.pad(memory[at + i], (0, longest - size)) for i, size in enumerate(width)]
                out.append(jnp.stack(vectors))
            else:
                out.append(memory[at][:, start : start + width])
        return out

    def join(self, likes: Sequence[Variable], leaves: Sequence[Sequence[Any]]) -> list[Any]:
        """The memory with these arrays of each variable in it, and zeros between them."""
        parts: list[list[tuple[int, Any]]] = [[] for _ in self.shapes]
        for (at, start, width), like, arrays in zip(self.cuts, likes, leaves):
            if start is None:
                for i, size in enumerate(width):
                    parts[at + i].append((0, arrays[0][i, :size]))
                continue
            for begin, size, array in zip(like.starts, like.sizes, arrays):
                parts[at].append((start + begin, array.reshape(array.shape[0], size)))
        return [_filled(shape, own) for shape, own in zip(self.shapes, parts)]


class Lent:
    """Variables of dibo's on a GPU, or their directions. JAX takes no part of a row without a copy, so it
    sees whole rows, with their padding, and compiled functions cut them."""

    def __init__(self, variables: Sequence[Any]) -> None:
        #: Arrays of dibo's with nothing between their numbers.
        self.memory: list[Any] = []
        cuts: list[Cut] = []
        known: dict[int, int] = {}
        for array in variables:
            if isinstance(array, list):
                cuts.append((len(self.memory), None, tuple(vector.shape[0] for vector in array)))
                self.memory += array
                continue
            rows = array.padded()
            at = known.setdefault(rows.address, len(self.memory))
            if at == len(self.memory):
                self.memory.append(rows)
            cuts.append((at, array.column, array.shape[1]))
        self.layout = Layout(tuple(cuts), tuple(tuple(rows.shape) for rows in self.memory))

    def wait(self) -> None:
        """Until dibo's stream has done what it was given: JAX's streams know nothing of it."""
        self.memory[0].wait()

    def seen(self) -> list[Any]:
        """The memory as JAX's arrays, which keep it alive. They are read anew by every function that is
        called with them."""
        out = []
        for memory in self.memory:
            if 0 in memory.shape:
                out.append(jnp.zeros(memory.shape, jnp.float32))
                continue
            array = jax.dlpack.from_dlpack(memory)
            if array.unsafe_buffer_pointer() != memory.address:
                raise missing("this JAX copies rows instead of seeing them where they lie")
            out.append(array)
        return out

    def write(self, given: Sequence[Any]) -> None:
        """Copies what a compiled function gave to the memory, on the GPU. JAX uses the memory of arrays
        again that are let go, so this waits until it was copied."""
        jax.block_until_ready(given)
        for memory, array in zip(self.memory, given):
            want, found = tuple(memory.shape), tuple(array.shape)
            if found != want or array.dtype != jnp.float32:
                raise TypeError(f"directions are {array.dtype} of shape {found}; float32 of {want} is needed")
            if array.size:
                memory.write(array.unsafe_buffer_pointer(), array.nbytes)
        self.wait()

    def check_finite(self, given: Sequence[Any], owned: Sequence[int], names: str) -> None:
        """Says whose first direction is not finite."""
        for name, rows in zip(names, self.layout.split(given)):
            if not bool(jnp.isfinite(rows).all()):
                not_finite(name, np.asarray(rows), owned)


def _filled(shape: tuple[int, ...], parts: list[tuple[int, Any]]) -> Any:
    """Arrays at their places along the last axis, and zeros between."""
    pieces, at = [], 0
    for start, array in [*sorted(parts, key=lambda part: part[0]), (shape[-1], None)]:
        if start > at:
            pieces.append(jnp.zeros((*shape[:-1], start - at), jnp.float32))
        if array is not None:
            pieces.append(array)
            at = start + array.shape[-1]
    return jnp.concatenate(pieces, axis=-1) if pieces else jnp.zeros(shape, jnp.float32)


def copies(variables: dict[str, Any]) -> dict[str, Any]:
    """Variables of dibo's as arrays of JAX's own, one row an agent, made when dibo's stream is done and
    ready when this returns."""
    if not variables:
        return {}
    lent = Lent(list(variables.values()))
    lent.wait()
    # Of rows that are one whole array, a cut would be that array itself.
    rows = [jnp.copy(array) for array in lent.layout.split(lent.seen())]
    return dict(zip(variables, jax.block_until_ready(rows)))
