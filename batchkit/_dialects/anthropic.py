"""Anthropic's messages, which several gateways speak too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from batchkit._dialects.base import as_count, as_mapping, completed, join_url, merge_headers, output_cap
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import traits_of, wants_thinking
from batchkit._dialects.quirks import EFFORTS, Knob, Shape, least, next_quirks, rung_of
from batchkit._dialects.schemas import for_anthropic, with_schema
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
    Structured,
    Text,
    Usage,
)

__all__ = ["AnthropicMessages"]

_VERSION = "2023-06-01"
_CACHEABLE_BYTES = 512 * 4
"""The shortest prefix any model caches, at about four bytes a token."""
_EFFORT = "output_config.effort"
_CACHE = "cache_control"
_SHAPE = Shape(
    ("output_config.format", "tools", "tool_choice"),
    (
        "`output_config`",
        "output_format",
        "json_schema",
        "schema",
        "compiled grammar",
        "structured output",
        "structured outputs",
        "tool use",
    ),
)
_KNOBS = (
    Knob(_EFFORT, ("effort",), EFFORTS),
    Knob("thinking"),
    Knob("temperature"),
)
_FINISH = {
    "max_tokens": Finish.TRUNCATED,
    "model_context_window_exceeded": Finish.TRUNCATED,
    "refusal": Finish.REFUSED,
}
_NOTHING = Text("")


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

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share."""
        traits = traits_of(endpoint)
        rung = rung_of(brief, endpoint, quirks)
        effort = _effort(endpoint, quirks)
        thinks = wants_thinking(endpoint) or traits.thinks or "thinking" in quirks.dropped
        body: dict[str, Any] = {
            "model": endpoint.model,
            "max_tokens": output_cap(brief, endpoint, thinks),
            "messages": [],
        }
        if wants_thinking(endpoint):
            body["thinking"] = {"type": "adaptive"}
        elif traits.thinking is not None:
            body["thinking"] = traits.thinking
        system = brief.system
        if brief.schema is not None and rung in ("json", "text"):
            system = with_schema(system, brief.schema)
        if system:
            body["system"] = [_system_block(system, cached=_CACHE not in quirks.dropped)]
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        output: dict[str, Any] = {} if effort is None else {"effort": effort}
        if brief.schema is not None and rung == "schema":
            output["format"] = {"type": "json_schema", "schema": for_anthropic(brief.schema)}
        if output:
            body["output_config"] = output
        if brief.schema is not None and rung == "tool":
            schema = dict(brief.schema)
            body["tools"] = [{"name": "answer", "description": "Give the answer.", "input_schema": schema}]
            body["tool_choice"] = {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
        return completed(body, quirks, endpoint.extra_body)

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the row, then the turns."""
        body = dict(prepared)
        body["messages"] = [
            {"role": "user", "content": question.row},
            # A message without content is refused; two user messages in a row are not.
            *({"role": turn.role, "content": turn.text} for turn in question.turns if turn.text.strip()),
        ]
        if question.room > 1 and "max_tokens" not in endpoint.extra_body:
            body["max_tokens"] = prepared["max_tokens"] * question.room
        return body

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply may have."""
        return as_count(prepared.get("max_tokens"))

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed."""
        # Gateways know no caching, and it stands inside another field.
        if _CACHE in failure.message and failure.kind == "config" and brief.system:
            system = self.prepare(brief, endpoint, quirks).get("system", [])
            return replace(quirks, dropped=quirks.dropped | {_CACHE}) if _CACHE in system[0] else None
        return next_quirks(failure, self.prepare, endpoint, quirks, brief, shape=_SHAPE, knobs=_KNOBS)

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
        if reason == "pause_turn":
            return unreadable("the reply ended with 'pause_turn'.")
        reply = _reply([as_mapping(block) for block in content])
        if reply == _NOTHING and reason == "refusal":
            category = as_mapping(body.get("stop_details")).get("category")
            reply = Text(category if isinstance(category, str) else "")
        return Completion(
            reply,
            _usage(body.get("usage")),
            _FINISH.get(reason, Finish.STOP) if isinstance(reason, str) else Finish.STOP,
            model if isinstance(model, str) else None,
            request_id,
        )


def _effort(endpoint: Endpoint, quirks: Quirks) -> str | None:
    if wants_thinking(endpoint):
        return endpoint.reasoning
    effort = traits_of(endpoint).effort
    return None if effort is None else least(_EFFORT, effort, quirks)


def _system_block(system: str, *, cached: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": system}
    if cached and len(system.encode("utf-8", "replace")) >= _CACHEABLE_BYTES:
        block["cache_control"] = {"type": "ephemeral"}
    return block


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
