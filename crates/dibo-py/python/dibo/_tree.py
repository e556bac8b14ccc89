"""Variables as users write them (an array, or dicts, lists and tuples of arrays) and as vectors."""

from __future__ import annotations

import copy
import math
from typing import Any, Callable, Sequence

import numpy as np

Shape = tuple[int, ...]


def flatten(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The arrays of a tree in order, and a function that makes such a tree of other arrays.

    >>> leaves, rebuild = flatten({"a": 1, "b": [2, 3]})
    >>> leaves, rebuild([10, 20, 30])
    ([1, 2, 3], {'a': 10, 'b': [20, 30]})
    """
    if isinstance(tree, dict):
        keys = list(tree)
        parts = [flatten(tree[key]) for key in keys]

        def of_dict(leaves: Sequence[Any]) -> Any:
            return dict(zip(keys, _cut(parts, leaves)))

        return [leaf for part, _ in parts for leaf in part], of_dict
    if isinstance(tree, (list, tuple)):
        kind = type(tree)
        parts = [flatten(item) for item in tree]

        def of_list(leaves: Sequence[Any]) -> Any:
            items = _cut(parts, leaves)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)

        return [leaf for part, _ in parts for leaf in part], of_list
    if tree is None:
        return [], lambda leaves: None
    return [tree], lambda leaves: leaves[0]


def _cut(parts: list[Any], leaves: Sequence[Any]) -> list[Any]:
    out, at = [], 0
    for part, rebuild in parts:
        out.append(rebuild(leaves[at : at + len(part)]))
        at += len(part)
    return out


class Variable:
    """How a user's variable lies in a vector: shapes of its arrays, and where each begins."""

    def __init__(self, tree: Any, shapes: Sequence[Shape]) -> None:
        _, self.rebuild = flatten(tree)
        self.shapes = [tuple(int(size) for size in shape) for shape in shapes]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self._lay(1)
        #: Whether it is one array by itself.
        self.plain = not isinstance(tree, (dict, list, tuple))

    def _lay(self, multiple: int) -> None:
        rooms = [-(-size // multiple) * multiple for size in self.sizes]
        self.starts = [sum(rooms[:i]) for i in range(len(rooms))]
        self.width = sum(rooms)

    def aligned(self, multiple: int) -> Variable:
        """The same variable with each array beginning at a multiple of so many numbers; zeros lie between."""
        other = copy.copy(self)
        other._lay(multiple)
        return other

    def spread(self, rows: Any) -> Any:
        """NumPy's rows (agents, numbers) or a vector, array after array, as this variable lies."""
        to, at = np.zeros((*rows.shape[:-1], self.width), dtype=rows.dtype), 0
        for size, start in zip(self.sizes, self.starts):
            to[..., start : start + size] = rows[..., at : at + size]
            at += size
        return to

    def pieces(self, rows: Any) -> list[Any]:
        """The fewest parts of rows that hold this variable, array after array, with nothing between."""
        cuts: list[list[int]] = []
        for size, start in zip(self.sizes, self.starts):
            if cuts and cuts[-1][1] == start:
                cuts[-1][1] += size
            else:
                cuts.append([start, start + size])
        return [rows[..., start:end] for start, end in cuts]

    def leaves(self, rows: Any) -> list[Any]:
        """Views of the arrays in rows (agents, width), or in one vector (width,)."""
        lead = tuple(rows.shape[:-1])
        if len(self.shapes) == 1 and len(self.shapes[0]) == 1 and self.sizes[0] == self.width:
            return [rows]
        out = []
        for shape, size, start in zip(self.shapes, self.sizes, self.starts):
            out.append(rows[..., start : start + size].reshape(lead + shape))
        return out

    def tree(self, rows: Any) -> Any:
        """The user's variable with views into rows or a vector."""
        return self.rebuild(self.leaves(rows))
