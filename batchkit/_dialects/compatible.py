"""What all of OpenAI's wire formats have in common, at OpenAI's, Azure's and everybody else's address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from batchkit._dialects.base import in_url, is_versioned, join_url, merge_headers
from batchkit._dialects.profiles import PROFILES, is_own, traits_of, wants_thinking
from batchkit._dialects.quirks import EFFORTS, Knob, least
from batchkit.records import Endpoint, Quirks, Reply, Structured, Text

__all__ = ["EFFORT_KNOBS", "arguments_of", "effort_of", "openai_headers", "openai_url"]

_AZURE_VERSION = "2024-10-21"
"""For Azure's older addresses, which need one: the last that is no preview."""

EFFORT_KNOBS = (
    Knob("reasoning_effort", ("reasoning", "effort"), EFFORTS),
    Knob("reasoning.effort", ("reasoning", "effort"), EFFORTS),
)


def openai_url(endpoint: Endpoint, method: str) -> str:
    """Return the address of a method such as ``chat/completions`` below the endpoint's base URL."""
    base, profile = endpoint.base_url, PROFILES[endpoint.vendor]
    if endpoint.vendor == "azure":
        parts = urlsplit(base.strip())
        if "/deployments/" in f"{parts.path}/":
            dated = urlunsplit(parts._replace(query=parts.query or f"api-version={_AZURE_VERSION}"))
            return join_url(dated, "", method)
        if parts.query and not is_versioned(base):
            return join_url(base, f"openai/deployments/{in_url(endpoint.model)}", method)
    # Some compatible vendors have their version elsewhere in the path: /v1beta/openai, /paas/v4.
    if is_versioned(base):
        return join_url(base, "", method)
    return join_url(base, profile.version if is_own(endpoint) else "v1", method)


def openai_headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the request headers; without a key there is none to authenticate."""
    ours = {"Content-Type": "application/json"}
    key = endpoint.key
    if key and endpoint.vendor == "azure" and not re.match(r"ey[\w-]+\.ey", key):
        # Both ways to authenticate at once are a 401.
        if "authorization" not in {name.lower() for name in endpoint.headers}:
            ours["api-key"] = key
    elif key:
        ours["Authorization"] = f"Bearer {key}"
    return merge_headers(ours, endpoint.headers)


def effort_of(endpoint: Endpoint, path: str, quirks: Quirks) -> tuple[str | None, bool]:
    """Return the reasoning effort to send, and whether the reply needs room for reasoning."""
    traits = traits_of(endpoint)
    if wants_thinking(endpoint):
        return (None if path in quirks.dropped else endpoint.reasoning), True
    if traits.effort is None:
        return None, traits.thinks
    effort = least(path, traits.effort, quirks)
    return effort, traits.thinks or effort != traits.effort


def arguments_of(arguments: Any) -> Reply | None:
    """Read the arguments of a tool call, which are JSON in a text or, at some servers, a value already."""
    if isinstance(arguments, Mapping):
        return Structured(arguments)
    if not isinstance(arguments, str):
        return None
    try:
        return Structured(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return Text(arguments)
