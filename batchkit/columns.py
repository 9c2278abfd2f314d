"""Between a frame and the engine: cells become texts, equal rows one unit, answers new columns."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit.errors import ColumnError, InputError, nearest

__all__ = [
    "Table",
    "Units",
    "attach",
    "has_all",
    "label_values",
    "list_values",
    "named",
    "protect",
    "read",
    "samples",
    "text_values",
    "units",
]

_PANDAS = int(pd.__version__.partition(".")[0])
_DEFAULT_STRING: Any = "str" if _PANDAS >= 3 else "string"

Texts = npt.NDArray[np.object_]
Flags = npt.NDArray[np.bool_]


# ---- reading ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A frame and the text of each of its rows.

    Attributes
    ----------
    frame : DataFrame
        As it was when it was read, whatever is done to the user's later.
    columns : tuple
        Labels of the columns the texts come from.
    texts : ndarray of object
        One ``str`` per row, ``""`` where blank.
    blank : ndarray of bool
        Rows that hold nothing to ask about.
    """

    frame: pd.DataFrame
    columns: tuple[Hashable, ...]
    texts: Texts
    blank: Flags

    def series(self, label: Hashable) -> pd.Series[Any]:
        """The one column of that label; `ColumnError` where there is none, or more than one."""
        return _pick(self.frame, label)


def read(frame: pd.DataFrame, column: Hashable | Sequence[Hashable]) -> Table:
    r"""Read the text of every row.

    Parameters
    ----------
    frame : DataFrame
        With any index and any columns.
    column : label or list of labels
        A tuple that is a column's label is one label.

    Returns
    -------
    Table
        For one column the cell's text unchanged, for several one line ``name: value`` each. A row
        is blank where the cell (of several columns: every cell) is missing or only white space.

    Raises
    ------
    InputError
        ``frame`` is no DataFrame.
    ColumnError
        A column is not there (the message names the nearest) or there more than once.

    Examples
    --------
    >>> frame = pd.DataFrame({"text": ["late again", None], "stars": [1, 5]})
    >>> read(frame, "text").blank.tolist()
    [False, True]
    >>> read(frame, ["text", "stars"]).texts.tolist()
    ['text: late again\nstars: 1', 'text:\nstars: 5']
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"a pandas DataFrame is needed, not {type(frame).__name__} ({_shortened(frame)}).")
    columns = _chosen(frame, column)
    parts = [_cells(_pick(frame, label)) for label in columns]
    texts, blank = parts[0] if len(parts) == 1 else _joined(columns, parts)
    return Table(frame.copy(deep=not _copies_on_write()), columns, texts, blank)


def _copies_on_write() -> bool:
    """Whether a copy shares its data until one of the two is changed."""
    return _PANDAS >= 3 or pd.options.mode.copy_on_write is True


def _chosen(frame: pd.DataFrame, column: object) -> tuple[Hashable, ...]:
    labels: set[Hashable] = set(frame.columns)
    if isinstance(column, tuple) and column not in labels and any(part in labels for part in column):
        column = list(column)
    chosen = tuple(column) if isinstance(column, (list, np.ndarray, pd.Index)) else (column,)
    if not chosen:
        raise ColumnError(f"no column is named in {column!r}. {nearest('', map(_name, frame.columns))}")
    for label in chosen:
        if isinstance(label, pd.Series):
            raise ColumnError(
                "a Series is no column label. Name the column, as in df.llm.classify('text', labels), or ask about the "
                "Series itself: df['text'].llm.classify(labels)."
            )
        if not isinstance(label, Hashable):
            raise ColumnError(f"{_shortened(label)} is no column label. Give one label or a list of labels.")
    return chosen


def _pick(frame: pd.DataFrame, label: Hashable) -> pd.Series[Any]:
    places = _places(frame, label)
    if not places:
        raise ColumnError(f"there is no column {label!r}. {nearest(label, map(_name, frame.columns))}")
    if len(places) > 1:
        raise ColumnError(f"{len(places)} columns are called {label!r}, at positions {places}. Rename all but one.")
    return frame.iloc[:, places[0]]


def _places(frame: pd.DataFrame, label: Hashable) -> list[int]:
    # Not `label in frame.columns`: that also finds ("a", "x") when asked for "a".
    return [place for place, known in enumerate(frame.columns) if known == label]


def _cells(column: pd.Series[Any]) -> tuple[Texts, Flags]:
    missing = column.isna().to_numpy(dtype=bool)
    # Cell by cell and not astype(object), which would turn a float32 of 0.1 into 0.10000000149011612.
    texts = _objects(column.array, len(column))
    if not set(map(type, texts[~missing])) <= {str}:
        texts = _objects(("" if gone else _text(cell) for cell, gone in zip(texts, missing, strict=True)), len(texts))
    texts[missing] = ""
    blank = np.fromiter((not text or text.isspace() for text in texts), dtype=bool, count=len(texts))
    texts[blank] = ""
    return texts, blank


def _joined(columns: Sequence[Hashable], parts: Sequence[tuple[Texts, Flags]]) -> tuple[Texts, Flags]:
    heads = [f"{_name(label)}:" for label in columns]
    rows = zip(*(texts for texts, _ in parts), strict=True)
    lines = (
        "\n".join(f"{head} {text}" if text else head for head, text in zip(heads, row, strict=True)) for row in rows
    )
    blank = np.logical_and.reduce([part for _, part in parts])
    texts = _objects(lines, len(blank))
    texts[blank] = ""
    return texts, blank


def _name(label: Hashable) -> str:
    return " / ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _objects(values: Iterable[object], count: int) -> Texts:
    return np.fromiter(values, dtype=object, count=count)


def _text(cell: object) -> str:
    """The cell as text, whatever it is."""
    try:
        return str.__str__(_raw_text(cell))
    except Exception:  # noqa: BLE001 - a cell is any object at all, and one bad row never stops the rest
        return repr(type(cell))


def _raw_text(cell: object) -> str:
    match cell:
        case str():
            return cell
        case date() | time():
            return cell.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(cell).decode("utf-8", "replace")
        case list() | dict() | tuple() | set() | frozenset() | np.ndarray():
            return _json(cell)
        case _:
            return str(cell)


def _json(cell: object) -> str:
    try:
        return json.dumps(cell, ensure_ascii=False, default=_json_value)
    except (TypeError, ValueError, RecursionError):
        return str(cell)


def _json_value(value: object) -> object:
    match value:
        case set() | frozenset():
            # In a fixed order: a text that differs from process to process would be paid for again.
            return sorted(value, key=repr)
        case np.ndarray():
            return value.tolist()
        case np.bool_() | np.number():
            return value.item()
        case _:
            return _text(value)


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- equal rows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What is asked: rows of one text and one itinerary are one unit.

    Attributes
    ----------
    unit_of_row : ndarray of int64
        For each row its unit, -1 where nobody is asked.
    first_row : ndarray of int64
        For each unit the position of its first row.
    """

    unit_of_row: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]


