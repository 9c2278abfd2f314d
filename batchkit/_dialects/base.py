"""What a wire format must offer, and the small rules that all of them share."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from batchkit.errors import ConfigError
from batchkit.records import NO_QUIRKS, Brief, Completion, Endpoint, Failure, Question, Quirks

__all__ = [
    "THINKING_ALLOWANCE",
    "Dialect",
    "as_count",
    "as_mapping",
    "canonical_url",
    "check_base_url",
    "check_model",
    "completed",
    "in_url",
    "is_versioned",
    "join_url",
    "merge_headers",
    "output_cap",
    "sent_at",
]

THINKING_ALLOWANCE = 4096
"""Output tokens added to a brief's cap for a model that thinks before it answers."""

_VERSION = re.compile(r"v\d+(?:\.\d+)?(?:alpha|beta)?\d*")
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "0.0.0.0", "::"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BAGS = frozenset(
    {"chat_template_kwargs", "generationConfig", "options", "output_config", "provider", "reasoning", "text"}
)
"""Fields that only hold other fields: a user adds to them and does not replace them."""


class Dialect(Protocol):
    """A wire format: how a question is written down for a vendor, and how its reply is read."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address that questions are posted to."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers, key included; the endpoint's own headers win."""
        ...

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share; done once, before the first `encode`.

        The result is a request body whose messages are only their common beginning; what is known
        of the model's ``quirks`` is heeded. It is shared by all requests and must not be changed.
        """
        ...

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply to a prepared body may have; 0 where it has no cap."""
        ...

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed.

        ``quirks`` are those that the refused request was prepared with. What is new about the
        result is told by `batchkit._dialects.quirks.changes`.
        """
        ...

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request around ``prepared``."""
        ...

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises.

        ``request_id`` is what the response's headers named.
        """
        ...


def join_url(base: str, version: str, path: str) -> str:
    """Append to ``base`` what it lacks of ``version`` and ``path``.

    Parameters
    ----------
    base : str
        An address as users copy it: with or without version, trailing slash or longer path.
    version : str
        The version segment, such as ``"v1"``; ``""`` for none.
    path : str
        The path below the version, such as ``"chat/completions"``.

    Examples
    --------
    >>> join_url("https://h/v1/", "v1", "messages")
    'https://h/v1/messages'
    >>> join_url("https://h/gateway", "v1", "messages")
    'https://h/gateway/v1/messages'
    """
    parts = urlsplit(base.strip())
    have = _segments(parts)
    want = [segment for segment in (*version.split("/"), *path.split("/")) if segment]
    shared = next((n for n in range(min(len(have), len(want)), 0, -1) if have[-n:] == want[:n]), 0)
    return urlunsplit(parts._replace(path="/" + "/".join(have + want[shared:])))


def canonical_url(url: str) -> str:
    """Write an address as all its spellings are written: by it limits, answers and what was learned are kept.

    Examples
    --------
    >>> canonical_url("http://127.0.0.1:11434/api/chat") == canonical_url("http://[::1]:11434/api/chat")
    True
    >>> canonical_url("HTTPS://API.example.com:443/v1/messages")
    'https://api.example.com/v1/messages'
    """
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    host = "localhost" if host in _THIS_MACHINE else f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return urlunsplit(parts._replace(netloc=f"{host}{port}"))


def check_model(model: str) -> str | None:
    """Say why ``model`` cannot stand in a URL, or return None.

    Examples
    --------
    >>> check_model("models/gemini-3.5-flash-lite")
    >>> check_model("google/gemini-4")
    "'google/gemini-4' is no model name here: it goes into the URL and may hold no '/'."
    """
    name = model.removeprefix("models/")
    if name in ("", ".", ".."):
        return f"{model!r} is no model name."
    if "/" in name:
        return f"{model!r} is no model name here: it goes into the URL and may hold no '/'."
    return None


def in_url(model: str) -> str:
    """Write a model's name as one segment of a URL.

    Raises
    ------
    ConfigError
        It would be read as more than that.

    Examples
    --------
    >>> in_url("my model?")
    'my%20model%3F'
    """
    problem = check_model(model)
    if problem is not None:
        raise ConfigError(problem)
    return quote(model.removeprefix("models/"), safe="")


def is_versioned(base: str) -> bool:
    """Say whether the path of ``base`` names an API version anywhere, as in ``/v1beta/openai``."""
    return any(_VERSION.fullmatch(segment) for segment in _segments(urlsplit(base.strip())))


def _segments(parts: SplitResult) -> list[str]:
    return [segment for segment in parts.path.split("/") if segment]


def check_base_url(url: object) -> str | None:
    """Say why ``url`` is no base URL of an HTTP API, or return None.

    Examples
    --------
    >>> check_base_url("https://api.example.com/v1")
    >>> check_base_url("localhost:8000")
    "base_url='localhost:8000' has no http:// or https://. Did you mean 'http://localhost:8000'?"
    """
    if not isinstance(url, str):
        return f"base_url must be a text such as 'https://host/v1', not a {type(url).__name__}."
    text = url.strip()
    if not text:
        return "base_url is empty. Give the server's address, such as 'https://host/v1'."
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"base_url is no address ({error}). Give one such as 'https://host/v1'."
    # Azure's portal shows addresses with their version at the end, which is no secret.
    if "@" in text or parts.fragment or not re.fullmatch(r"(?:api-version=[\w.-]+)?", parts.query):
        return "base_url must be the plain address. Give keys as api_key= or headers=, not in the URL."
    if "://" not in text:
        guess = "" if text.startswith("http") else f" Did you mean 'http://{text}'?"
        return f"base_url={url!r} has no http:// or https://.{guess}"
    if parts.scheme not in ("http", "https"):
        return f"base_url={url!r} must start with http:// or https://, not {parts.scheme + '://'!r}."
    if not host or any(character.isspace() or not character.isprintable() for character in text):
        return f"base_url={url!r} names no host. Give an address such as 'https://host/v1'."
    return None


def merge_headers(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Join two sets of headers; a header in ``theirs`` replaces ours whatever its case."""
    named = {name.lower() for name in theirs}
    return {**{name: value for name, value in ours.items() if name.lower() not in named}, **theirs}


