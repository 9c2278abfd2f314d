"""The README is true: its cells run, its names exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchkit as bk

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CELLS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OFFLINE = [cell for cell in CELLS if "OPENAI_API_KEY" not in cell]


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    """Run the cells that need no key, top to bottom in one namespace, and return it."""
    pytest.importorskip("wordllama")
    names: dict[str, Any] = {}
    for number, cell in enumerate(OFFLINE):
        exec(compile(cell, f"README.md, cell {number}", "exec"), names)
    return names


def test_first_cell_labels_its_tickets(notebook: dict[str, Any]) -> None:
    """The README's first cell gives each ticket its label, and none to the blank one."""
    out = notebook["tickets"].llm.classify("text", notebook["labels"], route=bk.Embedded(), progress=False)
    assert out["label"].tolist()[:3] == ["billing", "delivery", "defect"]
    assert pd.isna(out["label"].iloc[3])


def test_failures_stand_where_the_readme_says(notebook: dict[str, Any]) -> None:
    """`Run.failed` holds the two rows that the README's flaky function raises on, `Run.summary` counts them."""
    run = notebook["run"]
    assert run.failed.index.tolist() == [1, 2]
    assert run.failed["label_error"].tolist() == ["function", "function"]
    assert run.summary.loc["flaky", ["answered", "failed"]].tolist() == [1, 2]


def test_playground_cell_answers_every_message(notebook: dict[str, Any]) -> None:
    """The README's playground cell gets an answer for each bundled message."""
    assert notebook["out"]["label"].notna().all()


def test_vendor_cell_is_valid_up_to_its_keys(notebook: dict[str, Any]) -> None:
    """The README's cell with vendors fails for want of a key and for nothing else."""
    (cell,) = [cell for cell in CELLS if cell not in OFFLINE]
    with pytest.raises(bk.ConfigError, match="_API_KEY"):
        exec(compile(cell, "README.md, vendors", "exec"), dict(notebook))


@pytest.mark.parametrize("route", re.findall(r"^\| `(bk\..*?)` \|", README, re.MULTILINE))
def test_every_route_of_the_table_labels_a_frame(route: str) -> None:
    """Each route in the README's table works as written."""
    names: dict[str, Any] = {"bk": bk}
    names |= {name: bk.FunctionProvider(lambda text: "yes", name=name) for name in "abc"}
    frame = pd.DataFrame({"text": [f"row {i}" for i in range(30)], "lang": ["zh", "en", "fr"] * 10})
    out = frame.llm.classify("text", ["yes", "no"], route=eval(route, names), progress=False)
    assert out["label"].eq("yes").all()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bbk\.(\w+)", README))))
def test_every_name_of_the_readme_is_public(name: str) -> None:
    """What the README calls `bk.name` is there, and listed."""
    assert name in bk.__all__


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_link_leads_to_a_file(target: str) -> None:
    """Links and pictures of the README are files of the repository."""
    assert (ROOT / target).is_file()


def test_readme_is_short() -> None:
    """The README stays under 150 lines."""
    assert len(README.splitlines()) < 150