def units(texts: Texts, blank: Flags, codes: npt.NDArray[np.integer[Any]], dedupe: bool) -> Units:
    """Give rows of equal text and equal itinerary code one number, in order of first appearance.

    Parameters
    ----------
    texts : ndarray of object
        One ``str`` per row.
    blank : ndarray of bool
        Rows that are not asked.
    codes : ndarray of int
        One itinerary code per row, none of them negative.
    dedupe : bool
        False makes every asked row a unit of its own.
    """
    asked = np.flatnonzero(~blank).astype(np.int64)
    unit_of_row = np.full(len(texts), -1, dtype=np.int64)
    if dedupe and len(asked):
        width = int(codes.max()) + 1
        numbers, _ = pd.factorize(_numbered(texts[asked]) * width + codes[asked].astype(np.int64))
        _, firsts = np.unique(numbers, return_index=True)
        unit_of_row[asked] = numbers
        return Units(unit_of_row, asked[firsts])
    unit_of_row[asked] = np.arange(len(asked))
    return Units(unit_of_row, asked)


def samples(texts: Texts, units: Units) -> dict[int, int]:
    """Number the units of equal text from 0, over all rows, asked or not: a part of them has the same numbers again.

    Returns
    -------
    dict of int to int
        By unit; only those above 0.
    """
    numbers = pd.Series(_numbered(texts))
    number_of_unit = numbers.groupby(numbers).cumcount().to_numpy()[units.first_row]
    return {int(unit): int(number_of_unit[unit]) for unit in np.flatnonzero(number_of_unit)}


def _numbered(texts: Texts) -> npt.NDArray[np.int64]:
    # A dict and not pd.factorize: before pandas 3 that takes texts for equal which differ after
    # a NUL byte, and all lone surrogates for one.
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    return np.fromiter(map(numbers.__getitem__, texts), dtype=np.int64, count=len(texts))


# ---- writing ----------------------------------------------------------------------------------


def protect(frame: pd.DataFrame, names: Iterable[str], out: str, overwrite: bool) -> bool:
    """Refuse to write over columns that are not ours; say whether ``<out>`` is an earlier output of ours.

    Parameters
    ----------
    frame : DataFrame
        To which columns are to be added.
    names : iterable of str
        All columns to be written.
    out : str
        The output's name; with ``<out>_provider`` and ``<out>_error`` in the frame, columns of
        these names are an earlier output of ours and may be replaced.
    overwrite : bool
        The user's leave to replace any column.

    Raises
    ------
    ColumnError
        A column to be written is there already, and it is not ours to replace; or it is there
        more than once.
    """
    there: Counter[Hashable] = Counter(frame.columns)
    counts = {name: there[_key(frame, name)] for name in names}
    taken = [name for name, count in counts.items() if count]
    ours = all(there[_key(frame, f"{out}_{part}")] for part in ("provider", "error"))
    if taken and not (ours or overwrite):
        listed = ", ".join(map(repr, taken))
        raise ColumnError(
            f"the frame already has {'a column' if len(taken) == 1 else 'columns'} {listed}. Pass output_column= to "
            "write under another name, or overwrite=True to replace what is there."
        )
    for name in taken:
        if counts[name] > 1:
            raise ColumnError(
                f"{counts[name]} columns are called {name!r}, so none can be replaced, not even with overwrite=True. "
                "Rename or drop them, or pass output_column= to write under another name."
            )
    return ours


