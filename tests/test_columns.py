"""From cells to texts to units, and from answers back to columns."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit.columns import attach, label_values, protect, read, text_values, units
from batchkit.errors import ColumnError, InputError


class Colour(enum.Enum):
    RED = "red"


class Word(str, enum.Enum):  # noqa: UP042 - its str() is not its text, unlike StrEnum's
    YES = "yes"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


INDEXES = [
    pd.RangeIndex(3),
    pd.Index(["a", "a", "b"], name="key"),
    pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", None)], names=["x", None]),
    pd.DatetimeIndex(["2024-01-02", None, "2024-01-01"], tz="UTC"),
    pd.date_range("2024-01-01", periods=3, freq="D"),
    pd.CategoricalIndex(["b", "a", "b"]),
]


# ---- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (" kept as it is \n", " kept as it is \n"),
        (Word.YES, "yes"),
        ("\ud800 {x} \0", "\ud800 {x} \0"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "True"),
        (np.int64(3), "3"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (pd.Timestamp("2024-01-02 03:04", tz="UTC"), "2024-01-02T03:04:00+00:00"),
        (b"caf\xc3\xa9 \xff", "café �"),
        (["é", None, np.int64(1)], '["é", null, 1]'),
        ({"when": dt.date(2024, 1, 2)}, '{"when": "2024-01-02"}'),
        ((1, 2), "[1, 2]"),
        ({"b", "a"}, '["a", "b"]'),
        (np.array([1.5, 2.0]), "[1.5, 2.0]"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (Colour.RED, "Colour.RED"),
        (Broken(), repr(Broken)),
        ([Broken()], f'["{Broken!r}"]'),
        pytest.param(10**5000, "<class 'int'>", id="too-long-for-str"),
    ],
)
def test_every_cell_has_a_text(cell: Any, text: str) -> None:
    """Whatever a cell holds, it has one plain text and raises nothing."""
    frame = pd.DataFrame({"x": pd.Series([cell, "other"], dtype=object)})
    table = read(frame, "x")
    assert table.texts[0] == text
    assert type(table.texts[0]) is str
    assert not table.blank[0]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pd.array([1, None], dtype="Int64"), ["1", ""]),
        (np.array([0.1, np.nan], dtype="float32"), ["0.1", ""]),
        (pd.array([True, None], dtype="boolean"), ["True", ""]),
        (pd.Categorical(["a", None]), ["a", ""]),
        (pd.Categorical([1, None]), ["1", ""]),
        (pd.array(["a", None], dtype="string"), ["a", ""]),
        (pd.to_datetime(["2024-01-02", None]), ["2024-01-02T00:00:00", ""]),
        (pd.PeriodIndex(["2024-01", None], freq="M"), ["2024-01", ""]),
        (pd.arrays.SparseArray([1.5, np.nan]), ["1.5", ""]),
    ],
)
def test_dtypes_read_as_their_cells_are_written(column: Any, texts: list[str]) -> None:
    """Integers have no decimal point, narrow floats no noise, and missing is blank in every dtype."""
    table = read(pd.DataFrame({"x": column}), "x")
    assert table.texts.tolist() == texts
    assert table.blank.tolist() == [False, True]


@pytest.mark.parametrize("cell", [None, np.nan, pd.NA, pd.NaT, "", " \t\n", "\u3000", b" "])
def test_missing_and_white_space_is_blank(cell: Any) -> None:
    """A cell without anything to ask about is blank, and its text empty."""
    table = read(pd.DataFrame({"x": pd.Series([cell, "word"], dtype=object)}), "x")
    assert table.blank.tolist() == [True, False]
    assert table.texts.tolist() == ["", "word"]


def test_several_columns_are_one_line_each() -> None:
    """Several columns give `name: value` lines, and a row is blank only when all its cells are."""
    frame = pd.DataFrame({"title": ["Late", None, " "], "stars": pd.array([1, 5, None], dtype="Int64")})
    table = read(frame, ["title", "stars"])
    assert table.texts.tolist() == ["title: Late\nstars: 1", "title:\nstars: 5", ""]
    assert table.blank.tolist() == [False, False, True]
    assert table.columns == ("title", "stars")


def test_a_list_of_one_column_is_that_column() -> None:
    """One column named in a list reads as the column itself, without its name."""
    assert read(pd.DataFrame({"x": ["a"]}), ["x"]).texts.tolist() == ["a"]


def test_a_tuple_is_one_label_where_it_is_one() -> None:
    """With several levels of columns a tuple is a label, else it is several labels."""
    deep = pd.DataFrame([["a", "b"]], columns=pd.MultiIndex.from_tuples([("m", "x"), ("m", "y")]))
    assert read(deep, ("m", "y")).texts.tolist() == ["b"]
    assert read(deep, [("m", "x"), ("m", "y")]).texts.tolist() == ["m / x: a\nm / y: b"]
    assert read(pd.DataFrame({"x": ["a"], "y": ["b"]}), ("x", "y")).texts.tolist() == ["x: a\ny: b"]


@pytest.mark.parametrize(
    ("columns", "wanted", "hint"),
    [
        (["text", "lang"], "txt", "Did you mean 'text'?"),
        (["text", "lang"], 0, "There is 'text', 'lang'."),
        (["text", "lang"], ["text", "langs"], "Did you mean 'lang'?"),
        (["text", "text"], "text", "2 columns are called 'text', at positions [0, 1]"),
        ([("m", "x"), ("m", "y")], "m", "there is no column 'm'"),
        ([("m", "x"), ("m", "y")], ("m", "z"), "there is no column ('m', 'z')"),
        (["text", "lang"], [], "no column is named"),
        (["text", "lang"], {"text": 1}, "no column label"),
        (["text", "lang"], pd.Series(["secret"]), "a Series is no column label. Name the column"),
    ],
)
def test_a_column_that_is_not_exactly_there_is_refused(columns: list[Any], wanted: Any, hint: str) -> None:
    """A column that is unknown, ambiguous or no label at all is refused with a way on."""
    frame = pd.DataFrame([["a", "b"]], columns=pd.Index(columns))
    with pytest.raises(ColumnError) as refusal:
        read(frame, wanted)
    assert hint in str(refusal.value)


@pytest.mark.parametrize("frame", [pd.Series(["a"], name="x"), {"x": ["a"]}, None])
def test_only_a_frame_is_a_frame(frame: Any) -> None:
    """What is no DataFrame is refused, saying what it is."""
    with pytest.raises(InputError, match=type(frame).__name__):
        read(frame, "x")


# ---- equal rows -------------------------------------------------------------------------------

FEW_TEXTS = st.sampled_from(["", "a", "b", "a\0b", "a\0c", "\ud800", "\ud801", "é", "e\u0301"])


@given(rows=st.lists(st.tuples(FEW_TEXTS, st.integers(0, 2))), dedupe=st.booleans())
def test_units_are_what_a_dictionary_would_give(rows: list[tuple[str, int]], dedupe: bool) -> None:
    """Rows share a unit exactly when text and itinerary are equal, numbered by first appearance."""
    texts = np.array([text for text, _ in rows], dtype=object)
    blank = np.array([not text for text, _ in rows], dtype=bool)
    found = units(texts, blank, np.array([code for _, code in rows], dtype=np.int32), dedupe)
    numbers: dict[Any, int] = {}
    expected = [
        numbers.setdefault(row if dedupe else (row, place), len(numbers)) if row[0] else -1
        for place, row in enumerate(rows)
    ]
    assert found.unit_of_row.tolist() == expected
    assert found.first_row.tolist() == [expected.index(unit) for unit in range(len(numbers))]
    assert found.unit_of_row.dtype == found.first_row.dtype == np.int64


# ---- writing ----------------------------------------------------------------------------------

NAMES = ["label", "label_confidence", "label_provider", "label_error"]


@pytest.mark.parametrize(
    ("columns", "overwrite"),
    [
        (["text"], False),
        (["text", "label"], True),
        (["text", *NAMES], False),
        (["text", "label", "label_provider", "label_error"], False),
        ([("text", ""), *((name, "") for name in NAMES)], False),
    ],
)
def test_own_output_and_free_names_may_be_written(columns: list[Any], overwrite: bool) -> None:
    """New names, earlier output of ours, and anything under overwrite=True may be written."""
    frame = pd.DataFrame([range(len(columns))], columns=pd.Index(columns))
    protect(frame, NAMES, "label", overwrite)
    assert attach(frame, {name: ["new"] for name in NAMES})["label"].tolist() == ["new"]


@pytest.mark.parametrize(
    ("columns", "listed"),
    [
        (["text", "label"], "a column 'label'"),
        (["text", "label", "label_error"], "columns 'label', 'label_error'"),
        (["text", "label_provider"], "a column 'label_provider'"),
        ([("text", ""), ("label", "")], "a column 'label'"),
    ],
)
def test_columns_of_the_user_are_protected(columns: list[Any], listed: str) -> None:
    """A column that is not ours is refused, naming it and the two keywords."""
    frame = pd.DataFrame([range(len(columns))], columns=pd.Index(columns))
    with pytest.raises(ColumnError) as refusal:
        protect(frame, NAMES, "label", overwrite=False)
    for part in (listed, "output_column=", "overwrite=True"):
        assert part in str(refusal.value)


def test_a_name_there_twice_cannot_be_replaced() -> None:
    """Even overwrite=True does not choose between two columns of one name."""
    with pytest.raises(ColumnError, match="2 columns are called 'label'"):
        protect(pd.DataFrame([[1, 2]], columns=["label", "label"]), NAMES, "label", overwrite=True)


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index).__name__)
@pytest.mark.parametrize("kept", [slice(None), slice(0, 0)], ids=["rows", "empty"])
def test_attaching_goes_by_position_and_leaves_the_input_alone(index: pd.Index, kept: slice) -> None:
    """For any index the values land in row order beside an identical index, and the input is as before."""
    frame = pd.DataFrame({"text": ["a", "b", "c"]}, index=index).iloc[kept]
    frame.attrs["source"] = "here"
    before = frame.copy()
    values = pd.Series(["x", "y", "z"], index=[7, 7, 8]).iloc[kept]
    out = attach(attach(frame, {"label": values, "text": values}), {"label": values.str.upper()})
    assert out.index.identical(frame.index)
    assert out["label"].tolist() == ["X", "Y", "Z"][kept]
    assert out.columns.tolist() == ["text", "label"]
    assert out["text"].tolist() == ["x", "y", "z"][kept]
    assert out.attrs == {"source": "here"}
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(
    "columns",
    [
        pd.MultiIndex.from_tuples([("m", "x"), ("n", "y")]),
        pd.date_range("2024-01-01", periods=2),
        pd.CategoricalIndex(["a", "b"]),
        pd.Index([1, 2]),
        pd.Index(["a", "a"]),
    ],
    ids=lambda columns: type(columns).__name__,
)
def test_attaching_works_for_any_column_labels(columns: pd.Index) -> None:
    """A new column is found under its plain name, whatever the other labels are."""
    out = attach(pd.DataFrame([[1, 2]], columns=columns), {"label": text_values(["x"])})
    assert out["label"].tolist() == ["x"]
    assert out.shape == (1, 3)


def test_the_frames_class_is_kept() -> None:
    """A subclass of DataFrame comes back as that subclass."""

    class Special(pd.DataFrame):
        @property
        def _constructor(self) -> type[Special]:
            return Special

    assert type(attach(Special({"text": ["a"]}), {"label": ["x"]})) is Special


# ---- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a"],
        [1, "1"],
        [False, True],
        [2, 1],
        [0.5, 2],
        [Colour.RED, "red"],
        [Word.YES],
        [np.int64(1), 2],
        [pd.Timestamp("2024-01-02"), "x"],
    ],
    ids=repr,
)
def test_labels_come_back_as_they_were_given(labels: list[Any]) -> None:
    """Labels keep value, type and order, used or not, and missing is missing."""
    values = label_values([labels[-1], None, np.nan, pd.NA], labels)
    assert list(values.categories) == labels
    assert [type(label) for label in values.categories] == [type(label) for label in labels]
    assert values[0] == labels[-1]
    assert type(values[0]) is type(labels[-1])
    assert pd.isna(values).tolist() == [False, True, True, True]
    assert not values.ordered


def test_text_labels_have_plain_categories() -> None:
    """Labels that are all text give the same dtype as pandas would give them."""
    assert label_values(["a"], ["b", "a"]).dtype == pd.CategoricalDtype(["b", "a"])


def test_a_value_that_is_no_label_is_not_lost() -> None:
    """A value beside the labels is an error, not a missing value."""
    with pytest.raises(KeyError):
        label_values(["c"], ["a", "b"])


def test_texts_have_the_default_string_dtype() -> None:
    """Texts have pandas' string dtype, missing where None, and keep lone surrogates."""
    values = text_values(["a\0", None, "\ud800"])
    assert values.dtype == ("str" if int(pd.__version__.split(".")[0]) >= 3 else "string")
    assert pd.isna(values).tolist() == [False, True, False]
    assert [values[0], values[2]] == ["a\0", "\ud800"]


def test_no_values_have_the_dtype_all_the_same() -> None:
    """An empty frame's output has the dtypes of a full one's."""
    assert text_values([]).dtype == text_values(["a"]).dtype
    assert label_values([], ["a"]).dtype == label_values(["a"], ["a"]).dtype
