"""Vendors and models as rows of data: where they are, and which parameters they refuse."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from batchkit.records import Endpoint

__all__ = [
    "PROFILES",
    "Profile",
    "Traits",
    "check_settings",
    "default_concurrency",
    "is_local",
    "traits_of",
    "wants_thinking",
]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model makes of the parameters that models disagree about.

    Unless the user asks for reasoning, labelling is asked with it off, or as low as the model
    goes.
    """

    sampling: Literal["always", "unless_thinking", "never"] = "always"
    """When ``temperature`` is accepted."""
    effort: str | None = None
    """The effort that switches reasoning off or down; ``None`` sends none."""
    thinking: Mapping[str, Any] | None = None
    """The value of Anthropic's ``thinking`` that does so; ``None`` sends none."""
    thinks: bool = False
    """Whether the model still thinks then, and needs room for it under the output cap."""
    takes_effort: bool = True
    """Whether the user can ask for an effort at all."""
    structured: bool = True
    """Whether a schema can be asked for directly, not only as a tool's input."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A vendor: how to reach it, and what the encoders must know of it."""

    vendor: str
    dialect: Literal["openai", "anthropic"]
    base_url: str | None
    """``None`` where the user must give one."""
    key_env: tuple[str, ...] = ()
    """Variables that may hold the key; the first that is set wins."""
    key_required: bool = True
    max_concurrency: int = 16
    max_concurrency_local: int = 16
    """The same for a server on this machine."""
    output_cap_field: str = "max_tokens"
    takes_reasoning: bool = True
    """Whether the wire format has a common way to ask for reasoning or none."""
    models: Mapping[str, Traits] = field(default_factory=dict, repr=False)
    """By name, with any dated or named variant of it; ``*`` at the end stands for anything."""
    unknown: Traits = Traits()
    """Traits of a model that is in no row."""
    unknown_off: Traits = Traits()
    """The same where the user asks for reasoning to be off."""


# Facts of autumn 2026. Most models with reasoning take sampling parameters only while it is off.
_CLASSIC = Traits(takes_effort=False)
_O_SERIES = Traits(sampling="never", effort="low", thinks=True)
_SWITCHABLE = Traits(sampling="unless_thinking", effort="none")
_MEDIUM_ONLY = Traits(sampling="never", effort="medium", thinks=True)

_OPENAI_MODELS: Mapping[str, Traits] = {
    "gpt-3.5-turbo": _CLASSIC,
    "gpt-4": _CLASSIC,
    "gpt-4o": _CLASSIC,
    "gpt-4.1": _CLASSIC,
    "gpt-5-chat": _CLASSIC,
    "gpt-5": Traits(sampling="never", effort="minimal", thinks=True),
    "gpt-5-pro": Traits(sampling="never", effort="high", thinks=True),
    "gpt-5.1": _SWITCHABLE,
    "gpt-5.1-chat": _MEDIUM_ONLY,
    "gpt-5.2": _SWITCHABLE,
    "gpt-5.2-chat": _MEDIUM_ONLY,
    "gpt-5.2-pro": _MEDIUM_ONLY,
    "gpt-5.3": _SWITCHABLE,
    "gpt-5.3-chat": _MEDIUM_ONLY,
    "gpt-5.4": _SWITCHABLE,
    "gpt-5.4-chat": _MEDIUM_ONLY,
    "gpt-5.4-pro": _MEDIUM_ONLY,
    "gpt-5.5": _SWITCHABLE,
    "gpt-5.5-chat": _MEDIUM_ONLY,
    "gpt-5.5-pro": _MEDIUM_ONLY,
    "gpt-5.6": _SWITCHABLE,
    "gpt-6-sol": _SWITCHABLE,
    "gpt-6-luna": _SWITCHABLE,
    "gpt-6-astra": _O_SERIES,
    "gpt-6.1-terra": _SWITCHABLE,
    "gpt-6.1-sol": _O_SERIES,
    "o1": _O_SERIES,
    "o3": _O_SERIES,
    "o4": _O_SERIES,
}

_CLAUDE_TOOL_ONLY = Traits(takes_effort=False, structured=False)
_CLAUDE_4_5 = Traits(takes_effort=False)
_CLAUDE_4_6 = Traits(sampling="unless_thinking")
_CLAUDE_4_7 = Traits(sampling="never")
_CLAUDE_5 = Traits(sampling="never", thinking={"type": "disabled"})
_CLAUDE_ALWAYS_THINKING = Traits(sampling="never", effort="low", thinks=True)

