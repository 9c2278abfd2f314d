"""Google's Gemini, through generateContent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchkit._dialects.base import (
    as_count,
    as_mapping,
    completed,
    in_url,
    is_versioned,
    join_url,
    merge_headers,
    output_cap,
)
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import PROFILES, traits_of, wants_thinking
from batchkit._dialects.quirks import Knob, Shape, least, next_quirks, rung_of
from batchkit._dialects.schemas import for_gemini, with_schema
from batchkit.records import (
    NO_QUIRKS,
    Brief,
    Completion,
    Endpoint,
    Failure,
    Finish,
    Question,
    Quirks,
    Reply,
    Scope,
    Structured,
    Text,
    Usage,
)

__all__ = ["Gemini"]

_CONFIG = "generationConfig"
_LEVEL = f"{_CONFIG}.thinkingConfig.thinkingLevel"
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""What an effort means to the models that count their thoughts instead."""
_SHAPE = Shape(
    (f"{_CONFIG}.responseJsonSchema", f"{_CONFIG}.responseMimeType"),
    (
        "generation_config.response_schema",
        "response schema",
        "response json schema",
        "response mime type",
        "responseSchema",
        "responseJsonSchema",
        "responseMimeType",
        "json mode",
        "schema",
    ),
)
_THINKING = ("thinking", "thinking level", "thinking budget", "thinking mode", "thinking config", "budget")
_KNOBS = (
    Knob(_LEVEL, (*_THINKING, "thinkingLevel", "generation_config.thinking_config"), _LEVELS),
    Knob(f"{_CONFIG}.thinkingConfig", (*_THINKING, "thinkingBudget", "thinkingConfig")),
    Knob(f"{_CONFIG}.temperature", ("temperature",)),
)
_TRUNCATED = frozenset({"MAX_TOKENS", "CONTINUATION"})
_FILTERED = frozenset(
    {
        "BLOCKLIST",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "OTHER",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})


class Gemini:
    """The dialect of ``POST /v1beta/models/{model}:generateContent``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of the model below the endpoint's base URL."""
        version = "" if is_versioned(endpoint.base_url) else PROFILES["gemini"].version
        return join_url(endpoint.base_url, version, f"models/{in_url(endpoint.model)}:generateContent")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; the key never stands in the URL, which ends up in logs."""
        ours = {"Content-Type": "application/json"}
        if endpoint.key and "authorization" not in {name.lower() for name in endpoint.headers}:
            ours["x-goog-api-key"] = endpoint.key
        return merge_headers(ours, endpoint.headers)

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share."""
        thinking, thinks = _thinking(endpoint, quirks)
        rung = rung_of(brief, endpoint, quirks)
        config: dict[str, Any] = {"maxOutputTokens": output_cap(brief, endpoint, thinks)}
        if endpoint.temperature is not None:
            config["temperature"] = endpoint.temperature
        if thinking:
            config["thinkingConfig"] = thinking
        if rung in ("schema", "json"):
            config["responseMimeType"] = "application/json"
        system = brief.system
        if brief.schema is not None and rung == "schema":
            config["responseJsonSchema"] = for_gemini(brief.schema)
        elif brief.schema is not None:
            system = with_schema(system, brief.schema)
        body: dict[str, Any] = {"contents": [], _CONFIG: config}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        return completed(body, quirks, endpoint.extra_body)

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the row, then the turns."""
        body = dict(prepared)
        body["contents"] = [
            {"role": "user", "parts": [{"text": question.row}]},
            *(
                {"role": "model" if turn.role == "assistant" else "user", "parts": [{"text": turn.text}]}
                for turn in question.turns
            ),
        ]
        if question.room > 1:
            config = prepared[_CONFIG]
            if "maxOutputTokens" not in as_mapping(endpoint.extra_body.get(_CONFIG)):
                body[_CONFIG] = {**config, "maxOutputTokens": config["maxOutputTokens"] * question.room}
        return body

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply may have."""
        return as_count(as_mapping(prepared.get(_CONFIG)).get("maxOutputTokens"))

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed."""
        return next_quirks(failure, self.prepare, endpoint, quirks, brief, shape=_SHAPE, knobs=_KNOBS)

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        found = as_mapping(body)
        usage, model = _usage(found.get("usageMetadata")), _text(found.get("modelVersion"))
        request_id = request_id or _text(found.get("responseId"))
        candidates = found.get("candidates")
        if not isinstance(candidates, list) or not candidates:
            blocked = _text(as_mapping(found.get("promptFeedback")).get("blockReason"))
            if blocked is None:
                return unreadable("the reply has no 'candidates'.")
            return Completion(Text(blocked), usage, Finish.FILTERED, model, request_id)
        candidate = candidates[0]
        if not isinstance(candidate, dict):
            return unreadable("the first of the reply's 'candidates' is no object.")
        reason = _text(candidate.get("finishReason")) or "STOP"
        if reason in _MALFORMED:
            return unreadable(f"the reply ended with {reason!r}.")
        if reason == "PUP_LIMITED_DISABLED":
            return Failure("auth", f"HTTP 200, but the account may not do this: {reason}", Scope.PROVIDER, status=200)
        reply = _reply(as_mapping(candidate.get("content")).get("parts"))
        if reason in _TRUNCATED:
            return Completion(reply, usage, Finish.TRUNCATED, model, request_id)
        if reason in _FILTERED:
            said = Text(reason) if reply == Text("") else reply
            return Completion(said, usage, Finish.FILTERED, model, request_id)
        return Completion(reply, usage, Finish.STOP, model, request_id)


def _thinking(endpoint: Endpoint, quirks: Quirks) -> tuple[Mapping[str, Any], bool]:
    """Return the ``thinkingConfig`` to send, and whether the reply needs room for thoughts."""
    traits = traits_of(endpoint)
    least_of_all = traits.thinking or {}
    if wants_thinking(endpoint) and endpoint.reasoning is not None:
        if "thinkingBudget" in least_of_all:
            return {"thinkingBudget": _BUDGETS.get(endpoint.reasoning, -1)}, True
        return {"thinkingLevel": endpoint.reasoning.upper()}, True
    if "thinkingLevel" in least_of_all:
        level = least(_LEVEL, least_of_all["thinkingLevel"], quirks, _LEVELS)
        return ({} if level is None else {"thinkingLevel": level}), True
    return least_of_all, traits.thinks or f"{_CONFIG}.thinkingConfig" in quirks.dropped


def _reply(found: Any) -> Reply:
    said: list[str] = []
    for part in map(as_mapping, found if isinstance(found, list) else ()):
        if part.get("thought") is True:
            continue
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(call, dict):
            return Structured(call.get("args"))
        if isinstance(text, str):
            said.append(text)
    return Text("".join(said))


def _usage(found: Any) -> Usage:
    usage = as_mapping(found)
    sent = as_count(usage.get("promptTokenCount")) + as_count(usage.get("toolUsePromptTokenCount"))
    thought = as_count(usage.get("thoughtsTokenCount"))
    received = as_count(usage.get("candidatesTokenCount")) + thought
    cached = min(as_count(usage.get("cachedContentTokenCount")), sent)
    return Usage(sent, received, cached=cached, reasoning=thought)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
