"""PyTorch on a GPU: dibo's rows as tensors without a copy, in the order of dibo's stream."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from . import _core
from ._gpu import missing, no_device, not_finite, opened


def place(device: Any) -> str:
    """A device by its full name; says in one line what is missing where it cannot be used."""
    try:
        at = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise no_device(device) from error
    if at.type == "cpu":
        return "cpu"
    if at.type != "cuda":
        raise no_device(device)
    if _core.cuda and not torch.cuda.is_available():
        raise missing("PyTorch finds none")
    index = 0 if not _core.cuda else torch.cuda.current_device() if at.index is None else at.index
    # The compiler of kernels is what PyTorch loads late.
    return opened(index, "nvrtc")


def tensor(array: Any, device: str) -> Any:
    """An array of dibo's as a tensor that shares its memory; private rows of different lengths are a list of
    vectors."""
    if isinstance(array, list):
        return [tensor(vector, device) for vector in array]
    return array if isinstance(array, torch.Tensor) else torch.as_tensor(array, device=device)


def stream(arrays: Any, device: str) -> Any:
    """The stream in whose order these arrays are written and read, as a context; PyTorch's own where they
    are PyTorch's."""
    for array in arrays:
        array = array[0] if isinstance(array, list) else array
        if not isinstance(array, torch.Tensor):
            address = array.__cuda_array_interface__["stream"]
            return torch.cuda.ExternalStream(address, device=device)
    return torch.cuda.current_stream(device)


class Padded:
    """Vectors of different lengths as one tensor, filled up with zeros, which is copied from them and to
    them."""

    def __init__(self, vectors: Sequence[Any], device: str) -> None:
        width = max((len(vector) for vector in vectors), default=0)
        self.vectors = list(vectors)
        self.rows = torch.zeros((len(vectors), width), device=device)
        self.parts = [row[: len(vector)] for row, vector in zip(self.rows, vectors)]

    def copy_in(self) -> None:
        torch._foreach_copy_(self.parts, self.vectors)

    def copy_out(self) -> None:
        torch._foreach_copy_(self.vectors, self.parts)


def check_finite(outs: Sequence[Sequence[Any]], owned: Sequence[int], names: str) -> None:
    """Says whose first direction is not finite."""
    for name, leaves in zip(names, outs):
        for leaf in leaves:
            if not bool(torch.isfinite(leaf).all()):
                not_finite(name, leaf.cpu().numpy(), owned)
