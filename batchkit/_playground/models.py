"""What the vendors' models refuse, by name, as the playground's rules need it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal, TypeVar

__all__ = ["GPT", "Claude", "claude", "gemini_thinking", "gpt", "groq_efforts"]

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class GPT:
    """A model of OpenAI's."""

    sampling: Literal["always", "while_off", "never"] = "always"
    """When temperature, top_p and logprobs are taken."""
    efforts: Set[str] | None = None
    """The efforts taken, ``None`` where any is; an empty set refuses the parameter."""
    default: str = "none"
    """The effort where none is asked for."""
    chat: bool = True
    """Whether chat completions has the model."""


@dataclass(frozen=True, slots=True)
class Claude:
    """A model of Anthropic's."""

    sampling: bool = True
    both: bool = True
    """Whether temperature and top_p are taken together."""
    thinking: Set[str] | None = None
    """The types of thinking taken, ``None`` where any is."""
    highest_when_off: bool = True
    """Whether efforts above high are taken while thinking is disabled."""
    forced_tool: bool = True
    structured: bool = True
    prefill: bool = True
    most: int | None = None
    """Output tokens that may be asked for."""


_OLD = frozenset({"low", "medium", "high"})
_FIVE = _OLD | {"minimal"}
_SWITCH = _OLD | {"none", "minimal", "xhigh", "max"}
_NO_MINIMAL = _SWITCH - {"minimal"}
_ALWAYS_ON = _NO_MINIMAL - {"none"}
_CHAT_LATEST = GPT("never", frozenset({"medium"}), "medium")
_CLASSIC = GPT("always", frozenset())
_PRO = GPT("never", frozenset({"medium", "high", "xhigh"}), "medium", chat=False)

_GPTS: Mapping[str, GPT] = {
    "gpt-3.5-turbo": _CLASSIC,
    "gpt-4": _CLASSIC,
    "gpt-4-turbo": _CLASSIC,
    "gpt-4o": _CLASSIC,
    "gpt-4.1": _CLASSIC,
    "gpt-5-chat": _CLASSIC,
    "gpt-5": GPT("never", _FIVE, "medium"),
    "gpt-5-pro": GPT("never", frozenset({"high"}), "high", chat=False),
    "gpt-5.1": GPT("while_off", _SWITCH),
    "gpt-5.2": GPT("while_off", _SWITCH),
    "gpt-5.2-pro": _PRO,
    "gpt-5.3": GPT("while_off", _SWITCH),
    "gpt-5.4": GPT("while_off", _SWITCH),
    "gpt-5.4-pro": _PRO,
    "gpt-5.5": GPT("while_off", _SWITCH, "medium"),
    "gpt-5.5-pro": _PRO,
    "gpt-5.6": GPT("while_off", _NO_MINIMAL, "medium"),
    "gpt-6-sol": GPT("while_off", _NO_MINIMAL, "medium"),
    "gpt-6-luna": GPT("while_off", _NO_MINIMAL, "medium"),
    "gpt-6.1-terra": GPT("while_off", _NO_MINIMAL, "medium"),
    "gpt-6-astra": GPT("never", _ALWAYS_ON, "medium"),
    "gpt-6.1-sol": GPT("never", _ALWAYS_ON, "medium"),
    "o1": GPT("never", _OLD, "medium"),
    "o3": GPT("never", _OLD, "medium"),
    "o4": GPT("never", _OLD, "medium"),
}

_TOOLS_ONLY = Claude(structured=False)
_CLAUDE_4_5 = Claude(both=False, most=64_000)
_CLAUDE_4_6 = Claude(most=128_000)
_CLAUDE_4_7 = Claude(False, thinking=frozenset({"disabled", "adaptive"}), most=128_000)
_CLAUDE_5 = Claude(False, thinking=frozenset({"disabled", "adaptive"}), prefill=False, most=128_000)
_CLAUDE_5_STRICT = Claude(
    False, thinking=frozenset({"disabled", "adaptive"}), highest_when_off=False, prefill=False, most=128_000
)
_ALWAYS_THINKS = Claude(False, thinking=frozenset({"adaptive"}), forced_tool=False, prefill=False, most=128_000)

_CLAUDES: Mapping[str, Claude] = {
    "claude-2": _TOOLS_ONLY,
    "claude-3": _TOOLS_ONLY,
    "claude-opus-4": _TOOLS_ONLY,
    "claude-opus-4-0": _TOOLS_ONLY,
    "claude-opus-4-1": Claude(),
    "claude-opus-4-5": _CLAUDE_4_5,
    "claude-opus-4-6": _CLAUDE_4_6,
    "claude-opus-4-7": _CLAUDE_4_7,
    "claude-opus-4-8": _CLAUDE_4_7,
    "claude-opus-5": _CLAUDE_5_STRICT,
    "claude-opus-5-5": _ALWAYS_THINKS,
    "claude-sonnet-4": _TOOLS_ONLY,
    "claude-sonnet-4-0": _TOOLS_ONLY,
    "claude-sonnet-4-5": _CLAUDE_4_5,
    "claude-sonnet-4-6": _CLAUDE_4_6,
    "claude-sonnet-5": _CLAUDE_5,
    "claude-sonnet-5-5": Claude(
        False,
        thinking=frozenset({"between_tools", "adaptive"}),
        highest_when_off=False,
        forced_tool=False,
        prefill=False,
        most=128_000,
    ),
    "claude-haiku-4-5": _CLAUDE_4_5,
    "claude-haiku-5-5": _CLAUDE_5_STRICT,
    "claude-fable-5": Claude(False, thinking=frozenset({"adaptive"}), prefill=False, most=128_000),
    "claude-fable-5-1": _ALWAYS_THINKS,
    "claude-fable-5-2": _ALWAYS_THINKS,
    "claude-mythos-5": Claude(False, thinking=frozenset({"adaptive"}), prefill=False, most=128_000),
    "claude-mythos-5-1": _ALWAYS_THINKS,
    "claude-mythos-5-2": _ALWAYS_THINKS,
}

_GEMINIS_WITHOUT_MINIMAL = ("gemini-3.7-flash", "gemini-3.8-flash", "gemini-3.1-pro", "gemini-4")


def gpt(model: str) -> GPT | None:
    """Find what is known of a model of OpenAI's; a dated or named variant is like its base."""
    name = _bare(model)
    if name.endswith("-chat-latest") and name != "gpt-5-chat-latest":
        return _CHAT_LATEST
    return _longest(name, _GPTS)


def claude(model: str) -> Claude:
    """Find what is known of a model of Anthropic's; an unknown one takes everything."""
    return _longest(_bare(model), _CLAUDES) or Claude()


def gemini_thinking(model: str) -> tuple[bool, bool, bool]:
    """Say whether a model of Google's takes ``thinkingLevel``, whether MINIMAL, and a ``thinkingBudget`` of 0."""
    name = _bare(model)
    takes_level = not name.startswith(("gemini-2", "gemini-1"))
    return takes_level, not name.startswith(_GEMINIS_WITHOUT_MINIMAL), not name.startswith("gemini-2.5-pro")


def groq_efforts(model: str) -> Set[str] | None:
    """Find the efforts that a model at Groq takes."""
    name = _bare(model)
    if name.startswith("gpt-oss"):
        return _OLD
    return frozenset({"none", "default"}) if name.startswith("qwen3") else None


def _bare(model: str) -> str:
    return model.rsplit("/", 1)[-1]


def _longest(name: str, rows: Mapping[str, _Row]) -> _Row | None:
    while name:
        if name in rows:
            return rows[name]
        name = name.rpartition("-")[0]
    return None
