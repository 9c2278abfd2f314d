"""Vendors and models as rows of data: where they are, and which parameters they refuse."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from batchkit._dialects.base import check_model
from batchkit.records import Endpoint

DialectName = Literal["openai", "responses", "anthropic", "gemini", "ollama"]
Rung = Literal["schema", "tool", "json", "text"]

__all__ = [
    "PROFILES",
    "Profile",
    "Traits",
    "check_settings",
    "default_concurrency",
    "dialect_name",
    "is_local",
    "is_own",
    "ladder",
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
    """Anthropic's ``thinking`` or Gemini's ``thinkingConfig`` that does so; ``None`` sends none."""
    thinks: bool = False
    """Whether the model still thinks then, and needs room for it under the output cap."""
    efforts: tuple[str, ...] | None = None
    """What the user can ask for instead of it being off; ``None`` where that is not known."""
    structured: bool = True
    """Whether a schema can be asked for directly, not only as a tool's input."""
    forced_tool: bool = True
    """Whether the model lets itself be made to answer through a tool."""
    dialect: DialectName | None = None
    """The only wire format that has the model, where that is not its vendor's usual one."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A vendor: how to reach it, and what the encoders must know of it."""

    vendor: str
    dialect: DialectName
    base_url: str | None
    """``None`` where the user must give one."""
    example_url: str = "http://localhost:8000/v1"
    """What such a one looks like."""
    version: str = "v1"
    """What the vendor's own address has between host and method, and users leave out."""
    key_env: tuple[str, ...] = ()
    """Variables that may hold the key; the first that is set wins."""
    key_required: bool = True
    max_concurrency: int = 16
    max_concurrency_local: int = 16
    """The same for a server on this machine."""
    output_cap_field: str = "max_tokens"
    rungs: tuple[Rung, ...] = ("schema", "tool", "json", "text")
    """How the form of an answer can be asked for here, the most certain way first."""
    reasoning: Literal["effort", "switch", "no"] = "effort"
    """Whether the user can ask for an effort, only for reasoning or none, or not in any common way."""
    effort_field: str = "reasoning_effort"
    """Where the effort stands in the body, as a path."""
    thinking_on: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What switches reasoning on, where it is a switch."""
    thinking_off: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What switches it off; sent unless the user asks for reasoning."""
    required: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Fields that every request has here."""
    models: Mapping[str, Traits] = field(default_factory=dict, repr=False)
    """By name, with any dated or named variant of it; ``*`` at the end stands for anything."""
    unknown: Traits = Traits()
    """Traits of a model that is in no row."""
    unknown_off: Traits = Traits()
    """The same where the user asks for reasoning to be off."""


# Facts of autumn 2026. Most models with reasoning take sampling parameters only while it is off.
_CLASSIC = Traits(efforts=())
_COMMON_EFFORTS = ("low", "medium", "high")
_LARGER_EFFORTS = (*_COMMON_EFFORTS, "xhigh", "max")
_O_SERIES = Traits(sampling="never", effort="low", thinks=True, efforts=_COMMON_EFFORTS)
_SWITCHABLE = Traits(sampling="unless_thinking", effort="none", efforts=("minimal", *_LARGER_EFFORTS))
_WITHOUT_MINIMAL = replace(_SWITCHABLE, efforts=_LARGER_EFFORTS)
_ALWAYS_ON = replace(_O_SERIES, efforts=_LARGER_EFFORTS)
_MEDIUM_ONLY = Traits(sampling="never", effort="medium", thinks=True, efforts=("medium",))
_PRO = replace(_MEDIUM_ONLY, efforts=("medium", "high", "xhigh"), dialect="responses")

_OPENAI_MODELS: Mapping[str, Traits] = {
    "gpt-3.5-turbo": _CLASSIC,
    "gpt-4": _CLASSIC,
    "gpt-4o": _CLASSIC,
    "gpt-4.1": _CLASSIC,
    "gpt-5-chat": _CLASSIC,
    "gpt-5": replace(_O_SERIES, effort="minimal", efforts=("minimal", *_COMMON_EFFORTS)),
    "gpt-5-pro": replace(_PRO, effort="high", efforts=("high",)),
    "gpt-5.1": _SWITCHABLE,
    "gpt-5.1-chat": _MEDIUM_ONLY,
    "gpt-5.2": _SWITCHABLE,
    "gpt-5.2-chat": _MEDIUM_ONLY,
    "gpt-5.2-pro": _PRO,
    "gpt-5.3": _SWITCHABLE,
    "gpt-5.3-chat": _MEDIUM_ONLY,
    "gpt-5.4": _SWITCHABLE,
    "gpt-5.4-chat": _MEDIUM_ONLY,
    "gpt-5.4-pro": _PRO,
    "gpt-5.5": _SWITCHABLE,
    "gpt-5.5-chat": _MEDIUM_ONLY,
    "gpt-5.5-pro": _PRO,
    "gpt-5.6": _WITHOUT_MINIMAL,
    "gpt-6-sol": _WITHOUT_MINIMAL,
    "gpt-6-luna": _WITHOUT_MINIMAL,
    "gpt-6-astra": _ALWAYS_ON,
    "gpt-6.1-terra": _WITHOUT_MINIMAL,
    "gpt-6.1-sol": _ALWAYS_ON,
    "o1": _O_SERIES,
    "o3": _O_SERIES,
    "o4": _O_SERIES,
}

_CLAUDE_TOOL_ONLY = Traits(efforts=(), structured=False)
_CLAUDE_4_5 = Traits(efforts=())
_CLAUDE_4_6 = Traits(sampling="unless_thinking", efforts=_LARGER_EFFORTS)
_CLAUDE_4_7 = replace(_CLAUDE_4_6, sampling="never")
_CLAUDE_5 = replace(_CLAUDE_4_7, thinking={"type": "disabled"})
_CLAUDE_ALWAYS_THINKING = replace(_CLAUDE_4_7, effort="low", thinks=True, forced_tool=False)

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
    "claude-sonnet-5-5": replace(_CLAUDE_4_7, thinking={"type": "between_tools"}, forced_tool=False),
    "claude-haiku-4-5": _CLAUDE_4_5,
    "claude-haiku-5-5": _CLAUDE_5,
    "claude-fable-5*": _CLAUDE_ALWAYS_THINKING,
    "claude-mythos-5*": _CLAUDE_ALWAYS_THINKING,
}

_GEMINI_OLD = Traits(efforts=())
_GEMINI_BUDGETS = ("on", "minimal", *_COMMON_EFFORTS)
_GEMINI_LOW = Traits(thinking={"thinkingLevel": "LOW"}, thinks=True, efforts=(*_COMMON_EFFORTS, "xhigh"))
_GEMINI_MINIMAL = Traits(
    thinking={"thinkingLevel": "MINIMAL"}, thinks=True, efforts=("minimal", *_COMMON_EFFORTS, "xhigh")
)

_GEMINI_MODELS: Mapping[str, Traits] = {
    "gemini-1*": _GEMINI_OLD,
    "gemini-2.0*": _GEMINI_OLD,
    "gemini-2.5-flash": Traits(thinking={"thinkingBudget": 0}, efforts=_GEMINI_BUDGETS),
    "gemini-2.5-pro": Traits(thinking={"thinkingBudget": 128}, thinks=True, efforts=_GEMINI_BUDGETS),
    "gemini-3*": _GEMINI_MINIMAL,
    "gemini-3-pro": _GEMINI_LOW,
    "gemini-3.1-pro": _GEMINI_LOW,
    "gemini-3.7-flash": _GEMINI_LOW,
    "gemini-3.8-flash": _GEMINI_LOW,
    "gemini-4*": _GEMINI_LOW,
}

_GPT_OSS = Traits(effort="low", thinks=True, efforts=_COMMON_EFFORTS)
_GROQ_MODELS: Mapping[str, Traits] = {
    "gpt-oss*": _GPT_OSS,
    "qwen3*": Traits(effort="none", efforts=("default",)),
}
_OLLAMA = Traits(efforts=("on", *_COMMON_EFFORTS, "max"))
_OLLAMA_V1 = Traits(effort="none", efforts=(*_COMMON_EFFORTS, "max"))
_TEMPLATE_ON = {"chat_template_kwargs": {"enable_thinking": True}}
_TEMPLATE_OFF = {"chat_template_kwargs": {"enable_thinking": False}}

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
            rungs=("schema", "tool", "text"),
            models=_ANTHROPIC_MODELS,
            unknown=_NEWCOMER,
            unknown_off=Traits(thinking={"type": "disabled"}),
        ),
        Profile(
            vendor="gemini",
            dialect="gemini",
            base_url="https://generativelanguage.googleapis.com",
            version="v1beta",
            key_env=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            rungs=("schema", "json", "text"),
            models=_GEMINI_MODELS,
            unknown=_NEWCOMER,
            unknown_off=_GEMINI_LOW,
        ),
        Profile(
            vendor="ollama",
            dialect="ollama",
            base_url="http://localhost:11434",
            version="",
            key_env=("OLLAMA_API_KEY",),
            key_required=False,
            max_concurrency=4,
            max_concurrency_local=1,
            rungs=("schema", "json", "text"),
            models={"gpt-oss*": _GPT_OSS},
            unknown=_OLLAMA,
            unknown_off=_OLLAMA,
        ),
        Profile(
            # Its models are deployments: their names say nothing about what they are.
            vendor="azure",
            dialect="openai",
            base_url=None,
            example_url="https://RESOURCE.openai.azure.com/openai/v1",
            version="openai/v1",
            key_env=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
            output_cap_field="max_completion_tokens",
            unknown=_NEWCOMER,
            unknown_off=Traits(effort="none"),
        ),
        Profile(
            vendor="groq",
            dialect="openai",
            base_url="https://api.groq.com/openai/v1",
            version="openai/v1",
            key_env=("GROQ_API_KEY",),
            output_cap_field="max_completion_tokens",
            models=_GROQ_MODELS,
        ),
        Profile(
            vendor="mistral",
            dialect="openai",
            base_url="https://api.mistral.ai/v1",
            key_env=("MISTRAL_API_KEY",),
            models={"magistral": Traits(thinks=True, efforts=())},
        ),
        Profile(
            vendor="deepseek",
            dialect="openai",
            base_url="https://api.deepseek.com",
            version="",
            key_env=("DEEPSEEK_API_KEY",),
            # A schema as response_format is a 400; in JSON mode the reply may be empty.
            rungs=("tool", "json", "text"),
            reasoning="switch",
            thinking_on={"thinking": {"type": "enabled"}},
            thinking_off={"thinking": {"type": "disabled"}},
        ),
        Profile(
            vendor="openrouter",
            dialect="openai",
            base_url="https://openrouter.ai/api/v1",
            version="api/v1",
            key_env=("OPENROUTER_API_KEY",),
            effort_field="reasoning.effort",
            # Without this it may pick an upstream that drops the schema in silence.
            required={"provider": {"require_parameters": True}},
            unknown=_NEWCOMER,
            unknown_off=Traits(effort="none"),
        ),
        Profile(
            vendor="together",
            dialect="openai",
            base_url="https://api.together.ai/v1",
            key_env=("TOGETHER_API_KEY",),
            models={"gpt-oss*": _GPT_OSS},
            unknown=_NEWCOMER,
            unknown_off=_NEWCOMER,
        ),
        Profile(
            vendor="qwen",
            dialect="openai",
            base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            version="compatible-mode/v1",
            key_env=("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
            rungs=("schema", "json", "text"),
            reasoning="switch",
            thinking_on={"enable_thinking": True},
            thinking_off={"enable_thinking": False},
            models={"qwen3.8-max": Traits()},
            unknown=Traits(structured=False),
            unknown_off=Traits(structured=False),
        ),
        Profile(
            vendor="vllm",
            dialect="openai",
            base_url="http://localhost:8000/v1",
            key_env=("VLLM_API_KEY",),
            key_required=False,
            reasoning="switch",
            thinking_on=_TEMPLATE_ON,
            thinking_off=_TEMPLATE_OFF,
        ),
        Profile(
            vendor="llama.cpp",
            dialect="openai",
            base_url="http://localhost:8080/v1",
            key_required=False,
            max_concurrency=4,
            max_concurrency_local=4,
            # Tools need a server flag; a schema works for every model.
            rungs=("schema", "json", "text"),
            reasoning="switch",
            thinking_on=_TEMPLATE_ON,
            thinking_off=_TEMPLATE_OFF,
        ),
        Profile(
            vendor="lm-studio",
            dialect="openai",
            base_url="http://localhost:1234/v1",
            key_env=("LM_STUDIO_API_KEY",),
            key_required=False,
            max_concurrency=4,
            max_concurrency_local=4,
            rungs=("schema", "text"),
            reasoning="no",
        ),
        Profile(
            # Its own API is better: only there a long row is refused and not cut in silence.
            vendor="ollama-v1",
            dialect="openai",
            base_url="http://localhost:11434/v1",
            key_env=("OLLAMA_API_KEY",),
            key_required=False,
            max_concurrency=4,
            max_concurrency_local=1,
            rungs=("schema", "json", "text"),
            models={"gpt-oss*": _GPT_OSS},
            unknown=_OLLAMA_V1,
            unknown_off=_OLLAMA_V1,
        ),
        Profile(
            vendor="openai-compatible",
            dialect="openai",
            base_url=None,
            key_required=False,
            max_concurrency_local=4,
            reasoning="no",
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
    return name.startswith(row) and _VARIANT.fullmatch(name, len(row)) is not None


# After a name: nothing, or a variant that is not one more part of the version ("-5", "-1-2026...").
_VARIANT = re.compile(r"(?:[-@:](?!\d{1,2}(?!\d)).*)?", re.DOTALL)


def wants_thinking(endpoint: Endpoint) -> bool:
    """Say whether the user asked for reasoning."""
    return endpoint.reasoning not in (None, "off", "none")


def ladder(endpoint: Endpoint) -> tuple[Rung, ...]:
    """Return the ways to ask for the form of an answer that are worth trying, the most certain first.

    Examples
    --------
    >>> ladder(Endpoint("deepseek", "deepseek-v4-flash", "https://api.deepseek.com"))
    ('tool', 'json', 'text')
    """
    profile, traits = PROFILES[endpoint.vendor], traits_of(endpoint)
    # Most vendors refuse to force a tool on a model that is to think first.
    no_tool = wants_thinking(endpoint) or not traits.forced_tool
    return tuple(
        rung
        for rung in profile.rungs
        if not (rung == "schema" and not traits.structured) and not (rung == "tool" and no_tool)
    )


def dialect_name(endpoint: Endpoint) -> DialectName:
    """Return the wire format to speak with a model unless the user names another.

    Examples
    --------
    >>> dialect_name(Endpoint("openai", "gpt-5.4-pro", "https://api.openai.com/v1"))
    'responses'
    """
    return traits_of(endpoint).dialect or PROFILES[endpoint.vendor].dialect


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
    if endpoint.vendor in ("azure", "gemini") and (problem := check_model(model)) is not None:
        return problem
    if asked is not None and profile.reasoning == "no":
        return (
            f"reasoning={asked!r}: servers of {profile.vendor!r} have no common way to set it. "
            "Give the server's own field in extra_body=, such as {'reasoning_effort': 'none'}."
        )
    if profile.reasoning == "switch" and asked not in (None, "off", "none", "on"):
        return (
            f"reasoning={asked!r}: {profile.vendor!r} knows no efforts. Give 'on' or 'off', "
            "or the vendor's own field in extra_body=."
        )
    if wants_thinking(endpoint) and traits.efforts == ():
        return (
            f"reasoning={asked!r}: {model!r} takes no reasoning effort. "
            "Leave it out, or give the vendor's own field in extra_body=."
        )
    if wants_thinking(endpoint) and traits.efforts is not None and asked not in traits.efforts:
        return (
            f"reasoning={asked!r}: {model!r} takes only {_choice(traits.efforts)}. Give one of these, or leave it out."
        )
    if asked == "on" and profile.reasoning == "effort" and traits.efforts is None:
        return f"reasoning='on': {profile.vendor!r} knows efforts. Give one, such as 'low', or leave it out."
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


def _choice(values: tuple[str, ...]) -> str:
    *others, last = map(repr, values)
    return f"{', '.join(others)} and {last}" if others else last


def default_concurrency(profile: Profile, base_url: str) -> int:
    """Return how many requests at once a vendor is asked to bear unless the user says."""
    return profile.max_concurrency_local if is_local(base_url) else profile.max_concurrency


def is_own(endpoint: Endpoint) -> bool:
    """Say whether the endpoint is its vendor's own address, and not a gateway's that speaks the same."""
    own = PROFILES[endpoint.vendor].base_url
    return own is None or _domain(own) == _domain(endpoint.base_url)


def _domain(url: str) -> list[str]:
    return (urlsplit(url.strip()).hostname or "").split(".")[-2:]


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
