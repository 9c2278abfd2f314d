"""Anthropic messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchkit._playground.judge import Asked, count_tokens
from batchkit._playground.wires.base import (
    Refusal,
    Said,
    bad,
    bearer,
    content,
    mapping,
    mappings,
    schema,
    turns,
    unparsable,
    whole,
)

__all__ = ["AnthropicWire"]

_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicWire:
    """Anthropic messages."""

    dialect = "anthropic"
    vendor = None
    request_id_header = "request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the key in ``x-api-key``, else the bearer key."""
        return headers.get("x-api-key") or bearer(headers)

    def wrong_key(self) -> Refusal:
        """Say so with HTTP 401."""
        return Refusal(401, "invalid x-api-key")

    def unknown_model(self, model: str) -> Refusal:
        """Say so with HTTP 404."""
        return Refusal(404, f"The model `{model}` does not exist.")

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a messages body and its version header."""
        if not headers.get("anthropic-version"):
            return bad("anthropic-version: header is required")
        if not isinstance(body, dict):
            return unparsable()
        for param in ("model", "max_tokens", "messages"):
            if not body.get(param):
                return bad(f"{param}: Field required")
        found = turns(body["messages"])
        if found is None or not found or found[0][0] != "user":
            return bad("messages: expected objects with role and content, the first of them of the user")
        system = content(body.get("system", "")) or ""
        wanted, tool = _shape(body)
        return Asked(
            model=str(body["model"]),
            text=found[0][1],
            system=system,
            schema=wanted,
            tool=tool,
            cap=whole(body["max_tokens"]),
            input_tokens=count_tokens(system, *(text for _, text in found)),
        )

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a message."""
        called = said.call or asked.tool
        return {
            "id": f"msg_{said.serial}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": _blocks(called, said),
            "stop_reason": _ending(called, said),
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
        kind = refusal.kind or _KINDS.get(refusal.status, "invalid_request_error")
        error = {"type": kind, "message": refusal.message}
        if refusal.details is not None:
            error["details"] = refusal.details
        return {"type": "error", "error": error, "request_id": request_id}

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write Anthropic's list of models."""
        made = "2025-01-01T00:00:00Z"
        rows = [{"type": "model", "id": name, "display_name": name, "created_at": made} for name in names]
        return {"data": rows, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _shape(body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    choice = mapping(body.get("tool_choice"))
    for tool in mappings(body.get("tools")):
        if choice.get("type") == "any" or (choice.get("type") == "tool" and choice.get("name") == tool.get("name")):
            return mapping(tool.get("input_schema")), str(tool.get("name"))
    return schema(mapping(mapping(body.get("output_config")).get("format")).get("schema")), None


def _blocks(called: str | None, said: Said) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thought is not None:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": said.serial})
    if called is not None:
        arguments = said.arguments or {}
        blocks.append({"type": "tool_use", "id": f"toolu_{said.serial}", "name": called, "input": arguments})
    elif said.text:
        blocks.append({"type": "text", "text": said.text})
    return blocks


def _ending(called: str | None, said: Said) -> str:
    if said.finish is not None:
        return said.finish
    if said.truncated:
        return "max_tokens"
    return "end_turn" if called is None else "tool_use"
