"""Ollama's own chat API: the only one of its two that can be told how long a text may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from batchkit._dialects.base import as_count, as_mapping, completed, join_url, merge_headers, output_cap
from batchkit._dialects.errors import body_failure, unreadable
from batchkit._dialects.profiles import traits_of, wants_thinking
from batchkit._dialects.quirks import Knob, Shape, next_quirks, rung_of
from batchkit._dialects.schemas import with_schema
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

__all__ = ["Ollama"]

_LEAST_CONTEXT = 4096
_MOST_CONTEXT = 32768
"""More would fill a laptop's memory for one long row; ``extra_body`` can ask for it."""
_BYTES_PER_TOKEN = 2
"""Few: English has about four and Chinese three, but a row too long for its window is lost."""
_SHAPE = Shape(("format",), ("schema", "grammar", "structured output", "structured outputs"))
_KNOBS = (Knob("think", ("thinking",)), Knob("options.temperature", ("temperature",)))


class Ollama:
    """The dialect of ``POST /api/chat``."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the address of chat below the endpoint's base URL, which may be that of ``/v1``."""
        parts = urlsplit(endpoint.base_url.strip())
        path = parts.path.rstrip("/").removesuffix("/v1")
        return join_url(urlunsplit(parts._replace(path=path)), "", "api/chat")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the request headers; only the hosted service wants a key."""
        ours = {"Content-Type": "application/json"}
        if endpoint.key:
            ours["Authorization"] = f"Bearer {endpoint.key}"
        return merge_headers(ours, endpoint.headers)

    def prepare(self, brief: Brief, endpoint: Endpoint, quirks: Quirks = NO_QUIRKS) -> Mapping[str, Any]:
        """Build what all requests of one brief share.

        The context window is the same for all of them, since another one loads the model anew.
        """
        traits = traits_of(endpoint)
        rung = rung_of(brief, endpoint, quirks)
        cap = output_cap(brief, endpoint, wants_thinking(endpoint) or traits.thinks)
        system = brief.system
        if brief.schema is not None and rung != "schema":
            system = with_schema(system, brief.schema)
        body: dict[str, Any] = {
            "model": endpoint.model,
            "messages": [{"role": "system", "content": system}] if system else [],
            "stream": False,
            "think": _think(endpoint),
            # What does not fit is refused, and not cut without a word.
            "truncate": False,
            "shift": False,
            "options": {"num_ctx": _context(system, brief.longest_row, cap), "num_predict": cap},
        }
        if endpoint.temperature is not None:
            body["options"]["temperature"] = endpoint.temperature
        if brief.schema is not None and rung == "schema":
            body["format"] = dict(brief.schema)
        elif rung == "json":
            body["format"] = "json"
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
            options = prepared["options"]
            if "num_predict" not in as_mapping(endpoint.extra_body.get("options")):
                body["options"] = {**options, "num_predict": options["num_predict"] * question.room}
        return body

    def cap(self, prepared: Mapping[str, Any]) -> int:
        """Return the most tokens that a reply may have."""
        return as_count(as_mapping(prepared.get("options")).get("num_predict"))

    def adapt(self, failure: Failure, endpoint: Endpoint, quirks: Quirks, brief: Brief) -> Quirks | None:
        """Say how to ask a model that refused a request; None where nothing can be changed."""
        return next_quirks(failure, self.prepare, endpoint, quirks, brief, shape=_SHAPE, knobs=_KNOBS)

    def decode(self, body: Any, request_id: str | None = None) -> Completion | Failure:
        """Read the parsed body of an HTTP 200 answer, whatever its shape; never raises."""
        failure = body_failure(body)
        if failure is not None:
            return failure
        found = as_mapping(body)
        message = found.get("message")
        if not isinstance(message, dict):
            return unreadable("the reply has no 'message'.")
        reason = found.get("done_reason")
        if found.get("done") is False or reason in ("load", "unload"):
            return unreadable(f"the reply is not whole: it ended with {str(reason)[:40]!r}.")
        reply = _reply(message)
        if reply is None:
            return unreadable("the 'content' of the reply is no text.")
        sent, received = as_count(found.get("prompt_eval_count")), as_count(found.get("eval_count"))
        finish = Finish.TRUNCATED if reason == "length" else Finish.STOP
        model = found.get("model")
        return Completion(reply, Usage(sent, received), finish, model if isinstance(model, str) else None, request_id)


def _think(endpoint: Endpoint) -> bool | str:
    if wants_thinking(endpoint) and endpoint.reasoning is not None:
        return True if endpoint.reasoning == "on" else endpoint.reasoning
    return traits_of(endpoint).effort or False


def _context(system: str, longest_row: int, cap: int) -> int:
    """Return the window that holds the longest request and its reply, as a power of two."""
    size = len(system.encode("utf-8", "replace")) + longest_row
    needed = size // _BYTES_PER_TOKEN + cap
    return min(_MOST_CONTEXT, max(_LEAST_CONTEXT, 1 << (needed - 1).bit_length()))


def _reply(message: Mapping[str, Any]) -> Reply | None:
    calls = message.get("tool_calls")
    call = as_mapping(as_mapping(calls[0]).get("function")) if isinstance(calls, list) and calls else {}
    if isinstance(call.get("arguments"), dict):
        return Structured(call["arguments"])
    content = message.get("content")
    if content is None:
        return Text("")
    return Text(content) if isinstance(content, str) else None
