"""What a wire format must offer, and the small rules that all of them share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

from batchkit.records import Brief, Completion, Endpoint, Failure, Question

__all__ = [
    "THINKING_ALLOWANCE",
    "Dialect",
    "as_count",
    "as_mapping",
    "check_base_url",
    "is_versioned",
    "join_url",
    "merge_headers",
    "output_cap",
]

THINKING_ALLOWANCE = 4096
"""Output tokens added to a brief's cap for a model that thinks before it answers."""

_VERSION = re.compile(r"v\d+(?:\.\d+)?(?:alpha|beta)?\d*")


class Dialect(Protocol):
    """A wire format: how a question is written down for a vendor, and how its reply is read."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address that questions are posted to."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers, key included; the endpoint's own headers win."""
        ...

    def prepare(self, brief: Brief, endpoint: Endpoint) -> Mapping[str, Any]:
        """Build what all requests of one brief share; done once, before the first `encode`.

        The result is a request body whose ``messages`` hold only their common beginning. It is
        shared by all requests and must not be changed.
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
    if "@" in text or parts.query or parts.fragment:
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


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_count(value: Any) -> int:
    """Return ``value`` if it is a count of something, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
