"""What the playground reads out of a request, and what it says to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.judge import (
    Asked,
    Meaning,
    Verdict,
    answer_value,
    count_tokens,
    expected,
    read_meanings,
    wrong_label,
)

ONE = {"properties": {"label": {"type": "string", "enum": ["a", "b"]}, "confidence": {"type": "number"}}}
MANY = {"properties": {"label": {"type": "array", "items": {"enum": ["a", "b"]}}}}
FREE = {"properties": {"name": {"type": "string"}}}

line_text = st.text(st.characters(exclude_characters="\n"), min_size=1)
plain_name = st.text(st.characters(exclude_characters="\n:="), min_size=1)


@pytest.mark.parametrize(
    ("schema", "labels", "many"),
    [
        (ONE, ("a", "b"), False),
        (MANY, ("a", "b"), True),
        (FREE, (), False),
        (None, (), False),
        ({}, (), False),
        ({"properties": None}, (), False),
        ({"properties": {"label": {"type": "string"}}}, (), False),
        ({"properties": {"label": {"enum": "ab"}}}, (), False),
    ],
)
def test_labels_stand_in_the_schema(schema, labels, many):
    """The labels are the enum at the property label, or at the items of a list there."""
    assert expected(schema) == (labels, many)


@pytest.mark.parametrize(
    ("line", "label", "meaning"),
    [
        ("- billing", "billing", Meaning("billing")),
        ("- billing: money: all of it", "billing", Meaning("billing", "money: all of it")),
        ("- L1 = late parcels", "L1", Meaning("late parcels")),
        ("- L1 = late: parcels", "L1", Meaning("late", "parcels")),
        ("- a: b: c", "a: b", Meaning("a: b", "c")),
        ("- a = b", "a = b", Meaning("a = b")),
        ("- 7: lucky", 7, Meaning("7", "lucky")),
        ("* billing: money", "billing", Meaning("billing")),
        ("- billings: money", "billing", Meaning("billing")),
        ("-billing: money", "billing", Meaning("billing")),
    ],
)
def test_a_line_gives_a_label_its_meaning(line, label, meaning):
    """A line of the system prompt is understood in each of its forms, and nothing else is."""
    assert read_meanings(f"Choose:\n{line}\nThank you.", [label]) == {label: meaning}


def test_the_first_line_counts():
    """A later line that begins like a label's, in an example say, changes nothing."""
    assert read_meanings("- a: first\n- a: second", ["a"]) == {"a": Meaning("a", "first")}


@given(st.dictionaries(plain_name, st.none() | line_text, min_size=1))
def test_names_and_descriptions_come_back(descriptions):
    """Labels and descriptions listed in a prompt are read back as they were."""
    lines = [f"- {name}" + ("" if text is None else f": {text}") for name, text in descriptions.items()]
    found = read_meanings("\n".join(lines), list(descriptions))
    assert found == {name: Meaning(name, text) for name, text in descriptions.items()}


@given(st.lists(st.tuples(line_text, st.none() | line_text), min_size=1, max_size=12))
def test_texts_behind_codes_come_back(labels):
    """What stands behind a code is read back whole, whatever characters it is made of."""
    texts = [text + ("" if description is None else f": {description}") for text, description in labels]
    codes = [f"L{number}" for number in range(len(texts))]
    found = read_meanings("\n".join(f"- {code} = {text}" for code, text in zip(codes, texts, strict=True)), codes)
    said = [m.text if m.description is None else f"{m.text}: {m.description}" for m in found.values()]
    assert said == texts


@given(st.text(), st.lists(st.text(), unique=True))
def test_any_prompt_is_understood_somehow(system, labels):
    """Whatever the prompt, each label has a meaning."""
    assert list(read_meanings(system, labels)) == labels


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (ONE, "a", {"label": "a", "confidence": 0.7}),
        (ONE, 17, {"label": 17, "confidence": 0.7}),
        (ONE, {"label": "a", "why": "so"}, {"label": "a", "why": "so"}),
        (MANY, "a", {"label": ["a"]}),
        (MANY, ["a", "b"], {"label": ["a", "b"]}),
        (FREE, "Ada", "Ada"),
        (FREE, {"name": "Ada"}, {"name": "Ada"}),
        (None, "Ada", "Ada"),
    ],
)
def test_a_verdict_takes_the_shape_asked_for(schema, value, said):
    """The answer has the form that the schema wants, and a dict is the whole answer."""
    assert answer_value(Asked("m", "text", schema=schema), Verdict(value, 0.7)) == said


@given(st.lists(st.text() | st.sampled_from(["no such label", "no such label at all"])))
def test_a_wrong_label_is_wrong(labels):
    """The label made up for the fault is part of none of the labels."""
    assert not any(wrong_label(labels) in label for label in labels)


@pytest.mark.parametrize(
    ("texts", "tokens"), [((), 1), (("",), 1), (("abcd",), 1), (("abcde",), 2), (("ab", "cde"), 2), (("中文",), 2)]
)
def test_tokens_are_counted_by_bytes(texts, tokens):
    """A token is four bytes, and there is at least one."""
    assert count_tokens(*texts) == tokens
