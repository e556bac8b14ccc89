"""Runs notebooks from beginning to end; one that raises ends with its error. What needs PyTorch is left out
without it."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

for name in sys.argv[1:]:
    book = nbformat.read(name, as_version=4)
    text = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    if "import torch" in text and importlib.util.find_spec("torch") is None:
        print(f"{Path(name).name}: left out, torch is not installed")
        continue
    began = time.monotonic()
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    pictures = sum(
        "image/svg+xml" in out.get("data", {}) for cell in book.cells for out in cell.get("outputs", [])
    )
    print(f"{Path(name).name}: {time.monotonic() - began:.1f} s, {pictures} pictures")
