"""The Python of the README files and of docs/python.md runs as it stands there."""

import inspect
import re
from pathlib import Path

import pytest

import dibo

ROOT = Path(__file__).parents[3]


def blocks():
    for page in ("README.md", "crates/dibo-py/README.md", "docs/python.md"):
        file = ROOT / page
        # Packages of the sources alone have no pages.
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M), 1):
            yield pytest.param(block, id=f"{page}-{number}")


def test_there_are_blocks_to_run():
    if not (ROOT / "docs/python.md").exists():
        pytest.skip("the pages are not beside these tests")
    assert len(list(blocks())) >= 4


@pytest.mark.parametrize("block", list(blocks()))
def test_block_runs(block, monkeypatch, tmp_path):
    pytest.importorskip("pandas")
    for framework in ("torch", "jax"):
        if f"import {framework}" in block:
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    names = {}
    if "dibo.Agent(" in block:
        # It would wait for other machines: only how it is called is tried.
        made, ran = inspect.signature(dibo.Agent), inspect.signature(dibo.Agent.run)

        class Agent:
            def __init__(self, *positional, **named):
                made.bind(*positional, **named)

            def run(self, *positional, **named):
                ran.bind(self, *positional, **named)

        monkeypatch.setattr(dibo, "Agent", Agent)
        names = {"dibo": dibo, "problem": None}
    exec(compile(block, "a page's block", "exec"), names)
    if "run" in names and "dibo.solve(" in block:
        assert names["run"].status == "finished"
