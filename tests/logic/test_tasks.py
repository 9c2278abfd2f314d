"""What counts as an answer."""

from __future__ import annotations

import decimal
import fractions
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.records import Answer, Complaint, Probabilities, Prompt, Structured, Text

LABELS = LabelSet.of(["billing", "delivery", "defect"])
ONE = Classify(LABELS)
MANY = Classify(LABELS, multi_label=True)
MIXED = Classify(LabelSet.of([1, "1", 2, 0.5, "none"]))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(LABELS.texts),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["label", "confidence", "labels"]) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


class Hostile:
    """An object that cannot be shown, compared or hashed."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


# ---- the brief --------------------------------------------------------------------------------


def test_brief_holds_everything_but_the_row():
    """Words, labels, schema, descriptions and one-label examples go to the provider."""
    labels = LabelSet.of({"a": "first", "b": None})
    task = Classify(labels, "Be strict.", (("x", (0,)), ("y", (0, 1))))
    brief = task.brief("Be quick.")
    assert brief.system.index("Be strict.") < brief.system.index("Be quick.")
    assert brief.labels == brief.label_texts == ("a", "b")
    assert brief.descriptions == ("first", None)
    assert brief.examples == (("x", 0),)
    assert set(brief.schema["properties"]) == {"label", "confidence"}


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_blank_instructions_are_none(blank):
    """Instructions of white space change nothing."""
    assert Classify(LABELS, blank).brief(blank) == ONE.brief()


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8, unique=True), st.booleans())
def test_the_cap_leaves_room_for_the_longest_answer(labels, multi_label):
    """Even at one token a byte, the longest answer on the wire fits under the output cap."""
    found = LabelSet.of(labels)
    brief = Classify(found, multi_label=multi_label).brief()
    wires = list(found.wires)
    answer = {"label": wires if multi_label else max(wires, key=lambda wire: len(wire.encode())), "confidence": 0.999}
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= brief.max_output_tokens


# ---- one label --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('{"label": "billing", "confidence": 0.9}', Answer("billing", 0.9, "stated")),
        ('{"label": "Billing."}', Answer("billing")),
        ('```json\n{"label": "billing"}\n```', Answer("billing")),
        ('{"label": ["billing"], "confidence": 1}', Answer("billing", 1.0, "stated")),
        ('{"category": "billing", "confidence": 0.5}', Answer("billing", 0.5, "stated")),
        ('{"confidence": 0.5, "why": "a bill", "label": "billing"}', Answer("billing", 0.5, "stated")),
        ("billing", Answer("billing")),
        ('"billing"', Answer("billing")),
        ("**Billing**", Answer("billing")),
        ("It is billing", None),
        ('{"label": "billing or delivery"}', None),
        ('{"label": ["billing", "delivery"]}', None),
        ('{"label": null}', None),
        ('{"label": {"name": "billing"}}', None),
        ('{"confidence": 0.9}', None),
        ('{"a": "billing", "b": "delivery"}', None),
        ("{}", None),
        ("[]", None),
        ("null", None),
        ("", None),
        ("7", None),
    ],
)
def test_a_text_is_read_for_one_label(reply, answer):
    """A reply's text gives the one label it certainly names, else a complaint."""
    verdict = ONE.check(Text(reply))
    assert isinstance(verdict, Complaint) if answer is None else verdict == answer


@pytest.mark.parametrize(
    ("stated", "confidence"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        ("0.25", 0.25),
        (" 1e-1 ", 0.1),
        (np.float32(0.5), 0.5),
        (fractions.Fraction(1, 4), 0.25),
        (-0.01, None),
        (1.01, None),
        (95, None),
        ("95%", None),
        ("high", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
        (True, None),
        (None, None),
        ([0.5], None),
        ({"value": 0.5}, None),
        (np.array([0.5]), None),
        (decimal.Decimal("0.5"), None),
    ],
)
def test_confidence(stated, confidence):
    """A confidence from 0 to 1 is reported, any other is missing and never a complaint."""
    verdict = ONE.check(Structured({"label": "billing", "confidence": stated}))
    assert verdict == Answer("billing", confidence, None if confidence is None else "stated")


def test_confidence_that_nobody_wants_is_not_reported():
    """Without `confidence` an answer is a label alone, also from probabilities."""
    task = Classify(LABELS, confidence=False)
    assert task.check(Text('{"label": "billing", "confidence": 0.9}')) == Answer("billing")
    assert task.check(Probabilities((0.1, 0.7, 0.2))) == Answer("delivery")


@pytest.mark.parametrize("source", ["embedded", "probabilities"])
def test_probabilities(source):
    """The most probable label is the answer, with its probability and where that came from."""
    assert ONE.check(Probabilities((0.1, 0.7, 0.2), source)) == Answer("delivery", 0.7, source)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (1, 1),
        ("1", "1"),
        (2, 2),
        ("2", 2),
        (0.5, 0.5),
        (Prompt("none"), "none"),
        ({"label": 1}, 1),
        ({"label": "1"}, "1"),
        ('{"label": 2}', 2),
        ('{"label": "none"}', "none"),
        ("```json\n2\n```", 2),
    ],
)
def test_what_a_function_returns(value, answer):
    """A function's value is a label of its own type first, and a text that is no label is read as a reply."""
    verdict = MIXED.check(Structured(value))
    assert isinstance(verdict, Answer)
    assert verdict.value == answer
    assert type(verdict.value) is type(answer)


