"""The public names are a contract: notebooks call them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import batchkit
from batchkit import errors

PUBLIC = [
    "Anthropic",
    "BatchkitError",
    "BatchkitWarning",
    "CallError",
    "ColumnError",
    "ConfigError",
    "Embedded",
    "FunctionProvider",
    "Gemini",
    "InputError",
    "Interrupted",
    "Job",
    "LabelError",
    "LangChain",
    "Ollama",
    "OpenAI",
    "OpenAICompatible",
    "Plan",
    "Prompt",
    "RouteError",
    "RowFailed",
    "Run",
    "RunnableBatch",
    "Tuning",
    "UnknownKeyword",
    "__version__",
    "balance",
    "by",
    "compare",
    "events",
    "journal",
    "last_run",
    "observe",
    "playground",
    "split",
    "tune",
    "use",
    "when",
]

TREE = {
    "BatchkitError": (Exception,),
    "ConfigError": (errors.BatchkitError, ValueError),
    "CallError": (errors.ConfigError, TypeError),
    "UnknownKeyword": (errors.CallError,),
    "RouteError": (errors.ConfigError,),
    "InputError": (errors.BatchkitError, ValueError),
    "ColumnError": (errors.InputError, KeyError),
    "LabelError": (errors.InputError, TypeError),
    "RowFailed": (errors.BatchkitError,),
    "Interrupted": (KeyboardInterrupt,),
    "BatchkitWarning": (UserWarning,),
}


def test_all_lists_exactly_the_public_names() -> None:
    """`batchkit.__all__` is the list written down here, each name once."""
    assert sorted(batchkit.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_resolve(name: str) -> None:
    """Every public name is there and in `dir()`."""
    assert hasattr(batchkit, name)
    assert name in dir(batchkit)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    """Every public name but the version has a docstring of its own."""
    if name == "__version__":
        assert isinstance(batchkit.__version__, str)
    else:
        assert getattr(batchkit, name).__doc__


def test_the_version_is_the_one_that_is_installed() -> None:
    """`batchkit.__version__` is the version in pyproject.toml."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    assert batchkit.__version__ == project["project"]["version"]


@pytest.mark.parametrize(("name", "bases"), TREE.items())
def test_the_error_tree_is_as_drawn(name: str, bases: tuple[type, ...]) -> None:
    """Each exception has exactly the bases that the drawing in errors.py gives it."""
    assert getattr(errors, name).__bases__ == bases


def test_every_error_is_public() -> None:
    """The drawn tree, `errors.__all__` and the public names agree."""
    assert sorted(errors.__all__) == sorted(TREE)
    assert {name for name in TREE if getattr(batchkit, name, None) is getattr(errors, name)} == set(TREE)
