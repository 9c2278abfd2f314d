"""OpenAI's Responses API, the only one that has some of its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchkit._dialects.base import as_count, as_mapping, completed, output_cap
from batchkit._dialects.compatible import EFFORT_KNOBS, arguments_of, effort_of, openai_headers, openai_url
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.quirks import Knob, Shape, next_quirks, rung_of
from batchkit._dialects.schemas import for_openai, with_schema
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
    Text,
    Usage,
)

__all__ = ["OpenAIResponses"]

_LEAST_CAP = 16
_EFFORT = "reasoning.effort"
_SHAPE = Shape(
    ("text.format", "tools", "tool_choice"),
    ("json_schema", "json_object", "json mode", "schema", "structured output", "structured outputs"),
)
_KNOBS = (*EFFORT_KNOBS, Knob("store"), Knob("temperature"))
_INCOMPLETE = {"max_output_tokens": Finish.TRUNCATED, "content_filter": Finish.FILTERED}
_UNFINISHED = frozenset({"cancelled", "failed", "in_progress", "queued"})


class OpenAIResponses:
    """The dialect of ``POST /v1/responses``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of responses below the endpoint's base URL."""
        return openai_url(endpoint, "responses")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; without a key there is no ``Authorization``."""
        return openai_headers(endpoint)

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share; nothing is left at the provider."""
        effort, thinks = effort_of(endpoint, _EFFORT, quirks)
        rung = rung_of(brief, endpoint, quirks)
        body: dict[str, Any] = {
            "model": endpoint.model,
            "input": [],
            "max_output_tokens": max(_LEAST_CAP, output_cap(brief, endpoint, thinks)),
            "store": False,
        }
        system = brief.system
        if brief.schema is not None and rung in ("json", "text"):
            system = with_schema(system, brief.schema)
        if system and rung == "json":
            # The word "json" must stand in a message: instructions do not count.
            body["input"] = [{"role": "system", "content": system}]
        elif system:
            body["instructions"] = system
        if effort is not None:
            body["reasoning"] = {"effort": effort}
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        body.update(_shape(brief, rung))
        return completed(body, quirks, endpoint.extra_body)

    def encode(self, prepared: Mapping[str, Any], question: Question, endpoint: Endpoint) -> dict[str, Any]:
        """Build the JSON body of one request: the row, then the turns."""
        body = dict(prepared)
        body["input"] = [
            *prepared["input"],
            {"role": "user", "content": question.row},
            *({"role": turn.role, "content": turn.text} for turn in question.turns),
        ]
        if question.room > 1 and "max_output_tokens" not in endpoint.extra_body:
            body["max_output_tokens"] = prepared["max_output_tokens"] * question.room
        return body

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply may have."""
        return as_count(prepared.get("max_output_tokens"))

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed."""
        return next_quirks(failure, self.prepare, endpoint, quirks, brief, shape=_SHAPE, knobs=_KNOBS)

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        found = as_mapping(body)
        output, status = found.get("output"), found.get("status")
        if isinstance(status, str) and status in _UNFINISHED:
            return unreadable(f"the response is {status!r}.")
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            return unreadable("the response has no list of items as its 'output'.")
        reply, refused = _reply(output)
        finish = Finish.STOP
        if status == "incomplete":
            reason = as_mapping(found.get("incomplete_details")).get("reason")
            finish = _INCOMPLETE.get(reason, Finish.TRUNCATED) if isinstance(reason, str) else Finish.TRUNCATED
        model = found.get("model")
        return Completion(
            reply,
            _usage(found.get("usage")),
            Finish.REFUSED if refused else finish,
            model if isinstance(model, str) else None,
            request_id,
        )


def _shape(brief: Brief, rung: str | None) -> dict[str, Any]:
    if brief.schema is None or rung == "text":
        return {}
    match rung:
        case "tool":
            tool = {"type": "function", "name": "answer", "description": "Give the answer.", "strict": False}
            return {
                "tools": [{**tool, "parameters": dict(brief.schema)}],
                "tool_choice": {"type": "function", "name": "answer"},
            }
        case "json":
            return {"text": {"format": {"type": "json_object"}}}
        case _:
            # Flat here, not below a field of its own as in chat completions.
            schema = {"type": "json_schema", "name": "answer", "strict": True, "schema": for_openai(brief.schema)}
            return {"text": {"format": schema}}


def _reply(items: list[dict[str, Any]]) -> tuple[Reply, bool]:
    """Return what the messages among the items say, and whether it is a refusal."""
    said: list[str] = []
    refusals: list[str] = []
    for item in items:
        kind, content = item.get("type"), item.get("content")
        if kind == "function_call" and (arguments := arguments_of(item.get("arguments"))) is not None:
            return arguments, False
        if kind != "message" or not isinstance(content, list):
            continue
        for part in map(as_mapping, content):
            kind, text, refusal = part.get("type"), part.get("text"), part.get("refusal")
            if kind == "output_text" and isinstance(text, str):
                said.append(text)
            elif kind == "refusal" and isinstance(refusal, str):
                refusals.append(refusal)
    return (Text("".join(refusals)), True) if refusals else (Text("".join(said)), False)


def _usage(found: Any) -> Usage:
    usage = as_mapping(found)
    sent, received = as_count(usage.get("input_tokens")), as_count(usage.get("output_tokens"))
    cached = as_count(as_mapping(usage.get("input_tokens_details")).get("cached_tokens"))
    thought = as_count(as_mapping(usage.get("output_tokens_details")).get("reasoning_tokens"))
    return Usage(sent, received, cached=min(cached, sent), reasoning=min(thought, received))
