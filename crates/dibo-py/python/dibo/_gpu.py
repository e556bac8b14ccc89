"""What PyTorch and JAX share on a GPU: how arrays lie there, the libraries dibo needs, and the words where it
cannot be used. NumPy's words are here, too."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any, NoReturn, Sequence

import numpy as np

from . import _core

#: Where arrays begin in a row, in numbers: products are slow on arrays that begin anywhere.
ALIGNED = 16


def no_device(device: Any) -> ValueError:
    return ValueError(f"device is {device!r}; it must be 'cpu', 'cuda' or such as 'cuda:1'")


def missing(why: str) -> RuntimeError:
    return RuntimeError(f"no GPU can be used: {why}; give device='cpu' to run on the processor")


def processor(device: Any, whose: str) -> str:
    """The processor; all else is refused for functions of `whose`."""
    if str(device) != "cpu":
        raise TypeError(
            f"device is {device!r}, which needs losses in PyTorch or JAX; {whose}'s run on the processor: "
            "give device='cpu'"
        )
    return "cpu"


def opened(index: int, *libraries: str) -> str:
    """The GPU with this number by its full name, after it was opened; `libraries` are looked for beside the
    framework."""
    for library in libraries if _core.cuda else ():
        _find(library)
    _core.gpu(index)
    return f"cuda:{index}"


def _find(library: str) -> None:
    """Frameworks bring CUDA's libraries along but load some of them late; dibo looks for those that are
    loaded, or on the library path."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob(f"*/lib/lib{library}.so.*")):
            try:
                ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
                return
            except OSError:
                continue


def not_finite(name: str, values: np.ndarray[Any, Any], owned: Sequence[int]) -> NoReturn:
    """Says whose first direction is not finite: `values` of a variable, one row an agent."""
    rows = values.reshape(len(owned), -1)
    bad = ~np.isfinite(rows)
    row = int(bad.any(1).argmax())
    value = float(rows[row][bad[row]][0])
    raise ValueError(
        f"the direction of {name} of agent {owned[row]} holds {value} at iteration 0, where every run starts"
    )
