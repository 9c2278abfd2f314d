"""The words a model reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.labels import LabelSet
from batchkit._logic.prompting import classify_complaint, classify_schema, classify_system, repair_turns
from batchkit._playground.judge import Meaning, read_meanings

EXAMPLES = (("It never came", (1,)), ("Charged twice, and late", (0, 1)))


def system_of(labels, instructions=(), examples=(), *, multi_label=False, confidence=True):
    return classify_system(LabelSet.of(labels), instructions, examples, multi_label=multi_label, confidence=confidence)


def lines_of(labels):
    return [line for line in system_of(labels).split("\n") if line.startswith("- ")]


@pytest.mark.parametrize(
    ("labels", "lines"),
    [
        (["billing", "delivery"], ["- billing", "- delivery"]),
        ([2, 2.5, True], ["- 2", "- 2.5", "- True"]),
        ({"billing": "invoices, refunds", "other": None}, ["- billing: invoices, refunds", "- other"]),
        ({"billing": " on\n several \t lines "}, ["- billing: on several lines"]),
        (["yes", "Yes"], ["- A = yes", "- B = Yes"]),
        ({"yes": "agrees", "Yes": "shouts"}, ["- A = yes: agrees", "- B = Yes: shouts"]),
        ([1, "1"], ["- A = 1", "- B = '1'"]),
        (["one\ntwo", "three"], ["- A = 'one\\ntwo'", "- B = three"]),
        (["", " x", "x y"], ["- A = ''", "- B = ' x'", "- C = x y"]),
        (["\ud800", "x"], ["- A = '\\ud800'", "- B = x"]),
    ],
)
def test_label_lines(labels, lines):
    """Each label has a line: its text, or its code and text, and its description on the same line."""
    assert lines_of(labels) == lines


@pytest.mark.parametrize(
    ("labels", "meanings"),
    [
        ({"billing": "invoices: paid or not", "other": None}, [("billing", "invoices: paid or not"), ("other", None)]),
        ({"a: b": "first", "a": None}, [("a: b", "first"), ("a", None)]),
        ({"yes": "agrees", "Yes": None}, [("yes", "agrees"), ("Yes", None)]),
    ],
)
def test_the_playground_reads_the_lines_back(labels, meanings):
    """A model that reads the label lines by their form finds each label's text and description."""
    wires = LabelSet.of(labels).wires
    found = read_meanings(system_of(labels), wires)
    assert [found[wire] for wire in wires] == [Meaning(*meaning) for meaning in meanings]


@given(st.lists(st.text(), min_size=1, max_size=6, unique=True), st.data())
def test_every_label_has_exactly_one_line(labels, data):
    """Whatever the labels and descriptions hold, their list has one line for each."""
    described = {label: data.draw(st.none() | st.text()) for label in labels}
    assert len(lines_of(described)) == len(labels)


def test_examples_show_the_answer_on_the_wire():
    """An example is shown as a text and the JSON object that answers it."""
    one = system_of(["billing", "delivery"], examples=EXAMPLES[:1])
    assert 'Text: It never came\nAnswer: {"label":"delivery"}' in one
    many = system_of(["billing", "delivery"], examples=EXAMPLES, multi_label=True)
    assert 'Answer: {"label":["billing","delivery"]}' in many
    coded = system_of(["yes", "Yes"], examples=EXAMPLES[:1])
    assert 'Answer: {"label":"B"}' in coded


def test_instructions_stand_in_their_order():
    """The verb's instructions come before the provider's."""
    system = system_of(["a", "b"], ["From the verb.", "From the provider."])
    assert 0 < system.index("From the verb.") < system.index("From the provider.")


@pytest.mark.parametrize("confidence", [True, False])
def test_confidence_is_asked_for_only_where_wanted(confidence):
    """Neither words nor schema mention a confidence that nobody wants."""
    schema = classify_schema(LabelSet.of(["a", "b"]), multi_label=False, confidence=confidence)
    assert ("confidence" in system_of(["a", "b"], confidence=confidence)) is confidence
    assert ("confidence" in schema["properties"]) is confidence


@pytest.mark.parametrize("multi_label", [True, False])
def test_the_same_question_is_the_same_words(multi_label):
    """Words and schema depend on nothing but the arguments, byte for byte."""
    asked = [
        (
            system_of({"a": "first", "b": None}, ["Be quick."], EXAMPLES[:1], multi_label=multi_label),
            json.dumps(classify_schema(LabelSet.of(["a", "b"]), multi_label=multi_label, confidence=True)),
        )
        for _ in range(3)
    ]
    assert len(set(asked)) == 1


def test_other_questions_are_other_words():
    """Label order, descriptions, instructions, examples and kind of answer all show in the words."""
    asked = [
        system_of(["a", "b"]),
        system_of(["b", "a"]),
        system_of({"a": "first", "b": None}),
        system_of(["a", "b"], ["Be quick."]),
        system_of(["a", "b"], examples=EXAMPLES[:1]),
        system_of(["a", "b"], multi_label=True),
        system_of(["a", "b"], confidence=False),
    ]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    ("labels", "multi_label", "label"),
    [
        (["a", "b"], False, {"type": "string", "enum": ["a", "b"]}),
        ([1, 2], False, {"type": "string", "enum": ["1", "2"]}),
        (["x", "X"], False, {"type": "string", "enum": ["A", "B"]}),
        (["a", "b"], True, {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
    ],
)
def test_schema(labels, multi_label, label):
    """The schema asks for one object of `label`, an enum of what is on the wire, and `confidence` from 0 to 1."""
    assert classify_schema(LabelSet.of(labels), multi_label=multi_label, confidence=True) == {
        "type": "object",
        "properties": {"label": label, "confidence": {"type": "number", "minimum": 0, "maximum": 1}},
        "required": ["label", "confidence"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("found", "labels", "multi_label", "says"),
    [
        ("blue", ["a", "b"], False, "'blue' is not one of the labels"),
        (5, ["a", "b"], False, "'5' is not one of the labels"),
        ("blue", ["x", "X"], False, "'blue' is not one of the codes of the labels"),
        ("blue", ["a", "b"], True, "'blue' is not a list of labels"),
        (None, ["a", "b"], False, "named no label"),
        ("", ["a", "b"], False, "named no label"),
        (" \n", ["a", "b"], False, "named no label"),
        ("x" * 500, ["a", "b"], False, "xxx...' is not one"),
    ],
)
def test_complaints(found, labels, multi_label, says):
    """A complaint shows what was found, shortened, and says what is wanted."""
    text = classify_complaint(found, LabelSet.of(labels), multi_label=multi_label)
    assert says in text
    assert "Answer again" in text
    assert len(text) < 200


@given(st.text(), st.text(min_size=1), st.text())
def test_repair_turns(reply, complaint, row):
    """A model asked again sees its own reply, then a user's turn with the complaint and the row."""
    (first, said), (last, asked) = repair_turns(reply, complaint, row)
    assert (first, last) == ("assistant", "user")
    assert said == reply or (not reply and said)
    assert asked.startswith(complaint)
    assert asked.endswith(row)
