"""What may be a label, and which label a reply means."""

from __future__ import annotations

import datetime
import decimal
import enum
import typing
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchkit import errors
from batchkit._logic.labels import LabelSet, hard_to_quote, normal


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Stars(enum.IntEnum):
    ONE = 1
    TWO = 2


class Swapped(enum.Enum):
    A = "B"
    B = "A"


class Clashing(enum.Enum):
    A = "x"
    B = "X"


scalars = st.one_of(
    st.text(max_size=6),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.sampled_from([*Color, *Mood, *Stars, *Swapped, *Clashing]),
)
label_lists = st.lists(scalars, min_size=1, max_size=8, unique=True)


def _same(found: Any, label: Any) -> bool:
    return type(found) is type(label) and found == label


# ---- what may be a label ----------------------------------------------------------------------


@given(label_lists)
def test_any_scalars_come_back_equal_and_of_the_same_type(given):
    """A reply that repeats what the model was shown, and a function that returns the label itself, give that label."""
    labels = LabelSet.of(given)
    for label, wire in zip(given, labels.wires, strict=True):
        for reply, typed in ((wire, False), (label, True)):
            position = labels.find(reply, typed=typed)
            assert position is not None
            assert _same(labels.labels[position], label)


@given(label_lists)
def test_wires_differ_by_more_than_lenient_matching_forgives(given):
    """No two labels look alike on the wire."""
    wires = LabelSet.of(given).wires
    assert len({normal(wire) for wire in wires}) == len(given)


@given(label_lists)
def test_a_code_is_never_taken_for_a_label(given):
    """Where codes stand for labels, none of them reads as any label's text, name or value."""
    labels = LabelSet.of(given)
    assume(labels.coded)
    own = {normal(text) for text in labels.texts}
    own |= {normal(label.name) for label in given if isinstance(label, enum.Enum)}
    assert own.isdisjoint(normal(wire) for wire in labels.wires)


@pytest.mark.parametrize(
    "given",
    [["x", "X", *"AB"], ["x", "X", "A", "L1"], ["x", "X", "a", "l2", "LL1", "LLL3"], list(Clashing)],
)
def test_codes_give_way_to_labels(given):
    """Labels that look like codes themselves still get codes, of another kind."""
    labels = LabelSet.of(given)
    assert labels.coded
    assert {normal(wire) for wire in labels.wires}.isdisjoint(normal(text) for text in labels.texts)
    assert [labels.find(wire, typed=False) for wire in labels.wires] == list(range(len(given)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "no labels"),
        ({}, "no labels"),
        ([1, True], "are equal"),
        ([1, 1.0], "are equal"),
        (["a", "b", "a"], r"label 'a' is given twice\. Give each once; of a column: \.unique\(\)"),
        ([Mood.GOOD, "good"], "are equal"),
        (["a", None], "label 1 is None"),
        (["a", float("nan")], "missing"),
        (["a", np.nan], "missing"),
        (["a", pd.NaT], "missing"),
        (["a", pd.NA], "missing"),
        (["a", decimal.Decimal("sNaN")], "missing"),
        (typing.Literal["a", None], "missing"),
        (["a", ["b"]], "single values"),
        (["a", {"b": 1}], "single values"),
        (["a", {"b"}], "single values"),
        (["a", ("b", "c")], "single values"),
        (["a", frozenset("b")], "single values"),
        ("billing", "single text"),
        (b"billing", "single text"),
        ({"a", "b"}, "no order"),
        (frozenset("ab"), "no order"),
        (5, "must be a list"),
        (None, "must be a list"),
        (str, "must be a list"),
    ],
)
def test_what_is_no_label_is_refused(given, says):
    """What cannot be labels is refused with an error of our own tree that says why."""
    with pytest.raises(errors.LabelError, match=says) as caught:
        LabelSet.of(given)
    assert isinstance(caught.value, errors.InputError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("description", [0, 1.5, True, ["text"], {"a": "b"}])
def test_a_description_that_is_no_text_is_explained(description):
    """A dict from labels to values is a `TypeError` that says what a dict of labels means."""
    with pytest.raises(TypeError, match=r"'billing'.*label -> description") as caught:
        LabelSet.of({"billing": description})
    assert isinstance(caught.value, errors.LabelError)


@pytest.mark.parametrize(
    ("given", "labels", "descriptions"),
    [
        (["a", "b"], ("a", "b"), (None, None)),
        (("a", "b"), ("a", "b"), (None, None)),
        ((letter for letter in "ab"), ("a", "b"), (None, None)),
        ({"a": "first", "b": None, "c": ""}, ("a", "b", "c"), ("first", None, None)),
        ({"a": "first"}.keys(), ("a",), (None,)),
        (pd.Series(["a", "b"]), ("a", "b"), (None, None)),
        (np.array([2, 1]), (2, 1), (None, None)),
        (Color, (Color.RED, Color.BLUE), (None, None)),
        (typing.Literal["a", 1], ("a", 1), (None, None)),
    ],
)
def test_ways_to_give_labels(given, labels, descriptions):
    """A list, any iterable with an order, a dict, an Enum and a Literal are read in the order given."""
    found = LabelSet.of(given)
    assert found.labels == labels
    assert found.descriptions == descriptions


def test_a_label_set_is_taken_as_it_is():
    """Labels that were read once are not read again."""
    labels = LabelSet.of(["a", "b"])
    assert LabelSet.of(labels) is labels
    assert len(labels) == 2
    assert repr(labels) == "LabelSet(['a', 'b'])"


# ---- which label a reply means ----------------------------------------------------------------

VERDICTS = ["good", "very good", "bad"]


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("good", "good"),
        ("Good", "good"),
        ("VERY GOOD", "very good"),
        ("  very \t\n good ", "very good"),
        ("very\u00a0good", "very good"),
        ('"good"', "good"),
        ("'good'", "good"),
        ("«good»", "good"),
        ("“good”", "good"),
        ("「good」", "good"),
        ("`good`", "good"),
        ("**good**", "good"),
        ("_good_", "good"),
        ("good.", "good"),
        ("good。", "good"),
        ("(good)", "good"),
        ("Good!!!", "good"),
        ("good: ", "good"),
        ("bad or very good", None),
        ("very good indeed", None),
        ("not good", None),
        ("goo", None),
        ("goods", None),
        ("very-good", None),
        ("verygood", None),
        ("good, bad", None),
        ("", None),
        ("...", None),
        (None, None),
        ({}, None),
        ([], None),
        (["good"], None),
        ({"good"}, None),
        (1, None),
        (True, None),
        (float("nan"), None),
    ],
)
def test_lenient_matching(reply, label):
    """Case, white space, surrounding quotes and punctuation are forgiven, anything else is no label."""
    position = LabelSet.of(VERDICTS).find(reply, typed=False)
    assert (None if position is None else VERDICTS[position]) == label