def output_cap(brief: Brief, endpoint: Endpoint, thinks: bool) -> int:
    """Return the output cap: the user's as it is, else the brief's and room for thinking."""
    if endpoint.max_output_tokens is not None:
        return endpoint.max_output_tokens
    return brief.max_output_tokens + (THINKING_ALLOWANCE if thinks else 0)


def completed(body: dict[str, Any], quirks: Quirks, extra_body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of ``body`` what the model refuses, and add what the user wants in it.

    Examples
    --------
    >>> completed({"options": {"num_ctx": 4096}}, Quirks(), {"options": {"seed": 1}, "keep_alive": "1h"})
    {'options': {'num_ctx': 4096, 'seed': 1}, 'keep_alive': '1h'}
    """
    for path in quirks.dropped:
        _drop(body, path.split("."))
    for name, value in extra_body.items():
        ours = body.get(name)
        if name in _BAGS and isinstance(ours, dict) and isinstance(value, Mapping):
            value = {**ours, **value}
        body[name] = value
    return body


def _drop(body: dict[str, Any], path: list[str]) -> None:
    """Take a field out, and what is empty without it; values within are copied, for they may be shared."""
    name, *rest = path
    inner = body.get(name)
    if rest and isinstance(inner, dict):
        inner = dict(inner)
        _drop(inner, rest)
        body[name] = inner
    if not rest or inner == {}:
        body.pop(name, None)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_count(value: Any) -> int:
    """Return ``value`` if it is a count of something, else 0; True is none."""
    return value if type(value) is int and value > 0 else 0


def sent_at(headers: Mapping[str, str], now: float) -> float:
    """When a reply left, by its sender's clock, which the times in its headers go by: ours may be wrong by hours.

    Parameters
    ----------
    headers : mapping
        The response headers.
    now : float
        Seconds since the epoch by our own clock, for replies that do not say.
    """
    date = headers.get("date")
    at = None if date is None else _http_date(date)
    return now if at is None else at


@lru_cache(maxsize=16)  # it changes once a second
def _http_date(text: str) -> float | None:
    try:
        parsed = email.utils.parsedate_tz(text)
        return None if parsed is None else float(email.utils.mktime_tz(parsed))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
