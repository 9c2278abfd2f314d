"""How vendors turn away a parameter that a model does not take. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchkit._playground.wires import Refusal
from batchkit._playground.wires.base import mapping

__all__ = ["gemini_unknown", "given", "unsupported"]

_Body = Mapping[str, Any]

_NESTED = ("generationConfig", "thinkingConfig", "options", "output_config", "reasoning", "text")
_SCHEMA_FIELDS = ("responseJsonSchema", "responseSchema")


def unsupported(dialect: str, vendor: str | None, body: _Body, names: Iterable[str]) -> Refusal | None:
    """Turn away a request that brings a parameter of one of ``names``, as a vendor does whose model has no such.

    ``json_schema`` names the request for a schema, whatever field the dialect has for it.
    """
    brought = given(body)
    for name in names:
        if name in brought:
            return _UNSUPPORTED.get(vendor or dialect, _openai_unsupported)(name, brought[name])
    return None


def given(body: _Body) -> dict[str, str]:
    """List the parameters of a request by name, each with its path; inside a vendor's own groups too."""
    found = _paths(body, "")
    form = None
    if mapping(body.get("response_format")).get("type") == "json_schema":
        form = "response_format"
    if mapping(mapping(body.get("text")).get("format")).get("type") == "json_schema":
        form = "text.format"
    if isinstance(body.get("format"), dict):
        form = "format"
    if "format" in mapping(body.get("output_config")):
        form = "output_config.format"
    form = next((found[name] for name in _SCHEMA_FIELDS if name in found), form)
    return found if form is None else {**found, "json_schema": form}


def gemini_unknown(name: str, where: str) -> Refusal:
    """Turn away a name that Gemini does not know."""
    message = f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
    details = [
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"description": message}]},
    ]
    return Refusal(400, message, param=name, details=details)


def _paths(body: _Body, prefix: str) -> dict[str, str]:
    found = {}
    for name, value in body.items():
        found[name] = prefix + name
        if name in _NESTED and isinstance(value, dict):
            found |= _paths(value, f"{prefix}{name}.")
    return found


def _openai_unsupported(name: str, path: str) -> Refusal:
    if name == "json_schema":
        message = f"Invalid parameter: '{path}' of type 'json_schema' is not supported with this model."
        return Refusal(400, message, param=path)
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(name)
    instead = "" if other is None else f" Use '{other}' instead."
    message = f"Unsupported parameter: '{path}' is not supported with this model.{instead}"
    return Refusal(400, message, "unsupported_parameter", path)


def _anthropic_unsupported(name: str, path: str) -> Refusal:
    if name == "json_schema":
        return Refusal(400, f"{path}: structured outputs are not supported by this model")
    return Refusal(400, f"`{path}` is not supported by this model.")


def _gemini_unsupported(name: str, path: str) -> Refusal:
    *groups, last = path.split(".")
    where = "_".join(re.findall(r"[A-Z]?[a-z]+", groups[-1])).lower() if groups else ""
    return gemini_unknown(last, f" at '{where}'" if where else "")


def _ollama_unsupported(name: str, path: str) -> Refusal:
    if name == "think":
        return Refusal(400, "this model does not support thinking")
    return Refusal(400, f"{path} is not supported by this model")


_UNSUPPORTED: Mapping[str, Callable[[str, str], Refusal]] = {
    "anthropic": _anthropic_unsupported,
    "gemini": _gemini_unsupported,
    "ollama": _ollama_unsupported,
    "mistral": lambda name, path: Refusal(422, "Extra inputs are not permitted", param=path),
    "deepseek": lambda name, path: (
        Refusal(400, "This response_format type is unavailable now")
        if name == "json_schema"
        else _openai_unsupported(name, path)
    ),
}
