"""The two wire formats of the playground, seen from the server: read a request, write a reply or an error. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from batchkit._playground.judge import Asked, count_tokens

__all__ = ["WIRES", "Refusal", "Said", "Wire"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request gets no answer."""

    status: int
    message: str
    code: str | None = None
    """What OpenAI calls the reason."""
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A reply before it is dressed as a vendor's."""

    text: str
    arguments: Mapping[str, Any] | None
    """The answer as a tool's arguments, where the tool was forced and the answer is whole."""
    truncated: bool
    output_tokens: int
    serial: str


class Wire(Protocol):
    """One vendor's format."""

    path: str
    """Where a question is posted, without ``/v1``."""
    request_id_header: str

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the key that came with the request."""
        ...

    def read(self, body: Any, headers: Mapping[str, str]) -> Asked | Refusal:
        """Understand a request's JSON body, or say why the vendor would not."""
        ...

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write the body of a reply."""
        ...

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write the body of an error."""
        ...

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write the list of models."""
        ...


class OpenAIWire:
    """OpenAI chat completions."""

    path = "/chat/completions"
    request_id_header = "x-request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the bearer key."""
        return _bearer(headers)

    def read(self, body: Any, headers: Mapping[str, str]) -> Asked | Refusal:
        """Understand a chat completions body."""
        if not isinstance(body, dict):
            return _unparsable()
        for param in ("model", "messages"):
            if not body.get(param):
                return _bad(f"Missing required parameter: '{param}'.", "missing_required_parameter", param)
        turns = _turns(body["messages"])
        if turns is None or "user" not in (role for role, _ in turns):
            return _bad(
                "Invalid value for 'messages': expected objects with role and content, one of them of the user."
            )
        schema, tool = self._shape(body)
        return Asked(
            model=str(body["model"]),
            text=next(text for role, text in turns if role == "user"),
            system="\n".join(text for role, text in turns if role in ("system", "developer")),
            schema=schema,
            tool=tool,
            cap=_whole(body.get("max_completion_tokens") or body.get("max_tokens")),
            input_tokens=count_tokens(*(text for _, text in turns)),
        )

    def _shape(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
        choice = _mapping(_mapping(body.get("tool_choice")).get("function")).get("name")
        for tool in _mappings(body.get("tools")):
            function = _mapping(tool.get("function"))
            if choice is not None and function.get("name") == choice:
                return _mapping(function.get("parameters")), str(choice)
        return _schema(_mapping(_mapping(body.get("response_format")).get("json_schema")).get("schema")), None

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
        finish = "length" if said.truncated else "stop"
        if asked.tool is not None:
            call = {"name": asked.tool, "arguments": said.text}
            tool_call = {"id": f"call_{said.serial}", "type": "function", "function": call}
            message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [tool_call]}
        return {
            "id": f"chatcmpl-{said.serial}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": asked.input_tokens,
                "completion_tokens": said.output_tokens,
                "total_tokens": asked.input_tokens + said.output_tokens,
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
        }

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write an error with OpenAI's four keys."""
        kind = {429: "requests", 500: "server_error"}.get(refusal.status, "invalid_request_error")
        return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write OpenAI's list of models."""
        rows = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "playground"} for name in names]
        return {"object": "list", "data": rows}


class AnthropicWire:
    """Anthropic messages."""

    path = "/messages"
    request_id_header = "request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the key in ``x-api-key``, else the bearer key."""
        return headers.get("x-api-key") or _bearer(headers)

    def read(self, body: Any, headers: Mapping[str, str]) -> Asked | Refusal:
        """Understand a messages body and its version header."""
        if not headers.get("anthropic-version"):
            return _bad("anthropic-version: header is required")
        if not isinstance(body, dict):
            return _unparsable()
        for param in ("model", "max_tokens", "messages"):
            if not body.get(param):
                return _bad(f"{param}: Field required")
        turns = _turns(body["messages"])
        if turns is None or not turns or turns[0][0] != "user":
            return _bad("messages: expected objects with role and content, the first of them of the user")
        system = _content(body.get("system", "")) or ""
        schema, tool = self._shape(body)
        return Asked(
            model=str(body["model"]),
            text=turns[0][1],
            system=system,
            schema=schema,
            tool=tool,
            cap=_whole(body["max_tokens"]),
            input_tokens=count_tokens(system, *(text for _, text in turns)),
        )

    def _shape(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
        choice = _mapping(body.get("tool_choice"))
        for tool in _mappings(body.get("tools")):
            if choice.get("type") == "any" or (choice.get("type") == "tool" and choice.get("name") == tool.get("name")):
                return _mapping(tool.get("input_schema")), str(tool.get("name"))
        return _schema(_mapping(_mapping(body.get("output_config")).get("format")).get("schema")), None

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a message."""
        content: dict[str, Any] = {"type": "text", "text": said.text}
        reason = "max_tokens" if said.truncated else "end_turn"
        if asked.tool is not None:
            arguments = said.arguments or {}
            content = {"type": "tool_use", "id": f"toolu_{said.serial}", "name": asked.tool, "input": arguments}
            reason = "max_tokens" if said.truncated else "tool_use"
        return {
            "id": f"msg_{said.serial}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [content],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": asked.input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": said.output_tokens,
            },
        }

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write an error with Anthropic's type for its status."""
        kind = {
            401: "authentication_error",
            404: "not_found_error",
            413: "request_too_large",
            429: "rate_limit_error",
            500: "api_error",
        }.get(refusal.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": request_id}

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write Anthropic's list of models."""
        made = "2025-01-01T00:00:00Z"
        rows = [{"type": "model", "id": name, "display_name": name, "created_at": made} for name in names]
        return {"data": rows, "has_more": False, "first_id": names[0], "last_id": names[-1]}


WIRES: Mapping[str, Wire] = {"openai": OpenAIWire(), "anthropic": AnthropicWire()}


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def _bad(message: str, code: str | None = None, param: str | None = None) -> Refusal:
    return Refusal(400, message, code, param)


def _unparsable() -> Refusal:
    return _bad("We could not parse the JSON body of your request: expected a JSON object.")


def _turns(messages: Any) -> list[tuple[str, str]] | None:
    if not isinstance(messages, list):
        return None
    turns = []
    for message in messages:
        role = str(_mapping(message).get("role"))
        # An assistant that called a tool has said nothing else.
        nothing = "" if role == "assistant" else None
        text = _content(_mapping(message).get("content", nothing) or nothing)
        if text is None:
            return None
        turns.append((role, text))
    return turns


def _content(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [_mapping(part).get("text") for part in content if _mapping(part).get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _whole(number: Any) -> int | None:
    return number if isinstance(number, int) else None


def _schema(schema: Any) -> Mapping[str, Any] | None:
    return schema if isinstance(schema, dict) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
