"""The labels of a question: what they are called on the wire, and which one a reply means."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchkit.errors import LabelError

__all__ = ["LabelSet", "normal"]

_SPACE = re.compile(r"\s+")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")


def normal(text: str) -> str:
    """Fold case, white space and surrounding quotes or punctuation: ``' "Very  good." '`` is ``very good``."""
    folded = _SPACE.sub(" ", text).strip().casefold()
    return _EDGES.sub("", folded) or folded


class LabelSet:
    """Labels in the order given, each with the text that stands for it on the wire.

    Where the labels' own texts could be mistaken for one another (``1`` and ``"1"``, ``Yes``
    and ``yes``, line breaks), codes stand for them instead.

    Parameters
    ----------
    labels : sequence
        Distinct scalars.
    descriptions : sequence of str or None
        What each label means, for the model.
    """

    __slots__ = ("_exact", "_lenient", "_typed", "coded", "descriptions", "labels", "texts", "wires")

    def __init__(self, labels: Sequence[Any], descriptions: Sequence[str | None] | None = None) -> None:
        self.labels = tuple(labels)
        self.descriptions = tuple(descriptions) if descriptions is not None else (None,) * len(self.labels)
        _refuse_bad_labels(self.labels)
        self.texts = _texts(self.labels)
        plain = [normal(text) for text in self.texts]
        self.coded = len(set(plain)) < len(plain) or any(_hard_to_quote(text) for text in self.texts)
        self.wires = _codes(len(plain), set(plain)) if self.coded else self.texts
        self._typed = {_typed(label): i for i, label in enumerate(self.labels)}
        for i, label in enumerate(self.labels):
            if isinstance(label, enum.Enum):
                self._typed.setdefault(_typed(label.value), i)
        names = [(text, i) for i, text in enumerate(self.texts)]
        names += [(wire, i) for i, wire in enumerate(self.wires)]
        names += [(label.name, i) for i, label in enumerate(self.labels) if isinstance(label, enum.Enum)]
        self._exact = _unambiguous(names)
        self._lenient = _unambiguous((normal(text), i) for text, i in names)

    @classmethod
    def of(cls, given: object) -> LabelSet:
        """Read what a user may give as labels: a list, a dict label -> description, an Enum, a Literal."""
        if isinstance(given, LabelSet):
            return given
        if isinstance(given, Mapping):
            return cls(tuple(given), tuple(_description(label, text) for label, text in given.items()))
        if isinstance(given, type) and issubclass(given, enum.Enum):
            return cls(tuple(given))
        if typing.get_origin(given) is typing.Literal:
            return cls(typing.get_args(given))
        if isinstance(given, (str, bytes)):
            raise LabelError(f"labels must be a list, a dict, an Enum or a Literal; got the single text {given!r}.")
        if isinstance(given, (set, frozenset)):
            raise LabelError("labels came as a set, which has no order. Give a list: the order decides the categories.")
        if not isinstance(given, Iterable):
            raise LabelError(f"labels must be a list, a dict, an Enum or a Literal; got {given!r}.")
        return cls(tuple(given))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"LabelSet({list(self.labels)!r})"

    def position(self, label: object) -> int | None:
        """The position of a label given as it is: equal and of the same type."""
        try:
            return self._typed.get(_typed(label))
        except TypeError:
            return None

    def find(self, value: object, *, typed: bool) -> int | None:
        """Say which label a reply means, or None where that is not certain.

        Parameters
        ----------
        value : object
            What the reply holds where the label belongs.
        typed : bool
            Whether the value's type was chosen by code (a function's return value) and not by
            a model writing JSON: only then does ``1`` differ from ``"1"``.
        """
        if typed:
            position = self.position(value)
            if position is not None:
                return position
        if isinstance(value, (dict, list, tuple, set)) or value is None:
            return None
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        position = self._exact.get(text)
        if position is None:
            position = self._lenient.get(normal(text))
        return None if position is None or position < 0 else position


def _typed(label: object) -> tuple[type, object]:
    return type(label), label


def _unambiguous(names: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Text -> position; -1 where one text would name two labels."""
    table: dict[str, int] = {}
    for text, position in names:
        if table.setdefault(text, position) != position:
            table[text] = -1
    return table


def _texts(labels: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_text(label) for label in labels)


def _text(label: object) -> str:
    if isinstance(label, enum.Enum):
        return label.value if isinstance(label.value, str) else label.name
    return label if isinstance(label, str) else str(label)


def _hard_to_quote(text: str) -> bool:
    return not text or text != text.strip() or not text.isprintable()


def _codes(count: int, taken: set[str]) -> tuple[str, ...]:
    """Short codes that no label's own text could be taken for."""
    for prefix in ("", "L", "code-", "the-label-"):
        codes = tuple(_letters(i) if not prefix else f"{prefix}{i + 1}" for i in range(count))
        if not taken & {normal(code) for code in codes}:
            return codes
    raise LabelError("no codes could be found for these labels; give texts that differ in more than case and spaces.")


def _letters(i: int) -> str:
    """A, B, ..., Z, AA, AB, ...: spreadsheet columns."""
    letters = ""
    i += 1
    while i:
        i, rest = divmod(i - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _description(label: object, text: object) -> str | None:
    if text is None or isinstance(text, str):
        return text or None
    raise LabelError(
        f"the description of label {label!r} is {text!r}, not text. A dict of labels is label -> description for the "
        "model; to get other values back, map the output column afterwards."
    )


def _refuse_bad_labels(labels: Sequence[Any]) -> None:
    if not labels:
        raise LabelError("there are no labels. Give at least one, for example ['billing', 'delivery', 'defect'].")
    seen: dict[Any, Any] = {}
    for i, label in enumerate(labels):
        if label is None or _is_missing(label):
            raise LabelError(
                f"label {i} is {label!r}, which pandas reads as missing. Use a text such as 'none' instead."
            )
        try:
            hash(label)
        except TypeError:
            raise LabelError(f"label {i} is {label!r}; labels are single values (text, number, bool, Enum).") from None
        if isinstance(label, tuple):
            raise LabelError(f"label {i} is the tuple {label!r}; labels are single values (text, number, bool, Enum).")
        if label in seen:
            raise LabelError(f"the labels {seen[label]!r} and {label!r} are equal. Keep one, or make them differ.")
        seen[label] = label


def _is_missing(label: object) -> bool:
    """NaN, NaT and NA are not equal to themselves, or refuse to say."""
    try:
        return not bool(label == label)  # noqa: PLR0124
    except (TypeError, ValueError):
        return True
