"""OpenAI chat completions, and what the vendors that speak them make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchkit._playground.judge import Asked, count_tokens
from batchkit._playground.wires.base import (
    Refusal,
    Said,
    bad,
    bearer,
    mapping,
    mappings,
    schema,
    turns,
    unparsable,
    whole,
)

__all__ = ["VENDORS", "OpenAIWire", "openai_error", "openai_models"]

VENDORS: Mapping[str, str] = {
    "azure": "/openai/v1",
    "deepseek": "",
    "groq": "/openai/v1",
    "llama.cpp": "/v1",
    "lm-studio": "/v1",
    "mistral": "/v1",
    "moonshot": "/v1",
    "ollama-v1": "/v1",
    "openrouter": "/api/v1",
    "qwen": "/compatible-mode/v1",
    "together": "/v1",
    "vllm": "/v1",
}
"""Vendors that speak OpenAI's format, and where in their URL it begins."""

_IGNORES_NEW_CAP = frozenset({"deepseek", "ollama-v1"})
_KINDS = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error", 504: "server_error"}
_VLLM_KINDS = {401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError", 500: "InternalServerError"}
_OLLAMA_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAIWire:
    """Chat completions, as OpenAI or another vendor speaks them."""

    dialect = "openai"
    request_id_header = "x-request-id"

    def __init__(self, vendor: str | None = None) -> None:
        self.vendor = vendor

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the bearer key, or Azure's own."""
        return (headers.get("api-key") if self.vendor == "azure" else None) or bearer(headers)

    def wrong_key(self) -> Refusal:
        """Say so with HTTP 401."""
        return Refusal(401, "Incorrect API key provided.", "invalid_api_key")

    def unknown_model(self, model: str) -> Refusal:
        """Say so with HTTP 404."""
        if self.vendor == "ollama-v1":
            return Refusal(404, f'model "{model}" not found, try pulling it first')
        return Refusal(404, f"The model `{model}` does not exist.", "model_not_found", "model")

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a chat completions body."""
        if not isinstance(body, dict):
            return unparsable()
        name = model or body.get("model")
        if not name:
            return bad("Missing required parameter: 'model'.", "missing_required_parameter", "model")
        if not body.get("messages"):
            return bad("Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
        found = turns(body["messages"])
        if found is None or "user" not in (role for role, _ in found):
            return bad("Invalid value for 'messages': expected objects with role and content, one of them of the user.")
        wanted, tool = self._shape(body)
        return Asked(
            model=str(name),
            text=next(text for role, text in found if role == "user"),
            system="\n".join(text for role, text in found if role in ("system", "developer")),
            schema=wanted,
            tool=tool,
            cap=self._cap(body),
            input_tokens=count_tokens(*(text for _, text in found)),
        )

    def _cap(self, body: Mapping[str, Any]) -> int | None:
        new = None if self.vendor in _IGNORES_NEW_CAP else body.get("max_completion_tokens")
        return whole(new or body.get("max_tokens"))

    def _shape(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
        choice = mapping(mapping(body.get("tool_choice")).get("function")).get("name")
        for tool in mappings(body.get("tools")) if self.vendor != "ollama-v1" else ():
            function = mapping(tool.get("function"))
            if choice is not None and function.get("name") == choice:
                return mapping(function.get("parameters")), str(choice)
        form = mapping(body.get("response_format"))
        if self.vendor == "llama.cpp" and form.get("type") == "json_object":
            return schema(form.get("schema")), None
        return schema(mapping(form.get("json_schema")).get("schema")), None

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a chat completion."""
        usage: dict[str, Any] = {
            "prompt_tokens": asked.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": asked.input_tokens + said.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0 if said.thought is None else said.output_tokens},
        }
        if self.vendor == "openrouter":
            usage["cost"] = 0.0
        return {
            "id": f"chatcmpl-{said.serial}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked.model,
            "choices": [
                {"index": 0, "message": _message(asked, said), "logprobs": None, "finish_reason": _ending(said)}
            ],
            "usage": usage,
        }

    def error(self, refusal: Refusal, request_id: str) -> Any:
        """Write an error as the vendor does."""
        if self.vendor == "mistral" and refusal.status == 422:
            what = {"type": "extra_forbidden", "loc": ["body", refusal.param], "msg": refusal.message}
            return {"detail": [what]}
        if self.vendor == "mistral" and refusal.status == 401:
            return {"detail": "Unauthorized"}
        if self.vendor == "mistral":
            kind = refusal.kind or _KINDS.get(refusal.status, "invalid_request_error")
            return {"object": "error", "message": refusal.message, "type": kind, "param": None, "code": refusal.code}
        if self.vendor == "openrouter":
            error = {"code": refusal.status, "message": refusal.message}
            return {"error": error if refusal.details is None else {**error, "metadata": refusal.details}}
        if self.vendor == "vllm":
            kind = _VLLM_KINDS.get(refusal.status, "BadRequestError")
            error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.status}
            return {"error": error}
        if self.vendor == "llama.cpp":
            kind = refusal.kind or _KINDS.get(refusal.status, "invalid_request_error")
            return {"error": {"code": refusal.status, "message": refusal.message, "type": kind}}
        if self.vendor == "ollama-v1":
            kind = _OLLAMA_KINDS.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
            return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": None}}
        return openai_error(refusal)

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write OpenAI's list of models."""
        return openai_models(names)


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """Write an error with OpenAI's four keys, and Azure's fifth where there is something to put in it."""
    kind = refusal.kind or _KINDS.get(refusal.status, "invalid_request_error")
    error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": error if refusal.details is None else {**error, "innererror": refusal.details}}


def openai_models(names: Sequence[str]) -> dict[str, Any]:
    """Write OpenAI's list of models."""
    rows = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "playground"} for name in names]
    return {"object": "list", "data": rows}


def _message(asked: Asked, said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
    called = said.call or asked.tool
    if said.refusal is not None:
        message.update(content=None, refusal=said.refusal)
    elif called is not None:
        call = {"name": called, "arguments": said.text}
        message["content"] = None
        message["tool_calls"] = [{"id": f"call_{said.serial}", "type": "function", "function": call}]
    if said.thought is not None:
        message["reasoning_content"] = said.thought
    return message


def _ending(said: Said) -> str:
    if said.finish is not None:
        return said.finish
    if said.truncated:
        return "length"
    return "tool_calls" if said.call is not None else "stop"