@given(st.sampled_from(VERDICTS), st.text(st.characters(categories=["L", "N"]), min_size=1))
def test_a_label_inside_a_longer_word_is_no_label(label, more):
    """A reply that only holds a label's text is not taken for it."""
    labels = LabelSet.of(VERDICTS)
    for reply in (label + more, more + label, f"{label} {more}", f"{more} {label}"):
        if normal(reply) not in VERDICTS:
            assert labels.find(reply, typed=False) is None


@pytest.mark.parametrize(
    ("given", "reply"),
    [
        ([0, 1], "-1"),
        ([0, 1], -1),
        ([5, 10], ".5"),
        ([5, 10], 0.5),
        ([5, 10], "5%"),
        ([5, 10], "<5"),
        ([5, 10], "$5"),
        (["C", "Java"], "C++"),
        (["C", "Java"], "C#"),
        (["कम", "और"], "कमी"),
        (["cafe", "bar"], "cafe\u0301"),
        (["NaN", "other"], float("nan")),
        (["NA", "other"], pd.NA),
        (["NaT", "other"], pd.NaT),
        (["none", "other"], None),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_signs_accents_and_missing_values_are_not_punctuation(given, reply, typed):
    """What changes the meaning of a word or number is never stripped, and a missing value is no label."""
    assert LabelSet.of(given).find(reply, typed=typed) is None


@pytest.mark.parametrize(
    ("given", "reply", "label"),
    [
        ([1, 2], "2", 2),
        ([1, 2], 2, 2),
        ([1, 2], 2.0, 2),
        ([1.0, 2.5], 1, 1.0),
        ([1.0, 2.5], 1.0, 1.0),
        ([1.0, 2.5], "1", 1.0),
        ([1.0, 2.5], "2.5", 2.5),
        ([1e16, 0.0], 1e16, 1e16),
        (["1.0", "2.0"], 1.0, "1.0"),
        ([1.0, "1"], "1", "1"),
        ([1.0, "1"], "1.0", 1.0),
        ([-1, 1], -1, -1),
        ([-1, 1], "+1", None),
        ([True, False], True, True),
        ([True, False], "true", True),
        (["true", "false"], False, "false"),
        ([1, 0], True, None),
        (["caf\u00e9", "bar"], "cafe\u0301", "caf\u00e9"),
        (["cafe\u0301", "bar"], "caf\u00e9", "cafe\u0301"),
        (["STRASSE", "weg"], "straße", "STRASSE"),
        ([datetime.date(2026, 1, 2), "never"], "2026-01-02", datetime.date(2026, 1, 2)),
    ],
)
def test_json_values_find_labels_of_their_kind(given, reply, label):
    """Numbers, flags and texts in a reply name the label that is spelled like them."""
    position = LabelSet.of(given).find(reply, typed=False)
    assert (None if position is None else given[position]) == label


@pytest.mark.parametrize(
    ("given", "coded"),
    [
        (["billing", "delivery"], False),
        ([1, 2], False),
        ([True, False], False),
        (["-1", "1"], False),
        (["C", "C++", "C#"], False),
        ([1, "1"], True),
        ([True, "true"], True),
        (["yes", "Yes"], True),
        (["yes", "yes."], True),
        (["a b", "a  b"], True),
        (["caf\u00e9", "cafe\u0301"], True),
        (["two\nlines", "one"], True),
        ([" padded", "plain"], True),
        (["", "full"], True),
        (["\ud800", "x"], True),
        (["nul\x00", "x"], True),
        ([Color.RED, "red"], True),
    ],
)
def test_codes_stand_for_labels_exactly_where_texts_are_ambiguous(given, coded):
    """Labels that could be mistaken for one another, or are not seen for what they are, get codes."""
    labels = LabelSet.of(given)
    assert labels.coded is coded
    assert labels.wires == (("A", "B")[: len(given)] if coded else labels.texts)


@pytest.mark.parametrize(
    ("reply", "position"),
    [("A", 0), ("b", 1), ("'C'", 2), ("two\nlines", 2), ("Two lines", 2), ("Yes", 1), ("yes", 0), ("YES", None)],
)
def test_a_full_name_is_accepted_where_codes_were_asked_for(reply, position):
    """With codes, a reply naming one label in full counts, and one that could mean two does not."""
    labels = LabelSet.of(["yes", "Yes", "two\nlines"])
    assert labels.coded
    assert labels.find(reply, typed=False) == position


@pytest.mark.parametrize(
    ("given", "value", "position"),
    [
        ([1, "1"], 1, 0),
        ([1, "1"], "1", 1),
        ([True, "True"], True, 0),
        (Color, Color.BLUE, 1),
        (Color, 2, 1),
        (Color, "BLUE", 1),
        (Color, "blue", 1),
        (Mood, "good", 0),
        (["good", "bad"], Mood.GOOD, 0),
        (Stars, 2, 1),
        (Stars, "TWO", 1),
        (Stars, "2", 1),
        (Swapped, "A", 1),
        (Swapped, Swapped.A, 0),
        ([1, 2], np.int64(2), 1),
        ([0.5, 2.5], np.float64(2.5), 1),
        (["a", "b"], np.str_("b"), 1),
        (["a", "b"], np.array(["a", "b"]), None),
        (["a", "b"], pd.Series(["a"]), None),
        pytest.param([1, 2], 10**5000, None, id="huge"),
        ([Color.RED, Clashing.A, Clashing.B], "x", 1),
    ],
)
def test_a_functions_value_finds_its_label(given, value, position):
    """A value that code chose is first taken for the label equal to it and of its type."""
    assert LabelSet.of(given).find(value, typed=True) == position


def test_a_value_two_enum_members_share_names_neither():
    """Members of two Enums with one value are told apart by themselves, and not by that value."""
    other = enum.Enum("Other", {"ROUGE": "red"})
    labels = LabelSet.of([Color.RED, other.ROUGE])
    assert labels.find("red", typed=True) is None
    assert labels.find(other.ROUGE, typed=True) == 1
    assert labels.find("rouge", typed=True) == 1


def test_an_enum_of_values_that_cannot_be_hashed():
    """Members whose values are lists are labels like any others."""
    plans = enum.Enum("Plans", {"FREE": [0], "PAID": [1, 2]})
    labels = LabelSet.of(plans)
    assert labels.texts == ("FREE", "PAID")
    assert labels.find("paid", typed=False) == 1


@pytest.mark.parametrize(
    ("label", "position"), [(1, 0), ("1", 1), (True, None), ("x", None), ([1], None), (Color.RED, None)]
)
def test_position_is_exact(label, position):
    """`position` knows labels by value and type only."""
    assert LabelSet.of([1, "1"]).position(label) == position


# ---- normal -----------------------------------------------------------------------------------


@given(st.text())
def test_normal_is_idempotent(text):
    """Folding a folded text changes nothing."""
    assert normal(normal(text)) == normal(text)


@given(st.text(min_size=1))
def test_normal_keeps_something_of_every_text(text):
    """Only white space folds to nothing."""
    assert bool(normal(text)) is bool(text.strip())


@pytest.mark.parametrize(
    ("text", "hard"),
    [("plain", False), ("two words", False), ("日本", False), ("", True), (" x", True), ("x\n", True), ("a\tb", True)],
)
def test_hard_to_quote(text, hard):
    """Empty, padded and unprintable texts are not seen for what they are in a line of a prompt."""
    assert hard_to_quote(text) is hard
