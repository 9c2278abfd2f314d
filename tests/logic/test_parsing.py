"""From a reply's text to a value."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.parsing import value_of

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"label": "a"}', {"label": "a"}),
        ('  \n{"label": "a"}\n', {"label": "a"}),
        ("17", 17),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('"a"', "a"),
        ('["a", "b"]', ["a", "b"]),
        ("[]", []),
        ("{}", {}),
        ("", ""),
        ("a", "a"),
        ("  a \n", "a"),
        ("two words", "two words"),
        ('```json\n{"label": "a"}\n```', {"label": "a"}),
        ('```\n{"label": "a"}\n```', {"label": "a"}),
        ('```json{"label": "a"}```', {"label": "a"}),
        ('Sure!\n```json\n["a"]\n```\nAnything else?', ["a"]),
        ('<think>a or b?</think>{"label": "a"}', {"label": "a"}),
        ('<think>\n{"label": "b"}?\n</think>\n\n{"label": "a"}', {"label": "a"}),
        ('<THINKING>b</THINKING>\n```json\n{"label": "a"}\n```', {"label": "a"}),
        ('perhaps {"label": "b"}, no\n</think>\n{"label": "a"}', {"label": "a"}),
        ("<think>b</think>a", "a"),
        ("<think>b</think>", ""),
        ('{"label": "a", "why": "</think>"}', {"label": "a", "why": "</think>"}),
        ('The answer is {"label": "a"}.', {"label": "a"}),
        ('{"label": "a"} {"label": "b"}', {"label": "a"}),
        ('First {not json} then {"label": "a"}', {"label": "a"}),
        ('It is {"label": {"name": "a", "more": {}}} I think', {"label": {"name": "a", "more": {}}}),
        ('So {"label": "a } b { c"} it is', {"label": "a } b { c"}),
        (r'So {"label": "a \" } b"} it is', {"label": 'a " } b'}),
        (r'So {"label": "a \\"} it is', {"label": "a \\"}),
        ('Say "{" and {"label": "a"', 'Say "{" and {"label": "a"'),
        ('}{"label": "a"}', {"label": "a"}),
        ('{"label": "a"', '{"label": "a"'),
        ("{'label': 'a'}", "{'label': 'a'}"),
        ("NaN", "NaN"),
        ('{"label": "a", "confidence": 0.5e4190531421900719}', {"label": "a", "confidence": math.inf}),
        ('Well: {"label": "a", "confidence": -1E+400}', {"label": "a", "confidence": -math.inf}),
        ('{"label": NaN, "confidence": 1e400}', '{"label": NaN, "confidence": 1e400}'),
    ],
)
def test_shapes_of_replies(text, value):
    """Bare, fenced, thought-over and prosaic JSON is read, everything else comes back as it is."""
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@given(json_values)
def test_what_was_written_is_read(value):
    """A JSON value survives being written, indented or not."""
    assert value_of(orjson.dumps(value).decode()) == value
    assert value_of(json.dumps(value, indent=2, ensure_ascii=False)) == value


@given(json_objects, st.text(st.characters(codec="utf-8", exclude_characters='{}"`<')))
def test_an_object_in_prose_is_read(value, prose):
    """An object is found among words, in a fence, and after thoughts."""
    written = orjson.dumps(value).decode()
    for text in (f"{prose} {written}", f"{written} {prose}", f"<think>{prose}</think>{written}"):
        assert value_of(text) == value
    assert value_of(f"{prose}\n```json\n{written}\n```") == value


@given(st.text(st.sampled_from('{}[]"\\:,`<>/think \nab1-\ud800')) | st.text())
def test_no_text_makes_it_raise(text):
    """Any text gives a value."""
    value_of(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 5000,
        '{"a":1e400,"b":' * 5000,
        "{" * 100_000,
        "[" * 5000,
        "```" * 10_000,
        "<think>" * 10_000,
    ],
)
def test_hostile_texts_come_back_as_they_are(text):
    """Deep and repetitive texts that are no JSON are given back."""
    assert value_of(text) == text
