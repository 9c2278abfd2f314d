"""Checking what a provider is given: refused at once, with the value and what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeGuard

import orjson

from batchkit._dialects.base import check_base_url
from batchkit._logic.pricing import Price, read_price
from batchkit.errors import ConfigError
from batchkit.records import Limits

__all__ = ["base_url", "extra_body", "headers", "instructions", "is_number", "limits", "price", "text", "whole"]


def limits(
    where: str,
    max_concurrency: int,
    rpm: float | None,
    tpm: float | None,
    timeout: float,
    deadline: float,
    max_retries: int,
) -> Limits:
    """A provider's limits, each in range."""
    for name, value in (("rpm", rpm), ("tpm", tpm), ("timeout", timeout), ("deadline", deadline)):
        absent = value is None and name in ("rpm", "tpm")
        if not absent and not (is_number(value) and value > 0):
            raise ConfigError(f"{where}: {name}={value!r} must be a number above 0.")
    concurrency = whole(where, "max_concurrency", max_concurrency, 1)
    retries = whole(where, "max_retries", max_retries, 0)
    return Limits(concurrency, rpm, tpm, timeout, deadline, retries)


def whole(where: str, name: str, value: Any, least: int) -> int:
    """A whole number of at least ``least``."""
    # Integral and not int: numbers out of a frame are numpy's.
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigError(f"{where}: {name}={value!r} must be a whole number of at least {least}.")
    return int(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def instructions(where: str, given: Any) -> str | None:
    """A text or nothing."""
    if given is None or isinstance(given, str):
        return given
    raise ConfigError(f"{where}: instructions must be a text; got {given!r}.")


def headers(where: str, given: Any) -> dict[str, str]:
    """Header names and values that HTTP can carry."""
    # What is wrong is said without the values: one of them may be a key.
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: headers must be a dict of name -> text, not a {type(given).__name__}.")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or not (name + value).isprintable():
            raise ConfigError(f"{where}: the header {name!r} must be a name and a text, each on one line.")
    return dict(given)


def extra_body(where: str, given: Any) -> dict[str, Any]:
    """Fields that JSON can carry."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: extra_body must be a dict, not a {type(given).__name__}.")
    try:
        orjson.dumps(dict(given))
    except TypeError as error:
        raise ConfigError(f"{where}: extra_body cannot be written as JSON: {error}.") from None
    return dict(given)


def price(where: str, given: Any) -> Price:
    """A price in USD per million tokens."""
    try:
        return read_price(given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def text(where: str, name: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        shown = "what was given" if name == "api_key" else repr(value)
        raise ConfigError(f"{where}: {name} must be a text that is not empty; {shown} is not.")
    return value


def base_url(where: str, url: str | None, example: str) -> str:
    """An http or https URL."""
    if url is None:
        raise ConfigError(f"{where} needs base_url=, for example base_url={example!r}.")
    reason = check_base_url(url)
    if reason is not None:
        # The reason leaves the URL out where it may hold a password.
        raise ConfigError(f"{where}: {reason}")
    return url.strip()
