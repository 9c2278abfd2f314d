"""Providers: a model somewhere, what it may be asked to bear, and how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from batchkit._dialects.profiles import PROFILES
from batchkit.errors import ConfigError, nearest
from batchkit.providers.base import Check, Provider
from batchkit.providers.http import Anthropic, Gemini, Ollama, OpenAI, OpenAICompatible
from batchkit.providers.langchain import LangChain
from batchkit.providers.local import Embedded, FunctionProvider

__all__ = [
    "Anthropic",
    "Check",
    "Embedded",
    "FunctionProvider",
    "Gemini",
    "LangChain",
    "Ollama",
    "OpenAI",
    "OpenAICompatible",
    "Provider",
    "resolve",
]

_CLASSES: Mapping[str, Callable[[str], Provider]] = {
    "openai": OpenAI,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "ollama": Ollama,
}
_VENDORS = [vendor for vendor, profile in PROFILES.items() if profile.base_url is not None]


def resolve(target: object) -> Provider:
    """Read what a user may give as a provider: a `Provider`, or a string spec ``"vendor:model"``.

    Raises
    ------
    ConfigError
        Anything else.
    """
    if isinstance(target, Provider):
        return target
    if not isinstance(target, str):
        raise ConfigError(
            f"{target!r} is no provider. Give one such as bk.OpenAI('gpt-6-luna'), or 'openai:gpt-6-luna'."
        )
    vendor, colon, model = target.partition(":")
    if not colon or not model or vendor not in _VENDORS:
        slashed = target.partition("/")
        if vendor in _VENDORS:
            hint = f"Put the model behind it: '{vendor}:MODEL'."
        elif not colon and slashed[0] in _VENDORS and slashed[2]:
            hint = f"Write '{slashed[0]}:{slashed[2]}'."
        else:
            hint = nearest(vendor.lower(), _VENDORS)
        raise ConfigError(f"{target!r} is no provider spec: 'vendor:model', for example 'openai:gpt-6-luna'. {hint}")
    make = _CLASSES.get(vendor)
    return OpenAICompatible(model, vendor=vendor) if make is None else make(model)
