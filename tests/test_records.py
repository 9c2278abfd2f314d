"""The values all layers share."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit import records
from batchkit.records import Answer, Brief, Endpoint, Limits, Prompt, Question, Usage

VALUES = [
    value
    for value in (getattr(records, name) for name in records.__all__)
    if isinstance(value, type) and dataclasses.is_dataclass(value)
]
BRIEF = Brief("Label texts.", ("a", "b"), {"type": "object"})


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_values_are_frozen_and_slotted(kind):
    """Values that layers hand around cannot be changed, nor given new attributes."""
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


@given(st.text())
def test_a_prompt_is_its_text(row):
    """A function gets the row's text unchanged, as a `str`, with the task beside it."""
    prompt = Prompt.of(Question(BRIEF, row, complaint="no label"))
    assert prompt == row
    assert isinstance(prompt, str)
    assert hash(prompt) == hash(row)
    assert prompt.system == "Label texts."
    assert prompt.labels == ("a", "b")
    assert prompt.schema == {"type": "object"}
    assert prompt.complaint == "no label"


def test_a_key_is_never_shown():
    """Neither key nor headers nor extra fields of an endpoint are in its repr."""
    endpoint = Endpoint("openai", "m", "https://h", "sk-secret", {"X-Key": "sk-secret"}, {"token": "sk-secret"})
    assert "secret" not in repr(endpoint)


def test_error_kinds_are_distinct():
    """Each kind of error has one name."""
    assert len(set(records.ERROR_KINDS)) == len(records.ERROR_KINDS)


def test_defaults_are_the_contracts():
    """Limits and usage start from what the contract says."""
    assert Limits() == Limits(16, None, None, 60.0, 600.0, 5)
    assert Usage() == Usage(0, 0, 0, 0)
    assert Answer("a") == Answer("a", None, None)