def test_a_functions_reply_text_may_state_a_confidence():
    """JSON text that a function returns is read like a model's."""
    reply = 'Well: {"label": "defect", "confidence": 0.75}'
    assert ONE.check(Structured(reply)) == ONE.check(Text(reply)) == Answer("defect", 0.75, "stated")
    assert MANY.check(Structured('["defect"]')) == Answer(["defect"])


def test_the_complaint_about_a_functions_text_is_the_one_about_a_reply():
    """A returned text that is neither a label nor a reply naming one is complained of as found."""
    assert ONE.check(Structured('{"label": "blue"}')) == ONE.check(Text('{"label": "blue"}'))


# ---- several labels ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Text('{"label": []}'), []),
        (Text("[]"), []),
        (Text('{"label": ["defect", "billing"]}'), ["billing", "defect"]),
        (Text('{"label": ["defect", "Defect."]}'), ["defect"]),
        (Text('{"label": "defect"}'), ["defect"]),
        (Text('["delivery"]'), ["delivery"]),
        (Text('{"label": ["defect", "blue"]}'), None),
        (Text('{"label": [["defect"]]}'), None),
        (Text('{"label": null}'), None),
        (Text('{"label": ""}'), None),
        (Text("{}"), None),
        (Text("defect, billing"), None),
        (Structured(["defect", "billing"]), ["billing", "defect"]),
        (Structured(("defect",)), ["defect"]),
        (Structured({"defect", "billing"}), ["billing", "defect"]),
        (Structured(frozenset()), []),
        (Structured("defect"), ["defect"]),
        (Structured(None), None),
    ],
)
def test_several_labels(reply, answer):
    """With `multi_label` an answer is a list in label order, `[]` too, and one unknown member spoils it."""
    verdict = MANY.check(reply)
    assert isinstance(verdict, Complaint) if answer is None else verdict == Answer(answer)


# ---- any reply at all -------------------------------------------------------------------------


@given(json_values, st.sampled_from([ONE, MANY, MIXED]))
def test_no_json_value_makes_check_raise(value, task):
    """Any JSON value, as a value or as text, ends in an answer that is a label or in a complaint."""
    allowed = task.labels.labels
    for reply in (Structured(value), Text(json.dumps(value))):
        verdict = task.check(reply)
        if isinstance(verdict, Answer):
            values = verdict.value if task.multi_label else [verdict.value]
            assert all(any(found is label for label in allowed) for found in values)
            assert verdict.confidence is None or 0 <= verdict.confidence <= 1
        else:
            assert verdict.text


@given(st.text(), st.sampled_from([ONE, MANY, MIXED]))
def test_no_text_makes_check_raise(text, task):
    """Any text ends in an answer or in a complaint."""
    assert isinstance(task.check(Text(text)), Answer | Complaint)


@pytest.mark.parametrize("task", [ONE, MANY])
@pytest.mark.parametrize(
    "value",
    [
        object(),
        Hostile(),
        [Hostile()],
        {"label": Hostile()},
        pytest.param(10**5000, id="huge"),
        pytest.param({"label": 10**5000}, id="huge label"),
        np.array(["billing", "defect"]),
        {"label": np.array(["billing", "defect"])},
        b"billing",
        "\ud800",
        ValueError,
    ],
)
def test_no_object_makes_check_raise(task, value):
    """Whatever object a function returns, what is no label ends in a complaint that can be sent."""
    verdict = task.check(Structured(value))
    assert isinstance(verdict, Complaint)
    assert verdict.text.isprintable()
