"""OpenAI's chat completions, which most other vendors and local servers speak too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchkit._dialects.base import as_count, as_mapping, completed, output_cap
from batchkit._dialects.compatible import EFFORT_KNOBS, arguments_of, effort_of, openai_headers, openai_url
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import PROFILES, wants_thinking
from batchkit._dialects.quirks import Knob, Shape, next_quirks, rung_of
from batchkit._dialects.schemas import for_openai, with_schema
from batchkit.records import (
    NO_QUIRKS,
    NO_USAGE,
    Brief,
    Completion,
    Endpoint,
    Failure,
    Finish,
    Question,
    Quirks,
    Reply,
    Text,
    Usage,
)

__all__ = ["OpenAIChat"]

_CAP_FIELDS = ("max_completion_tokens", "max_tokens")
_TRUNCATED = frozenset({"length", "model_length"})
_UPSTREAM = frozenset({"error", "insufficient_system_resource"})
_SHAPE = Shape(
    ("response_format", "tools", "tool_choice"),
    (
        "json_schema",
        "json_object",
        "json mode",
        "guided json",
        "function calling",
        "grammar",
        "schema",
        "structured output",
        "structured outputs",
        "tool use",
        # A gateway that found nobody to do all of it.
        "requested parameters",
        "no endpoints found that",
    ),
)
_KNOBS = (
    Knob("thinking"),
    Knob("enable_thinking", ("thinking",)),
    Knob("chat_template_kwargs", ("chat_template", "enable_thinking", "thinking")),
    *EFFORT_KNOBS,
    Knob("provider"),
    Knob("temperature"),
)


class OpenAIChat:
    """The dialect of ``POST /v1/chat/completions``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of chat completions below the endpoint's base URL."""
        return openai_url(endpoint, "chat/completions")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; without a key there is no ``Authorization``."""
        return openai_headers(endpoint)

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share."""
        profile = PROFILES[endpoint.vendor]
        thinking, thinks = _thinking(endpoint, quirks)
        rung = rung_of(brief, endpoint, quirks)
        body: dict[str, Any] = {"model": endpoint.model, "messages": [], **profile.required}
        system = _system(brief, rung)
        if system:
            body["messages"] = [{"role": "system", "content": system}]
        if endpoint.extra_body.keys().isdisjoint(_CAP_FIELDS):
            body[quirks.cap_field or profile.output_cap_field] = output_cap(brief, endpoint, thinks)
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        body.update(thinking)
        body.update(_shape(brief, rung))
        return completed(body, quirks, endpoint.extra_body)

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the system text, the row, then the turns."""
        body = dict(prepared)
        body["messages"] = [
            *prepared["messages"],
            {"role": "user", "content": question.row},
            *({"role": turn.role, "content": turn.text} for turn in question.turns),
        ]
        if question.room > 1:
            for name in _CAP_FIELDS:
                if name in prepared and name not in endpoint.extra_body:
                    body[name] = prepared[name] * question.room
        return body

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply may have."""
        return max((as_count(prepared.get(name)) for name in _CAP_FIELDS), default=0)

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed."""
        return next_quirks(
            failure, self.prepare, endpoint, quirks, brief, shape=_SHAPE, knobs=_KNOBS, cap_fields=_CAP_FIELDS
        )

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        body = as_mapping(body)
        choices = body.get("choices")
        choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
        reason = choice.get("finish_reason")
        if reason != "stop" and isinstance(reason, str) and reason in _UPSTREAM:
            return body_failure({"error": choice.get("error")}) or unreadable(f"the reply ended with {reason!r}.")
        message = choice.get("message")
        if not isinstance(message, dict):
            return unreadable("the reply has no message in its 'choices'.")
        reply, refused = _reply(message)
        if reply is None:
            return unreadable("the 'content' of the reply is neither text nor a list of parts.")
        finish = Finish.REFUSED if refused else _finish(reason)
        model = body.get("model")
        model = model if isinstance(model, str) else None
        return Completion(reply, _usage(body.get("usage")), finish, model, request_id)


def _thinking(endpoint: Endpoint, quirks: Quirks) -> tuple[dict[str, Any], bool]:
    """Return the fields about reasoning, and whether the reply needs room for it."""
    profile = PROFILES[endpoint.vendor]
    effort, thinks = effort_of(endpoint, profile.effort_field, quirks)
    if profile.reasoning == "effort":
        outer, _, inner = profile.effort_field.partition(".")
        return ({outer: {inner: effort} if inner else effort} if effort is not None else {}), thinks
    switch = profile.thinking_on if wants_thinking(endpoint) else profile.thinking_off
    return dict(switch), thinks or not quirks.dropped.isdisjoint(switch)


def _system(brief: Brief, rung: str | None) -> str:
    if brief.schema is None or rung not in ("json", "text"):
        return brief.system
    return with_schema(brief.system, brief.schema)


def _shape(brief: Brief, rung: str | None) -> dict[str, Any]:
    if brief.schema is None or rung == "text":
        return {}
    match rung:
        case "tool":
            function = {"name": "answer", "description": "Give the answer.", "parameters": dict(brief.schema)}
            return {
                "tools": [{"type": "function", "function": function}],
                "tool_choice": {"type": "function", "function": {"name": "answer"}},
            }
        case "json":
            return {"response_format": {"type": "json_object"}}
        case _:
            schema = {"name": "answer", "strict": True, "schema": for_openai(brief.schema)}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _finish(reason: Any) -> Finish:
    if reason == "stop" or not isinstance(reason, str):
        return Finish.STOP
    if reason in _TRUNCATED:
        return Finish.TRUNCATED
    return Finish.FILTERED if reason == "content_filter" else Finish.STOP


def _reply(message: Mapping[str, Any]) -> tuple[Reply | None, bool]:
    """Return the reply of a message, None if it is of no known shape, and whether it is a refusal."""
    content = message.get("content")
    if type(content) is str and content and not message.get("refusal") and not message.get("tool_calls"):
        return Text(content), False
    parts = [as_mapping(part) for part in content] if isinstance(content, list) else []
    refusal = message.get("refusal") or _joined(parts, "refusal")
    if refusal and isinstance(refusal, str):
        return Text(refusal), True
    arguments = _arguments(message.get("tool_calls"))
    if arguments is not None:
        return arguments, False
    if content is None or isinstance(content, list):
        content = _joined(parts, "text")
    if not isinstance(content, str):
        return None, False
    return Text(content or _misplaced(message)), False


def _joined(parts: list[Mapping[str, Any]], kind: str) -> str:
    texts = (part.get(kind) for part in parts if part.get("type", "text") == kind)
    return "".join(text for text in texts if isinstance(text, str))


def _misplaced(message: Mapping[str, Any]) -> str:
    """Find an answer among the thoughts: servers put it there if a model was kept from thinking. Thoughts stay out."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(thought, str):
        return ""
    thought = thought.strip()
    return thought if thought.startswith("{") and thought.endswith("}") else ""


def _arguments(calls: Any) -> Reply | None:
    call = as_mapping(calls[0]) if isinstance(calls, list) and calls else {}
    return arguments_of(as_mapping(call.get("function")).get("arguments"))


def _usage(usage: Any) -> Usage:
    if type(usage) is not dict:
        return NO_USAGE
    sent, received = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    cached = usage.get("prompt_cache_hit_tokens")
    reasoning = None
    if (details := usage.get("prompt_tokens_details")) and type(details) is dict:
        cached = details.get("cached_tokens") or cached
    if (details := usage.get("completion_tokens_details")) and type(details) is dict:
        reasoning = details.get("reasoning_tokens")
    if not cached and not reasoning:
        return Usage(sent, received)
    return Usage(sent, received, min(as_count(cached), sent), min(as_count(reasoning), received))
