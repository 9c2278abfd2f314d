"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "batchkit").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

NEXT_SENTENCE = re.compile(r"[.!?]\s+[A-Z]")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node


def _is_one_sentence(text: str | None) -> bool:
    return text is not None and text.endswith(".") and not NEXT_SENTENCE.search(text)


def _assigned(tree: ast.Module) -> set[str]:
    statements = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [target for node in statements for target in getattr(node, "targets", [getattr(node, "target", None)])]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Rows keep their order.", True),
        ("Rows, e.g. of one\nframe, keep their order.", True),
        (None, False),
        ("", False),
        ("Rows keep their order", False),
        ("Rows keep their order. Columns too.", False),
    ],
)
def test_a_sentence_is_told_from_anything_else(text: str | None, verdict: bool) -> None:
    """The rule below accepts one sentence, and neither none nor two."""
    assert _is_one_sentence(text) is verdict


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_every_test_is_a_sentence(path: Path) -> None:
    """Every test says its promise in a docstring of one sentence."""
    tests = list(_tests(ast.parse(path.read_text("utf-8"))))
    assert tests, "a test file without tests"
    assert [test.name for test in tests if not _is_one_sentence(ast.get_docstring(test))] == []


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_every_module_says_why_and_what(path: Path) -> None:
    """Every module says in a docstring why it exists, and in `__all__` what it offers if it has any code."""
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree), "no module docstring"
    assert len(tree.body) == 1 or "__all__" in _assigned(tree), "no __all__"
