"""What a model refuses is left out or said in another way: from a refused request to the next thing to try."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from batchkit._dialects.base import as_mapping
from batchkit._dialects.errors import is_no_model
from batchkit._dialects.profiles import ladder, wants_thinking
from batchkit.records import Brief, Endpoint, Failure, Quirks

__all__ = ["EFFORTS", "Knob", "Shape", "changes", "least", "next_quirks", "rung_of"]

EFFORTS = ("none", "minimal", "low", "medium", "high")
"""From the least thinking to the most."""

_RUNGS = ("schema", "tool", "json", "text")
"""All ways to ask for the form of an answer, the most certain first."""
_REFUSING = frozenset({400, 404, 422, 501})
_ABOUT_SIZE = re.compile(
    r"too (?:large|small|high|big)|at (?:most|least)|exceed|maximum|greater than|less than|range", re.I
)
_ABOUT_FIELD = re.compile(
    r"un(?:known|recognized|expected|supported) (?:\w+ )?(?:parameter|argument|field|name)|extra (?:inputs|fields)"
    r"|not permitted|unsupported_parameter|unknown_parameter|cannot find field",
    re.I,
)
_WORDS = {
    "schema": "with a JSON schema",
    "tool": "through a forced tool",
    "json": "in JSON mode, with the schema in the prompt",
    "text": "as plain text, with the schema in the prompt",
}


@dataclass(frozen=True, slots=True)
class Knob:
    """An optional field of a request, and the names under which it is complained about."""

    path: str
    """Where it stands in the body."""
    names: tuple[str, ...] = ()
    """Other names; a blank or underscore may be either or neither."""
    values: tuple[str, ...] = ()
    """Values that can be tried in turn before it is left out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the form of the answer is asked for in a dialect: the fields concerned, and their other names."""

    fields: tuple[str, ...]
    names: tuple[str, ...]


def rung_of(brief: Brief, endpoint: Endpoint, quirks: Quirks) -> str | None:
    """Return how to ask for the form of the answer; None where any text will do."""
    if brief.schema is None:
        return None
    rungs = ladder(endpoint)
    if quirks.rung is None:
        return rungs[0]
    # A rung that is not on the ladder was learned under another setting: the next lower one then.
    learned = _RUNGS.index(quirks.rung)
    return next((rung for rung in rungs if _RUNGS.index(rung) >= learned), rungs[-1])


def least(path: str, value: str, quirks: Quirks, values: Sequence[str] = EFFORTS) -> str | None:
    """Return ``value``, or the next of ``values`` that was not refused; None where none is left."""
    if path in quirks.dropped:
        return None
    rest = values[values.index(value) :] if value in values else (value,)
    return next((each for each in rest if f"{path}={each}" not in quirks.dropped), None)


def next_quirks(
    failure: Failure,
    prepare: Callable[[Brief, Endpoint, Quirks], Mapping[str, Any]],
    endpoint: Endpoint,
    quirks: Quirks,
    brief: Brief,
    *,
    shape: Shape,
    knobs: Sequence[Knob],
    cap_fields: Sequence[str] = (),
) -> Quirks | None:
    """Say what to leave out or to change after a request was refused; None where nothing helps.

    Every step goes further in one direction only, so that a chain of refusals ends: down the
    ladder of forms, to the other name of the cap once, or one more field or value not sent.
    What nobody asked for is changed before what the user asked for; a field in ``extra_body``
    is never touched.

    Parameters
    ----------
    failure : Failure
        What came of the request.
    prepare : callable
        The dialect's own.
    endpoint, quirks, brief
        As they were when that request was sent.
    shape, knobs, cap_fields
        What the dialect can change.
    """
    if failure.kind != "config" or failure.status not in _REFUSING or is_no_model(failure.message):
        return None
    theirs = endpoint.extra_body
    sent = prepare(brief, replace(endpoint, extra_body={}), quirks)
    if theirs.keys().isdisjoint(shape.fields) and _blamed(failure, (*shape.fields, *shape.names)):
        lower = _lower(brief, endpoint, quirks)
        if lower is not None:
            return lower
    if theirs.keys().isdisjoint(cap_fields) and _blamed(failure, cap_fields):
        other = next((name for name in cap_fields if name not in sent), None)
        about_size = _ABOUT_SIZE.search(failure.message) and not _ABOUT_FIELD.search(failure.message)
        if quirks.cap_field is None and other is not None and not about_size:
            return replace(quirks, cap_field=other)
    for knob in sorted(knobs, key=lambda knob: _is_users(knob, endpoint)):
        value = _found(sent, knob.path)
        if value is not None and knob.path not in theirs and _blamed(failure, (knob.path, *knob.names)):
            return _turned(knob, value, failure, endpoint, quirks)
    return None


def changes(old: Quirks, new: Quirks, endpoint: Endpoint) -> str:
    """Say in one sentence what is sent otherwise from now on.

    Examples
    --------
    >>> endpoint = Endpoint("openai", "gpt-9", "https://api.openai.com/v1", temperature=0.0)
    >>> changes(Quirks(), Quirks(dropped=frozenset({"temperature"})), endpoint)
    'From now on this model is asked without your temperature=0.0.'
    """
    said = [_without(path, endpoint) for path in sorted(new.dropped - old.dropped)]
    if new.cap_field != old.cap_field:
        said.append(f"with {new.cap_field} as its output cap")
    if new.rung != old.rung and new.rung is not None:
        said.append(_WORDS[new.rung])
    return f"From now on this model is asked {' and '.join(said)}." if said else ""


def _without(path: str, endpoint: Endpoint) -> str:
    field, _, value = path.partition("=")
    if field.endswith("temperature") and endpoint.temperature is not None:
        return f"without your temperature={endpoint.temperature!r}"
    if wants_thinking(endpoint) and _is_thinking(field):
        return f"without your reasoning={endpoint.reasoning!r}"
    return f"without {field}={value!r}" if value else f"without {field}"


def _is_users(knob: Knob, endpoint: Endpoint) -> bool:
    if knob.path.endswith("temperature"):
        return endpoint.temperature is not None
    return _is_thinking(knob.path) and endpoint.reasoning is not None


def _is_thinking(path: str) -> bool:
    return re.search("think|effort|reasoning|template", path) is not None


def _lower(brief: Brief, endpoint: Endpoint, quirks: Quirks) -> Quirks | None:
    rungs: tuple[str, ...] = ladder(endpoint)
    rung = rung_of(brief, endpoint, quirks)
    if rung is None or rung == rungs[-1]:
        return None
    return replace(quirks, rung=rungs[rungs.index(rung) + 1])


def _turned(knob: Knob, value: Any, failure: Failure, endpoint: Endpoint, quirks: Quirks) -> Quirks:
    whole = replace(quirks, dropped=quirks.dropped | {knob.path})
    if value not in knob.values or wants_thinking(endpoint) or _ABOUT_FIELD.search(failure.message):
        return whole
    named = set(re.findall(r"['\"`](\w+)['\"`]", failure.message)) & set(knob.values) - {value}
    if not named and re.search(rf"\b{value}\b", failure.message, re.IGNORECASE) is None:
        return whole  # not a word about values: the field itself is refused
    refused = {value} | (set(knob.values) - named if named else set())
    dropped = quirks.dropped | {f"{knob.path}={each}" for each in refused}
    further = replace(quirks, dropped=dropped)
    return whole if least(knob.path, value, further, knob.values) is None else further


def _found(body: Mapping[str, Any], path: str) -> Any:
    found: Any = body
    for step in path.split("."):
        found = as_mapping(found).get(step)
    return found


def _blamed(failure: Failure, names: Sequence[str]) -> bool:
    """Say whether a failure is about a field of one of these names."""
    if failure.param is None:
        return bool(names) and _pattern(tuple(names)).search(failure.message) is not None
    param = _plain(failure.param)
    for name in map(_plain, names):
        if param == name.rpartition(".")[2] or f"{param}.".startswith(f"{name}.") or name.startswith(f"{param}."):
            return True
    return False


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "").replace("[", ".")


@lru_cache(maxsize=64)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    parts = (re.sub(r"[_ ]|\\ ", "[_ ]?", re.escape(name)) for name in names)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9])", re.IGNORECASE)