def has_all(frame: pd.DataFrame, names: Iterable[str]) -> bool:
    """Whether a frame has a column of each of these names."""
    return {_key(frame, name) for name in names} <= set(frame.columns)


def attach(frame: pd.DataFrame, new: Mapping[str, Any], drop: Iterable[str] = ()) -> pd.DataFrame:
    """Return a copy of ``frame`` with columns added or replaced.

    Parameters
    ----------
    frame : DataFrame
        Never changed.
    new : mapping of str to array
        One value per row, in row order. An index of theirs is ignored. Where the frame has
        several levels of column labels, a name stands on the first and the others are empty.
    drop : iterable of str
        Columns to leave out, if they are there and not replaced.

    Returns
    -------
    DataFrame
        Of the frame's own class, with the identical index.
    """
    dropped = [_key(frame, name) for name in drop if name not in new]
    out = (frame.drop(columns=dropped, errors="ignore") if dropped else frame).copy()
    for name, values in new.items():
        out[_key(out, name)] = values.array if isinstance(values, (pd.Series, pd.Index)) else values
    return out


def _key(frame: pd.DataFrame, name: str) -> Hashable:
    levels = frame.columns.nlevels
    return name if levels == 1 else (name, *[""] * (levels - 1))


def label_values(values: Sequence[Any], labels: Sequence[Hashable]) -> pd.Categorical:
    """Return labels as a Categorical over ``labels``, in the order given.

    Parameters
    ----------
    values : sequence
        Labels, and None, NaN or NA where missing.
    labels : sequence
        Distinct scalars. They come back equal and of the same type: only if all are ``str``
        are the categories of pandas' string kind, else they are kept as objects.

    Raises
    ------
    KeyError
        A value is neither a label nor missing.

    Examples
    --------
    >>> label_values([True, None], [False, True]).tolist()
    [True, nan]
    """
    codes = {label: code for code, label in enumerate(labels)}
    cells = _objects(values, len(values))
    missing = pd.isna(cells)
    found = [-1 if gone else codes[cell] for cell, gone in zip(cells, missing, strict=True)]
    return pd.Categorical.from_codes(found, categories=_categories(labels))


def _categories(labels: Sequence[Hashable]) -> pd.Index[Any]:
    if all(type(label) is str for label in labels):
        with contextlib.suppress(UnicodeEncodeError):  # Arrow holds no lone surrogates.
            return pd.Index(list(labels))
    return pd.Index(_objects(labels, len(labels)), dtype=object, tupleize_cols=False)


def named(codes: npt.NDArray[np.integer[Any]], names: Sequence[str]) -> pd.Categorical:
    """Return the Categorical whose codes are positions in ``names``; -1 is missing."""
    return pd.Categorical.from_codes(codes, categories=_categories(names))


def merged(own: npt.NDArray[np.bool_], ours: Any, others: Any) -> Any:
    """Return ``ours`` where ``own``, else ``others``: one column of rows from two."""
    # As numpy's objects throughout: pandas would make texts of them, and Arrow holds no lone surrogates.
    joined = np.where(own, np.asarray(ours, dtype=object), np.asarray(others, dtype=object))
    if isinstance(ours, pd.Categorical):
        return label_values(list(joined), list(dict.fromkeys([*ours.categories, *others.categories])))
    if isinstance(ours, np.ndarray):
        return joined.astype(ours.dtype)
    if isinstance(ours.dtype, pd.StringDtype):
        return text_values([None if gone else text for text, gone in zip(joined, pd.isna(joined), strict=True)])
    return pd.array(joined, dtype=ours.dtype)


def list_values(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Return answers that are lists as they are, NaN where missing."""
    cells = _objects(values, len(values))
    cells[[cell is None for cell in cells]] = np.nan
    return cells


def text_values(values: Sequence[str | None]) -> pd.api.extensions.ExtensionArray:
    """Return texts as an array of pandas' default string dtype: ``str``, before pandas 3 ``string``."""
    cells = _objects(values, len(values))
    try:
        texts: pd.api.extensions.ExtensionArray = pd.array(cells, dtype=_DEFAULT_STRING)
    except UnicodeEncodeError:
        # The same dtype kept in Python objects holds the lone surrogates that Arrow refuses.
        texts = pd.array(cells, dtype=pd.StringDtype("python", na_value=np.nan))
    return texts
