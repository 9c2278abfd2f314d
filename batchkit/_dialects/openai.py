"""OpenAI's chat completions, which most other vendors and local servers speak too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from batchkit._dialects.base import (
    as_count,
    as_mapping,
    is_versioned,
    join_url,
    merge_headers,
    output_cap,
)
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import PROFILES, traits_of, wants_thinking
from batchkit.records import Brief, Completion, Endpoint, Failure, Finish, Question, Reply, Structured, Text, Usage

__all__ = ["OpenAIChat"]

_CAP_FIELDS = ("max_completion_tokens", "max_tokens")
_TRUNCATED = frozenset({"length", "model_length"})
_UPSTREAM = frozenset({"error", "insufficient_system_resource"})


class OpenAIChat:
    """The dialect of ``POST /v1/chat/completions``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of chat completions below the endpoint's base URL."""
        # Some compatible vendors have their version elsewhere in the path: /v1beta/openai, /paas/v4.
        version = "" if is_versioned(endpoint.base_url) else "v1"
        return join_url(endpoint.base_url, version, "chat/completions")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; without a key there is no ``Authorization``."""
        ours = {"Content-Type": "application/json"}
        if endpoint.key:
            ours["Authorization"] = f"Bearer {endpoint.key}"
        return merge_headers(ours, endpoint.headers)

    def prepare(self, brief: Brief, endpoint: Endpoint) -> Mapping[str, Any]:
        """Build what all requests of one brief share."""
        profile = PROFILES[endpoint.vendor]
        traits = traits_of(endpoint)
        effort = endpoint.reasoning if wants_thinking(endpoint) else traits.effort
        thinks = wants_thinking(endpoint) or traits.thinks
        body: dict[str, Any] = {"model": endpoint.model, "messages": []}
        if brief.system:
            body["messages"] = [{"role": "system", "content": brief.system}]
        if endpoint.extra_body.keys().isdisjoint(_CAP_FIELDS):
            body[profile.output_cap_field] = output_cap(brief, endpoint, thinks)
        if effort is not None and profile.takes_reasoning:
            body["reasoning_effort"] = effort
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if brief.schema is not None:
            schema = {"name": "answer", "strict": True, "schema": dict(brief.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the system text, the row, then the turns."""
        body = dict(prepared)
        body["messages"] = [
            *prepared["messages"],
            {"role": "user", "content": question.row},
            *({"role": turn.role, "content": turn.text} for turn in question.turns),
        ]
        if question.room > 1:
            body.update({name: prepared[name] * question.room for name in _CAP_FIELDS if name in prepared})
        body.update(endpoint.extra_body)
        return body

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        choices = as_mapping(body).get("choices")
        choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            return unreadable("the reply has no message in its 'choices'.")
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason in _UPSTREAM:
            return unreadable(f"the reply ended with {reason!r}.")
        reply, refused = _reply(message)
        if reply is None:
            return unreadable("the 'content' of the reply is neither text nor a list of parts.")
        finish = Finish.REFUSED if refused else _finish(reason)
        model = body.get("model")
        model = model if isinstance(model, str) else None
        return Completion(reply, _usage(body.get("usage")), finish, model, request_id)


def _finish(reason: Any) -> Finish:
    if not isinstance(reason, str):
        return Finish.STOP
    if reason in _TRUNCATED:
        return Finish.TRUNCATED
    return Finish.FILTERED if reason == "content_filter" else Finish.STOP


def _reply(message: Mapping[str, Any]) -> tuple[Reply | None, bool]:
    """Return the reply of a message, None if it is of no known shape, and whether it is a refusal."""
    content = message.get("content")
    parts = [as_mapping(part) for part in content] if isinstance(content, list) else []
    refusal = message.get("refusal") or _joined(parts, "refusal")
    if refusal and isinstance(refusal, str):
        return Text(refusal), True
    arguments = _arguments(message.get("tool_calls"))
    if arguments is not None:
        return arguments, False
    if isinstance(content, str):
        return Text(content), False
    if content is None or isinstance(content, list):
        return Text(_joined(parts, "text")), False
    return None, False


def _joined(parts: list[Mapping[str, Any]], kind: str) -> str:
    texts = (part.get(kind) for part in parts if part.get("type", "text") == kind)
    return "".join(text for text in texts if isinstance(text, str))


def _arguments(calls: Any) -> Reply | None:
    call = as_mapping(calls[0]) if isinstance(calls, list) and calls else {}
    arguments = as_mapping(call.get("function")).get("arguments")
    if isinstance(arguments, dict):
        return Structured(arguments)
    if not isinstance(arguments, str):
        return None
    try:
        return Structured(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return Text(arguments)


def _usage(found: Any) -> Usage:
    usage = as_mapping(found)
    cached = as_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
    reasoning = as_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")
    sent, received = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    return Usage(sent, received, cached=min(as_count(cached), sent), reasoning=min(as_count(reasoning), received))
