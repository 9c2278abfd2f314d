"""Anthropic's messages, which several gateways speak too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchkit._dialects.base import as_count, as_mapping, join_url, merge_headers, output_cap
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import Traits, traits_of, wants_thinking
from batchkit.records import Brief, Completion, Endpoint, Failure, Finish, Question, Reply, Structured, Text, Usage

__all__ = ["AnthropicMessages"]

_VERSION = "2023-06-01"
_CACHEABLE_BYTES = 512 * 4
"""The shortest prefix any model caches, at about four bytes a token."""
_REFUSED_KEYWORDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_FINISH = {
    "max_tokens": Finish.TRUNCATED,
    "model_context_window_exceeded": Finish.TRUNCATED,
    "refusal": Finish.REFUSED,
}


class AnthropicMessages:
    """The dialect of ``POST /v1/messages``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of messages below the endpoint's base URL."""
        return join_url(endpoint.base_url, "v1", "messages")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; a user's ``Authorization`` stands instead of the key."""
        ours = {"Content-Type": "application/json", "anthropic-version": _VERSION}
        # Both ways to authenticate at once are a 401.
        if endpoint.key and "authorization" not in {name.lower() for name in endpoint.headers}:
            ours["x-api-key"] = endpoint.key
        return merge_headers(ours, endpoint.headers)

    def prepare(self, brief: Brief, endpoint: Endpoint) -> Mapping[str, Any]:
        """Build what all requests of one brief share."""
        traits = traits_of(endpoint)
        thinks = wants_thinking(endpoint) or traits.thinks
        body: dict[str, Any] = {
            "model": endpoint.model,
            "max_tokens": output_cap(brief, endpoint, thinks),
            "messages": [],
            **_thinking(endpoint, traits),
        }
        if brief.system:
            body["system"] = [_system_block(brief.system)]
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        output = _output_config(brief, endpoint, traits)
        if output:
            body["output_config"] = output
        if brief.schema is not None and not traits.structured:
            schema = dict(brief.schema)
            body["tools"] = [{"name": "answer", "description": "Give the answer.", "input_schema": schema}]
            body["tool_choice"] = {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
        return body

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the row, then the turns."""
        body = dict(prepared)
        body["messages"] = [
            {"role": "user", "content": question.row},
            # A message without content is refused; two user messages in a row are not.
            *({"role": turn.role, "content": turn.text} for turn in question.turns if turn.text.strip()),
        ]
        if question.room > 1:
            body["max_tokens"] = prepared["max_tokens"] * question.room
        body.update(endpoint.extra_body)
        return body

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        content = as_mapping(body).get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            return unreadable("the reply has no list of blocks as its 'content'.")
        reason, model = body.get("stop_reason"), body.get("model")
        return Completion(
            _reply([as_mapping(block) for block in content]),
            _usage(body.get("usage")),
            _FINISH.get(reason, Finish.STOP) if isinstance(reason, str) else Finish.STOP,
            model if isinstance(model, str) else None,
            request_id,
        )


def _thinking(endpoint: Endpoint, traits: Traits) -> dict[str, Any]:
    if wants_thinking(endpoint):
        return {"thinking": {"type": "adaptive"}}
    return {} if traits.thinking is None else {"thinking": traits.thinking}


def _system_block(system: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": system}
    if len(system.encode("utf-8", "replace")) >= _CACHEABLE_BYTES:
        block["cache_control"] = {"type": "ephemeral"}
    return block


def _output_config(brief: Brief, endpoint: Endpoint, traits: Traits) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = endpoint.reasoning if wants_thinking(endpoint) else traits.effort
    if effort is not None:
        config["effort"] = effort
    if brief.schema is not None and traits.structured:
        config["format"] = {"type": "json_schema", "schema": _without_bounds(brief.schema)}
    return config


def _without_bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a schema without the bounds of numbers, which are refused here."""
    copy = {keyword: value for keyword, value in schema.items() if keyword not in _REFUSED_KEYWORDS}
    if isinstance(schema.get("properties"), Mapping):
        copy["properties"] = {name: _without_bounds(inner) for name, inner in schema["properties"].items()}
    if isinstance(schema.get("items"), Mapping):
        copy["items"] = _without_bounds(schema["items"])
    return copy


def _reply(blocks: list[Mapping[str, Any]]) -> Reply:
    for block in blocks:
        if block.get("type") == "tool_use":
            return Structured(block.get("input"))
    texts = (block.get("text") for block in blocks if block.get("type") == "text")
    return Text("".join(text for text in texts if isinstance(text, str)))


def _usage(found: Any) -> Usage:
    usage = as_mapping(found)
    cached = as_count(usage.get("cache_read_input_tokens"))
    fresh = as_count(usage.get("input_tokens")) + as_count(usage.get("cache_creation_input_tokens"))
    thought = as_count(as_mapping(usage.get("output_tokens_details")).get("thinking_tokens"))
    received = as_count(usage.get("output_tokens"))
    return Usage(fresh + cached, received, cached=cached, reasoning=min(thought, received))
