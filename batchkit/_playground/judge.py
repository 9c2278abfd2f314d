"""What a request asks for and what a model would say to it. Pure: no server, no clock, no model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Asked", "Meaning", "Verdict", "answer_value", "count_tokens", "expected", "read_meanings", "wrong_label"]

_ENDS_OF_A_LABEL = (": ", " = ")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, understood."""

    model: str
    text: str
    """The first user message: the row. A conversation that asks once more begins with it again."""
    system: str = ""
    schema: Mapping[str, Any] | None = None
    tool: str | None = None
    """The tool that the model is made to call; its arguments are the answer."""
    cap: int | None = None
    """Output tokens allowed."""
    input_tokens: int = 0
    streams: bool = False
    """Whether the reply is to come as a stream of JSON lines."""

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels on the wire, in order; empty where the request is not about labels."""
        return expected(self.schema)[0]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a label on the wire stands for, by the system prompt."""

    text: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model thinks: a label on the wire or any other JSON value, and how sure it is."""

    value: Any
    confidence: float = 1.0


def expected(schema: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], bool]:
    """Read the labels out of an answer's schema, and whether a list of them is wanted."""
    label = _properties(schema).get("label")
    if not isinstance(label, Mapping):
        return (), False
    items = label.get("items")
    many = isinstance(items, Mapping)
    enum = items.get("enum") if isinstance(items, Mapping) else label.get("enum")
    return (tuple(enum), many) if isinstance(enum, list) else ((), many)


def _properties(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    properties = schema.get("properties") if schema is not None else None
    return properties if isinstance(properties, Mapping) else {}


def read_meanings(system: str, labels: Sequence[Any]) -> dict[Any, Meaning]:
    """Find in a system prompt what each of ``labels`` means.

    Read are lines ``- label``, ``- label: description``, ``- code = text`` and
    ``- code = text: description``; the first line for a label counts, and where several labels
    begin a line, the longest. A label without a line means itself.
    """
    wanted = {str(label): label for label in labels}
    found: dict[Any, Meaning] = {}
    for line in system.split("\n"):
        if line.startswith("- "):
            name, meaning = _read_line(line[2:], wanted)
            if meaning is not None:
                found.setdefault(wanted[name], meaning)
    return {label: found.get(label, Meaning(str(label))) for label in labels}


def _read_line(line: str, wanted: Mapping[str, Any]) -> tuple[str, Meaning | None]:
    if line in wanted:
        return line, Meaning(line)
    ends = sorted({at for end in _ENDS_OF_A_LABEL for at in _places(line, end)}, reverse=True)
    for at in ends:
        name, rest = line[:at], line[at:]
        if name not in wanted:
            continue
        if rest.startswith(": "):
            return name, Meaning(name, rest[2:])
        text, colon, description = rest[3:].partition(": ")
        return name, Meaning(text, description if colon else None)
    return "", None


def _places(line: str, end: str) -> list[int]:
    places = []
    at = line.find(end)
    while at >= 0:
        places.append(at)
        at = line.find(end, at + 1)
    return places


def answer_value(asked: Asked, verdict: Verdict) -> Any:
    """Put a verdict into the shape that the request wants.

    Without a schema, the verdict's value. With one, a JSON object: a mapping as it is, anything
    else under ``label``, beside ``confidence`` if the schema has that property.
    """
    if asked.schema is None or isinstance(verdict.value, Mapping):
        return verdict.value
    properties = _properties(asked.schema)
    if "label" not in properties:
        return verdict.value
    many = expected(asked.schema)[1] and not isinstance(verdict.value, list)
    value: dict[str, Any] = {"label": [verdict.value] if many else verdict.value}
    if "confidence" in properties:
        value["confidence"] = verdict.confidence
    return value


def wrong_label(labels: Sequence[Any]) -> str:
    """Make a label that is none of ``labels`` and resembles none."""
    wrong = "no such label"
    while any(wrong in str(label) for label in labels):
        wrong += " at all"
    return wrong


def count_tokens(*texts: str) -> int:
    """Count tokens as a rule of thumb does: four bytes each, at least one in all."""
    return max(1, math.ceil(sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) / 4))