_ANTHROPIC_MODELS: Mapping[str, Traits] = {
    "claude-instant*": _CLAUDE_TOOL_ONLY,
    "claude-2*": _CLAUDE_TOOL_ONLY,
    "claude-3*": _CLAUDE_TOOL_ONLY,
    "claude-opus-4": _CLAUDE_TOOL_ONLY,
    "claude-opus-4-0": _CLAUDE_TOOL_ONLY,
    "claude-opus-4-1": _CLAUDE_4_5,
    "claude-opus-4-5": _CLAUDE_4_5,
    "claude-opus-4-6": _CLAUDE_4_6,
    "claude-opus-4-7": _CLAUDE_4_7,
    "claude-opus-4-8": _CLAUDE_4_7,
    "claude-opus-5": _CLAUDE_5,
    "claude-opus-5-5": _CLAUDE_ALWAYS_THINKING,
    "claude-sonnet-4": _CLAUDE_TOOL_ONLY,
    "claude-sonnet-4-0": _CLAUDE_TOOL_ONLY,
    "claude-sonnet-4-5": _CLAUDE_4_5,
    "claude-sonnet-4-6": _CLAUDE_4_6,
    "claude-sonnet-5": _CLAUDE_5,
    "claude-sonnet-5-5": Traits(sampling="never", thinking={"type": "between_tools"}),
    "claude-haiku-4-5": _CLAUDE_4_5,
    "claude-haiku-5-5": _CLAUDE_5,
    "claude-fable-5*": _CLAUDE_ALWAYS_THINKING,
    "claude-mythos-5*": _CLAUDE_ALWAYS_THINKING,
}

# A new model of these vendors most likely thinks unless told otherwise, in words not known yet.
_NEWCOMER = Traits(thinks=True)

PROFILES: Mapping[str, Profile] = {
    profile.vendor: profile
    for profile in (
        Profile(
            vendor="openai",
            dialect="openai",
            base_url="https://api.openai.com/v1",
            key_env=("OPENAI_API_KEY",),
            output_cap_field="max_completion_tokens",
            models=_OPENAI_MODELS,
            unknown=_NEWCOMER,
            unknown_off=Traits(effort="none"),
        ),
        Profile(
            vendor="anthropic",
            dialect="anthropic",
            base_url="https://api.anthropic.com",
            key_env=("ANTHROPIC_API_KEY",),
            models=_ANTHROPIC_MODELS,
            unknown=_NEWCOMER,
            unknown_off=Traits(thinking={"type": "disabled"}),
        ),
        Profile(
            vendor="openai-compatible",
            dialect="openai",
            base_url=None,
            key_required=False,
            max_concurrency_local=4,
            takes_reasoning=False,
        ),
    )
}
"""The known vendors by name."""


def traits_of(endpoint: Endpoint) -> Traits:
    """Return the traits of the endpoint's model; the longest matching row of its vendor wins.

    A gateway's prefix (``openai/``, ``us.anthropic.``) does not count, and dated or named
    variants follow their base name. Another version number is another model.

    Examples
    --------
    >>> traits_of(Endpoint("openai", "gpt-6-luna-2026-10-22", "https://api.openai.com/v1")).effort
    'none'
    """
    name = re.sub(r"^(?:.*/|ft:)|^.*(?=claude-)", "", endpoint.model.lower())
    profile = PROFILES[endpoint.vendor]
    rows = [row for row in profile.models if _matches(row, name)]
    if rows:
        return profile.models[max(rows, key=len)]
    return profile.unknown if endpoint.reasoning is None or wants_thinking(endpoint) else profile.unknown_off


def _matches(row: str, name: str) -> bool:
    if row.endswith("*"):
        return name.startswith(row[:-1])
    # After the name: nothing, or a variant that is not one more part of the version ("-5", "-1-2026...").
    return re.fullmatch(re.escape(row) + r"(?:[-@:](?!\d{1,2}(?!\d)).*)?", name, re.DOTALL) is not None


def wants_thinking(endpoint: Endpoint) -> bool:
    """Say whether the user asked for reasoning."""
    return endpoint.reasoning not in (None, "off", "none")


def check_settings(endpoint: Endpoint) -> str | None:
    """Say which setting of ``endpoint`` its model is known to refuse, or return None.

    Meant for the moment before anything is sent: every row would fail alike, and a setting is
    never left out in silence.

    Examples
    --------
    >>> check_settings(Endpoint("openai", "gpt-5", "https://api.openai.com/v1", temperature=0.0))
    "temperature=0.0: 'gpt-5' takes no temperature. Leave it out."
    """
    profile = PROFILES[endpoint.vendor]
    traits = traits_of(endpoint)
    asked, model = endpoint.reasoning, endpoint.model
    if asked is not None and not profile.takes_reasoning:
        return (
            f"reasoning={asked!r}: servers of {profile.vendor!r} have no common way to set it. "
            "Give the server's own field in extra_body=, such as {'reasoning_effort': 'none'}."
        )
    if wants_thinking(endpoint) and not traits.takes_effort:
        return (
            f"reasoning={asked!r}: {model!r} takes no reasoning effort. "
            "Leave it out, or give the vendor's own field in extra_body=."
        )
    if endpoint.temperature is None or traits.sampling == "always":
        return None
    if traits.sampling == "never":
        return f"temperature={endpoint.temperature!r}: {model!r} takes no temperature. Leave it out."
    if wants_thinking(endpoint):
        return (
            f"temperature={endpoint.temperature!r}: {model!r} takes a temperature only without reasoning, "
            f"and reasoning={asked!r} is set. Leave one of them out."
        )
    return None


def default_concurrency(profile: Profile, base_url: str) -> int:
    """Return how many requests at once a vendor is asked to bear unless the user says."""
    return profile.max_concurrency_local if is_local(base_url) else profile.max_concurrency


def is_local(base_url: str) -> bool:
    """Say whether ``base_url`` is a server on this machine."""
    host = urlsplit(base_url).hostname or ""
    if host in ("localhost", "host.docker.internal") or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
