"""What is asked of every row: the words, the schema, and what counts as an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from batchkit._logic import prompting
from batchkit._logic.labels import LabelSet
from batchkit._logic.parsing import value_of
from batchkit.records import Answer, Brief, Complaint, Probabilities, Reply, Structured, Text

__all__ = ["Classify", "Task"]


class Task(Protocol):
    """A question that can be put about any row."""

    @property
    def name(self) -> str:
        """As the verb is called."""

    def brief(self, vendor_instructions: str | None = None) -> Brief:
        """Everything about the question but the row, for one provider."""

    def check(self, reply: Reply) -> Answer | Complaint:
        """Read an answer out of a reply, or say what is wrong with it."""

    def reply_bytes(self) -> float:
        """How long a usual reply is, roughly."""

    def dump(self, value: Any) -> Any:
        """Write an answer's value as JSON can hold it."""

    def load(self, written: Any) -> Any:
        """Read back what `dump` wrote; raises ValueError, IndexError or TypeError where it cannot be."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Choose one label for a text, or with ``multi_label`` all that apply."""

    labels: LabelSet
    instructions: str | None = None
    examples: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(text, positions of its labels) pairs."""
    multi_label: bool = False
    confidence: bool = True
    """Whether to ask for a stated confidence, and to report any."""
    name: str = "classify"

    def brief(self, vendor_instructions: str | None = None) -> Brief:
        """Everything about the question but the row, for one provider."""
        instructions = [text.strip() for text in (self.instructions, vendor_instructions) if text and text.strip()]
        return Brief(
            system=prompting.classify_system(
                self.labels, instructions, self.examples, multi_label=self.multi_label, confidence=self.confidence
            ),
            labels=self.labels.labels,
            schema=prompting.classify_schema(self.labels, multi_label=self.multi_label, confidence=self.confidence),
            max_output_tokens=_room_for(self.labels, self.multi_label),
            label_texts=self.labels.texts,
            descriptions=self.labels.descriptions,
            examples=tuple((text, positions[0]) for text, positions in self.examples if len(positions) == 1),
        )

    def check(self, reply: Reply) -> Answer | Complaint:
        """Read an answer out of a reply, or say what is wrong with it."""
        match reply:
            case Text(text):
                return self._read(value_of(text), typed=False)
            case Probabilities(weights, source):
                best = max(range(len(weights)), key=weights.__getitem__)
                return self._answer(self.labels.labels[best], weights[best], source)
            case Structured(value):
                verdict = self._read(value, typed=True)
                # A function may return a reply's text as well as an answer: a label is tried first.
                is_text = isinstance(verdict, Complaint) and isinstance(value, str)
                return self._read(value_of(value), typed=False) if is_text else verdict

    def reply_bytes(self) -> float:
        """How long a usual reply is, roughly: one label of average length in its JSON."""
        sizes = [len(wire.encode("utf-8", "replace")) for wire in self.labels.wires]
        return len('{"label":""}') + sum(sizes) / len(sizes) + (len(',"confidence":0.95') if self.confidence else 0)

    def dump(self, value: Any) -> Any:
        """Write an answer as the positions of its labels, which the key of an answer fixes."""
        labels = value if self.multi_label else [value]
        positions = [self.labels.position(label) for label in labels]
        return positions if self.multi_label else positions[0]

    def load(self, written: Any) -> Any:
        """Read back what `dump` wrote."""
        return [self.labels.labels[i] for i in written] if self.multi_label else self.labels.labels[written]

    def _read(self, value: Any, *, typed: bool) -> Answer | Complaint:
        found, confidence = _split(value)
        answer = self._many(found, typed) if self.multi_label else self._one(found, typed)
        if answer is None:
            return Complaint(prompting.classify_complaint(found, self.labels, multi_label=self.multi_label))
        return self._answer(answer[0], confidence, "stated")

    def _one(self, found: Any, typed: bool) -> tuple[Any] | None:
        if isinstance(found, (list, tuple)) and len(found) == 1:
            found = found[0]
        position = self.labels.find(found, typed=typed)
        return None if position is None else (self.labels.labels[position],)

    def _many(self, found: Any, typed: bool) -> tuple[list[Any]] | None:
        members = list(found) if isinstance(found, (list, tuple, set, frozenset)) else [found]
        positions = [self.labels.find(member, typed=typed) for member in members]
        if None in positions:
            return None
        return ([label for i, label in enumerate(self.labels.labels) if i in positions],)

    def _answer(self, value: Any, confidence: float | None, source: str) -> Answer:
        if not self.confidence or confidence is None:
            return Answer(value)
        return Answer(value, confidence, source)


def _split(value: Any) -> tuple[Any, float | None]:
    """Take a reply's label and confidence apart; a value that is no mapping is the label itself."""
    if type(value) is not dict and not isinstance(value, Mapping):
        return value, None
    confidence = _confidence(value.get("confidence"))
    if "label" in value:
        return value["label"], confidence
    rest = [part for name, part in value.items() if name != "confidence"]
    return (rest[0] if len(rest) == 1 else None), confidence


def _confidence(stated: Any) -> float | None:
    """A number from 0 to 1; what is none of that is missing, never a complaint."""
    if type(stated) is float:
        return stated if 0 <= stated <= 1 else None
    if isinstance(stated, bool) or not isinstance(stated, (str, Real)):
        return None
    try:
        number = float(stated)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number <= 1 else None


def _room_for(labels: LabelSet, multi_label: bool) -> int:
    """Tokens for the longest answer: a byte is never more than a token, braces and confidence need about 40."""
    sizes = [len(wire.encode("utf-8", "replace")) + 4 for wire in labels.wires]
    return max(64, 48 + (sum(sizes) if multi_label else max(sizes)))
