"""The agents' data: one tree of arrays an agent, or trees stacked over agents; batches by (seed, agent,
k)."""

from __future__ import annotations

import copy
from typing import Any, Callable, Sequence

import numpy as np

from . import _core
from ._tree import flatten


def as_tree(item: Any) -> Any:
    """One agent's data as a tree of arrays: trees stay, data sets and loaders are read once."""
    if hasattr(item, "with_format"):  # a Hugging Face data set
        return dict(item.with_format("numpy")[:])
    kind = type(item).__module__.split(".")[0]
    if kind == "torch" and hasattr(item, "dataset"):  # a DataLoader, whose own batches are not wanted
        item = item.dataset
    if kind == "torch" and hasattr(item, "tensors"):  # a TensorDataset
        return tuple(item.tensors)
    if (
        kind == "torch"
        and hasattr(item, "__getitem__")
        and hasattr(item, "__len__")
        and not hasattr(item, "dtype")
    ):
        rows = [flatten(item[i]) for i in range(len(item))]
        leaves = [np.stack([np.asarray(row[0][j]) for row in rows]) for j in range(len(rows[0][0]))]
        return rows[0][1](leaves)
    return item


class Data:
    """All agents' samples, one after the other, so that agents may have different numbers of them.

    ``join`` makes one array of the framework's of the agents' arrays, ``take`` reads places of it.
    """

    def __init__(
        self,
        given: Any,
        agents: int | None,
        join: Callable[[Sequence[Any]], Any],
        name: str,
    ) -> None:
        self.empty = given is None
        self.agents = agents
        if given is None:
            return
        if isinstance(given, list):
            parts = [None if item is None else as_tree(item) for item in given]
        else:
            parts = _unstack(as_tree(given), name)
        if agents is not None and len(parts) != agents:
            raise ValueError(f"{name} has data of {len(parts)} agents; there are {agents}")
        self.agents = len(parts)
        some = next((part for part in parts if part is not None), None)
        if some is None:
            raise ValueError(f"{name} has no agent's data")
        leaves, self.rebuild = flatten(some)
        if not leaves:
            raise ValueError(f"{name} has no arrays")
        columns: list[list[Any]] = [[] for _ in leaves]
        counts = []
        for agent, part in enumerate(parts):
            own = [] if part is None else flatten(part)[0]
            if part is not None and len(own) != len(leaves):
                raise ValueError(
                    f"{name} of agent {agent} has {len(own)} arrays; the first has {len(leaves)}"
                )
            lengths = {len(leaf) for leaf in own}
            if len(lengths) > 1:
                raise ValueError(f"{name} of agent {agent}: arrays have {sorted(lengths)} samples")
            if part is not None and lengths == {0}:
                raise ValueError(f"{name} of agent {agent} has no sample")
            counts.append(lengths.pop() if lengths else 0)
            for column, leaf in zip(columns, own):
                column.append(leaf)
        self.leaves = [join(column) for column in columns]
        self.counts = np.array(counts, dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64)

    def on(self, move: Callable[[Any], Any]) -> Data:
        """The same samples after each array was moved; an array that stays is not copied."""
        if self.empty:
            return self
        other = copy.copy(self)
        other.leaves = [move(leaf) for leaf in self.leaves]
        return other

    def regular(self, owned: Sequence[int]) -> bool:
        """Whether these agents have as many samples each, so that they can be stacked."""
        return self.empty or len({int(self.counts[agent]) for agent in owned}) == 1

    def places(self, seed: int, owned: Sequence[int], k: int, size: int | None) -> np.ndarray[Any, Any]:
        """Where the samples of iteration k lie, (agents, samples)."""
        starts = self.starts[list(owned)][:, None]
        if size is None:
            return starts + np.arange(self.counts[owned[0]])[None, :]
        counts = [int(self.counts[agent]) for agent in owned]
        drawn = _core.batch(seed, list(owned), k, counts, size)
        return starts + drawn.reshape(len(owned), size)


def _unstack(tree: Any, name: str) -> list[Any]:
    leaves, rebuild = flatten(tree)
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1:
        raise ValueError(
            f"{name}: give a list with a tree of arrays for each agent, or one tree of arrays whose first "
            f"axis is the agent (these have lengths {sorted(lengths)})"
        )
    return [rebuild([leaf[i] for leaf in leaves]) for i in range(lengths.pop())]
