"""The extension module."""

from typing import Any, Callable, Sequence

import numpy as np

Array = np.ndarray[Any, Any]

__version__: str
experiments: bool
net: bool
cuda: bool
cpu: str

def algorithms() -> list[tuple[str, str]]: ...
def batch(seed: int, agents: list[int], k: int, counts: list[int], size: int) -> Array: ...
def check(name: str, parameters: str) -> None: ...
def describe(name: str, parameters: str) -> tuple[str, str]: ...
def edges(description: str, k: int) -> list[tuple[int, int]]: ...
def weights(description: str, k: int) -> tuple[Array, Array]: ...
def command(
    arguments: list[str], say: Callable[[str], Any], oracle: Callable[[], Any] | None = None
) -> int: ...
def draw(figure: str, manifest: str, metrics: list[str], rows: Sequence[tuple[Any, ...]]) -> str: ...
def solve(
    problem: Any,
    algorithm: str,
    parameters: str,
    graph: str,
    *,
    iterations: int,
    every: int,
    target: tuple[str, float] | None = None,
    diverged_above: float = 1e3,
    threads: int = 1,
    start_x: Array | None = None,
    start_y: Array | None = None,
    progress: Callable[[int], Any] | None = None,
    single: bool = False,
    device: int | None = None,
) -> dict[str, Any]: ...
def gpu(ordinal: int) -> str: ...
def certificates(folder: str, hosts: list[tuple[str, list[tuple[int, int]]]], days: int) -> list[str]: ...
def agent(
    problem: Any,
    algorithm: str,
    parameters: str,
    graph: str,
    *,
    own: list[int],
    listen: list[str],
    connect: list[str],
    tls: tuple[str, str] | None,
    insecure: bool,
    network: str,
    digest: bytes,
    patience: float,
    iterations: int,
    every: int,
    threads: int = 1,
    single: bool = False,
) -> dict[str, Any]: ...

class Lender: ...

class DeviceArray:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class Network:
    def __init__(
        self, graph: str, iterations: int, frozen_weights: bool = False, running_sums: bool = False
    ) -> None: ...
    @property
    def agents(self) -> int: ...
    @property
    def traffic(self) -> tuple[int, int, int]: ...
    def round(self, k: int, pull: list[Array], push: list[Array]) -> tuple[list[Array], list[Array]]: ...

class Builtin:
    @staticmethod
    def policy_evaluation(agents: int, states: int, features: int, seed: int) -> Builtin: ...
    @staticmethod
    def quadratic(agents: int, upper: int, lower: int, seed: int) -> Builtin: ...
    @staticmethod
    def robust(agents: int, upper: int, lower: int, seed: int) -> Builtin: ...
    @staticmethod
    def idle(agents: int, upper: int, lower: int) -> Builtin: ...
    @property
    def agents(self) -> int: ...
    @property
    def upper(self) -> list[int]: ...
    @property
    def lower(self) -> int: ...
    @property
    def measures(self) -> list[tuple[str, str]]: ...
    def gradients(self, level: int, agent: int, k: int, x: Array, y: Array) -> tuple[Array, Array]: ...
    def metrics(self, x: Array, y: Array | None = None) -> list[tuple[str, float]]: ...
