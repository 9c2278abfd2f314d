"""The labels of a question: what they are called on the wire, and which one a reply means."""

from __future__ import annotations

import enum
import itertools
import re
import typing
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from batchkit.errors import LabelError

__all__ = ["LabelSet", "hard_to_quote", "normal"]

_Name = TypeVar("_Name")

_SPACE = re.compile(r"\s+")
_PUNCTUATION = frozenset({"Pc", "Ps", "Pe", "Pi", "Pf", "Po"})
_MEANINGFUL = frozenset("#%&@/\\§‰")
"""Punctuation that belongs to a word or number. So do signs, vowel marks and emoji: C++ is not C, nor -1 one."""


def normal(text: str) -> str:
    """Fold case, white space and surrounding quotes or punctuation: ``' "Very  good." '`` is ``very good``.

    Examples
    --------
    >>> normal(' "Very  good." '), normal("**Late!**"), normal("-1"), normal("C++")
    ('very good', 'late', '-1', 'c++')
    """
    folded = unicodedata.normalize("NFC", _SPACE.sub(" ", text).strip().casefold())
    start, end = 0, len(folded)
    while start < end and _is_edge(folded[start]) and not _is_point(folded, start):
        start += 1
    while end > start and _is_edge(folded[end - 1]):
        end -= 1
    return folded[start:end] or folded


def _is_edge(char: str) -> bool:
    return char in " `´" or (unicodedata.category(char) in _PUNCTUATION and char not in _MEANINGFUL)


def _is_point(text: str, i: int) -> bool:
    """Whether the dot or comma at ``i`` begins a number: ``.5`` is not 5."""
    return text[i] in ".," and text[i + 1 : i + 2].isdigit()


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
        aliases = list(_aliases(self.labels))
        self.coded = len(set(plain)) < len(plain) or any(hard_to_quote(text) for text in self.texts)
        taken = {*plain, *(normal(text) for text, _ in aliases)}
        self.wires = _codes(len(plain), taken) if self.coded else self.texts
        self._typed = _typed_values(self.labels)
        names = [(text, i) for texts in (self.texts, self.wires) for i, text in enumerate(texts)]
        # What the model was shown comes first: another label's alias must not make it ambiguous.
        self._exact = _unambiguous(aliases) | _unambiguous(names)
        self._lenient = _unambiguous(_folded(aliases)) | _unambiguous(_folded(names))

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
            raise LabelError(
                f"labels must be a list, a dict, an Enum or a Literal; got the single text {given!r}. "
                "Write a list, for example ['billing', 'delivery']."
            )
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
            position = self._typed.get(_typed(label))
        except TypeError:
            return None
        return None if position is None or position < 0 else position

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
        elif type(value) is str and (position := self._exact.get(value, -1)) >= 0:
            return position  # the usual reply: a label as it was listed
        for text in _reply_texts(value):
            position = self._exact.get(text)
            if position is None:
                position = self._lenient.get(normal(text))
            if position is not None:
                return position if position >= 0 else None
        return None


def _typed(label: object) -> tuple[type, object]:
    return type(label), label


def _typed_values(labels: Sequence[Any]) -> dict[Any, int]:
    """Labels, and the values of Enum members, by type and value -> position."""
    members = ((i, label.value) for i, label in enumerate(labels) if isinstance(label, enum.Enum))
    values = _unambiguous((_typed(value), i) for i, value in members if _is_hashable(value))
    return values | {_typed(label): i for i, label in enumerate(labels)}


def _unambiguous(names: Iterable[tuple[_Name, int]]) -> dict[_Name, int]:
    """Name -> position; -1 where one name would mean two labels."""
    table: dict[_Name, int] = {}
    for name, position in names:
        if table.setdefault(name, position) != position:
            table[name] = -1
    return table


def _folded(names: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    return ((normal(text), i) for text, i in names)


def _aliases(labels: Sequence[Any]) -> Iterable[tuple[str, int]]:
    """Other texts that mean a label as long as no label's own text does."""
    for i, label in enumerate(labels):
        if isinstance(label, enum.Enum):
            yield label.name, i
            if _is_plain(label.value):
                yield _plain_text(label.value), i
        elif _is_plain(label):
            yield _plain_text(label), i


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float))


def _plain_text(value: Any) -> str:
    """The text of a number or text however it is spelled in JSON: 1.0 is ``1``."""
    if isinstance(value, str):
        return str.__str__(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _reply_texts(value: Any) -> tuple[str, ...]:
    """What a reply holds as text, a number as it is and then without ``.0``; nothing where it holds no one value."""
    if value is None or isinstance(value, (dict, list, tuple, set, frozenset)):
        return ()
    try:
        if _is_missing(value):
            return ()
        return (str(value), _plain_text(value)) if isinstance(value, float) else (_plain_text(value),)
    except Exception:  # noqa: BLE001 - a function may return any object at all; one without a text is no label
        return ()


def _texts(labels: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_text(label) for label in labels)


def _text(label: object) -> str:
    if isinstance(label, enum.Enum):
        return label.value if isinstance(label.value, str) else label.name
    return label if isinstance(label, str) else str(label)


def hard_to_quote(text: str) -> bool:
    """Whether a text is not seen for what it is in a line of a prompt: empty, padded, with unprintable characters."""
    return not text or text != text.strip() or not text.isprintable()


def _codes(count: int, taken: set[str]) -> tuple[str, ...]:
    """Short codes that no label's own text could be taken for: A, B, ...; else L1, L2, ...; else LL1, ..."""
    letters = tuple(_letters(i) for i in range(count))
    numbered = (tuple(f"{'L' * length}{i + 1}" for i in range(count)) for length in itertools.count(1))
    return next(codes for codes in itertools.chain([letters], numbered) if taken.isdisjoint(map(normal, codes)))


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
        if isinstance(label, (tuple, frozenset)):
            raise LabelError(f"label {i} is {label!r}; labels are single values (text, number, bool, Enum).")
        if label in seen:
            if repr(seen[label]) == repr(label):
                raise LabelError(f"the label {label!r} is given twice. Give each once; of a column: .unique().")
            raise LabelError(f"the labels {seen[label]!r} and {label!r} are equal. Keep one, or make them differ.")
        seen[label] = label


def _is_missing(label: object) -> bool:
    """NaN, NaT and NA are not equal to themselves, or refuse to say."""
    try:
        return not bool(label == label)  # noqa: PLR0124
    except (TypeError, ValueError, ArithmeticError):
        return True


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
