"""From a reply's text to a value. Knows no task: what the value should be is for the task to check."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

__all__ = ["value_of"]

# Some servers leave the opening tag out: it belongs to the prompt they wrote.
_THINKING = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_HUGE = re.compile(r"\d[eE]\+?\d{3}")
_FENCE = re.compile(r"```[\w-]*\s*\n?(.*?)```", re.DOTALL)


def value_of(text: str) -> Any:
    r"""Read the JSON value in a model's reply, or give back the reply itself where there is none.

    Reads bare JSON, fenced JSON, JSON after ``<think>`` text, and the first JSON object
    inside prose, in this order.

    Examples
    --------
    >>> value_of('Sure! ```json\n{"label": "defect"}\n```')
    {'label': 'defect'}
    >>> value_of("defect")
    'defect'
    """
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return _load(text)
    except ValueError:
        pass
    text = _THINKING.sub("", text).strip()
    fence = _FENCE.search(text)
    for candidate in (text, fence.group(1) if fence else ""):
        try:
            return _load(candidate)
        except ValueError:
            continue
    for candidate in _objects(text):
        try:
            return _load(candidate)
        except ValueError:
            continue
    return text


def _load(text: str) -> Any:
    """Read JSON. A number that no float can hold, as small models ramble into, does not spoil what stands beside it."""
    try:
        return orjson.loads(text)
    except ValueError:
        if _HUGE.search(text) is None:
            raise
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _objects(text: str) -> list[str]:
    """The balanced ``{...}`` stretches at the top level of ``text``, braces in strings not counted."""
    found = []
    depth = start = 0
    in_string = escaped = False
    for i, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"' and depth:
            in_string = True
        elif char == "{":
            if not depth:
                start = i
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                found.append(text[start : i + 1])
    return found
