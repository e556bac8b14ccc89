"""Algorithms as objects: a name and keyword parameters, checked when they are made."""

from __future__ import annotations

import json
from typing import Any, Mapping, Union

from . import _core

#: A number, or one that changes with k: ``{"start": 0.1, "decay": 1e-3}`` for start / (1 + decay k),
#: ``{"start": 1, "power": 0.3}`` for start (k + 1)^power, ``{"start": 1, "end": 0.1, "over": 500}`` for a
#: line.
Schedule = Union[float, Mapping[str, float]]


class Algorithm:
    """An algorithm by its name in experiment files, with its parameters.

    >>> Algorithm("push-pull", eta=0.1)
    Algorithm('push-pull', eta=0.1)
    >>> FAB(lam=20, eta=0.05)
    FAB(lam=20, eta_x=0.05, eta_y=0.05)
    >>> FAB(lam=-1, eta=0.05)
    Traceback (most recent call last):
        ...
    ValueError: FAB: lambda is -1; it must be a finite number above 0
    """

    #: Its name in experiment files.
    name: str = ""

    def __init__(self, name: str, **parameters: Any) -> None:
        self.name = name
        self._set(parameters)

    def _set(self, parameters: Mapping[str, Any]) -> None:
        named = {"lambda" if key == "lam" else key: value for key, value in parameters.items()}
        self.parameters = {key: _plain(value) for key, value in named.items() if value is not None}
        try:
            _core.check(self.name, json.dumps(self.parameters))
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from None

    @property
    def json(self) -> str:
        """Its parameters as experiment files have them."""
        return json.dumps(self.parameters)

    @property
    def needs(self) -> str:
        """What it asks of a problem, in words."""
        return _core.describe(self.name, self.json)[0]

    def __repr__(self) -> str:
        shown = [f"{'lam' if key == 'lambda' else key}={value!r}" for key, value in self.parameters.items()]
        first = [repr(self.name)] if type(self) is Algorithm else []
        return f"{type(self).__name__}({', '.join(first + shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Algorithm):
            return False
        return self.name == other.name and self.parameters == other.parameters

    def __hash__(self) -> int:
        return hash((self.name, self.json))


def _plain(value: Any) -> Any:
    """Numbers of NumPy's as Python's, which JSON knows."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value.item() if hasattr(value, "item") else value


class _Penalty(Algorithm):
    """``lam`` is the penalty λ; ``eta`` gives all steps at once. ``normalised`` divides directions by λ."""

    def __init__(
        self,
        lam: Schedule = 60.0,
        eta: Schedule | None = None,
        *,
        eta_x: Schedule | None = None,
        eta_y: Schedule | None = None,
        eta_z: Schedule | None = None,
        normalised: bool = False,
    ) -> None:
        eta_x, eta_y = eta if eta_x is None else eta_x, eta if eta_y is None else eta_y
        if eta_x is None or eta_y is None:
            raise TypeError(f"{type(self).__name__}: give eta, or eta_x and eta_y")
        form = "normalised" if normalised else None
        self._set({"lambda": lam, "eta_x": eta_x, "eta_y": eta_y, "eta_z": eta_z, "penalty_form": form})

    def __repr__(self) -> str:
        return super().__repr__().replace("penalty_form='normalised'", "normalised=True")


class FAB(_Penalty):
    """FAB: AB/Push-Pull on the penalty function; gradients only, one loop."""

    name = "fab"


class CentralizedFAB(_Penalty):
    """FAB with all gradients averaged in one place; no link is used."""

    name = "centralized-fab"


class StaticFAB(_Penalty):
    """FAB that keeps the weights of iteration 0 although links come and go."""

    name = "static-fab"


class RunningSumFAB(_Penalty):
    """FAB whose pushed trackers survive lost messages."""

    name = "running-sum-fab"


class PushSumFAB(_Penalty):
    """FAB by push-sum instead of AB/Push-Pull."""

    name = "push-sum-fab"


class PushPullSOBA(Algorithm):
    """SOBA's directions, with second-order products, moved by AB/Push-Pull."""

    name = "push-pull-soba"

    def __init__(self, eta_x: Schedule, eta_y: Schedule, eta_v: Schedule | None = None) -> None:
        self._set({"eta_x": eta_x, "eta_y": eta_y, "eta_v": eta_v})


class _Step(Algorithm):
    def __init__(self, eta: Schedule) -> None:
        self._set({"eta": eta})


class PushPull(_Step):
    """AB/Push-Pull on the single-level objective."""

    name = "push-pull"


class SubgradientPush(_Step):
    """Subgradient-push on the single-level objective."""

    name = "subgradient-push"


class PushSGD(_Step):
    """Push-SGD on the single-level objective."""

    name = "push-sgd"


class PushDIGing(_Step):
    """Push-DIGing on the single-level objective."""

    name = "push-diging"


class PushSAGA(Algorithm):
    """Push-SAGA on the single-level objective."""

    name = "push-saga"

    def __init__(self, eta: Schedule, tracking: bool | None = None) -> None:
        self._set({"eta": eta, "tracking": tracking})


class PushASGD(Algorithm):
    """Push-ASGD, with momentum ``beta``, on the single-level objective."""

    name = "push-asgd"

    def __init__(self, eta: Schedule, beta: float) -> None:
        self._set({"eta": eta, "beta": beta})


class DoubleLoop(Algorithm):
    """A double loop: ``inner`` iterations of a single-level method on y, then one on x along the
    hypergradient. ``method`` is ``"push-pull"``, ``"push-sgd"``, ``"push-saga"`` or ``"push-asgd"``."""

    def __init__(self, method: str, inner: int = 20, **parameters: Any) -> None:
        self.name = f"dl-{method}"
        self._set({"inner": inner, **parameters})

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"({self.name[3:]!r}, ", 1)


def algorithms() -> dict[str, str]:
    """Names of all algorithms in experiment files, with their names in the paper.

    >>> algorithms()["fab"]
    'FAB'
    """
    return dict(_core.algorithms())
