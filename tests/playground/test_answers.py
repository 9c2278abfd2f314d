"""The default judge is the embedded model, asked with what the prompt says about the labels."""

from __future__ import annotations

import pytest

from batchkit._engine.embedded import LabelModel
from batchkit._playground.answers import Answerer
from batchkit._playground.judge import Asked, Verdict

TEXTS = ["where is my parcel?", "I was charged twice", "thank you so much!"]


def _schema(*labels: str) -> dict:
    return {"properties": {"label": {"enum": list(labels)}, "confidence": {"type": "number"}}}


@pytest.mark.parametrize("text", TEXTS)
def test_the_model_is_asked_with_the_descriptions(text):
    """The verdict is the embedded model's on the labels as the prompt describes them, with its probability."""
    schema = _schema("billing", "delivery", "praise")
    asked = Asked("m", text, "- billing: money\n- delivery\n- praise: thanks", schema)
    expected = LabelModel(["billing", "delivery", "praise"], ["money", None, "thanks"]).probabilities([text])[0]
    verdict = Answerer()(asked)
    assert verdict == Verdict(["billing", "delivery", "praise"][expected.argmax()], expected.max())


@pytest.mark.parametrize(("text", "code"), list(zip(TEXTS, ["L2", "L1", "L3"], strict=True)))
def test_codes_are_judged_by_what_they_stand_for(text, code):
    """Where codes stand for labels the texts behind them are judged and the code is the answer."""
    system = "- L1 = billing: charges and invoices\n- L2 = delivery of parcels\n- L3 = thanks"
    assert Answerer()(Asked("m", text, system, _schema("L1", "L2", "L3"))).value == code


def test_one_answerer_serves_many_label_sets():
    """Prompts with other labels or descriptions are judged by those, however many there are."""
    answerer = Answerer()
    text = "where is my parcel?"
    for number in range(40):
        labels = (f"subject {number}", "delivery of parcels")
        assert answerer(Asked("m", text, "", _schema(*labels))).value == "delivery of parcels"
    assert answerer(Asked("m", text, "- a: delivery of parcels\n- b: money", _schema("a", "b"))).value == "a"
    assert answerer(Asked("m", text, "- b: delivery of parcels\n- a: money", _schema("a", "b"))).value == "b"


def test_without_labels_the_text_is_echoed():
    """A question without labels is answered with its own text."""
    assert Answerer()(Asked("m", "hello")).value == "hello"


def test_a_function_answers_instead():
    """A function of the user's gets the row's text and the labels on the wire."""
    answerer = Answerer(lambda text, labels: [text, *labels])
    assert answerer(Asked("m", "row", "", _schema("a", "b"))) == Verdict(["row", "a", "b"])
