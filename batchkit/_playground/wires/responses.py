"""OpenAI responses: the API beside chat completions, with names of its own."""

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
    unparsable,
    whole,
)
from batchkit._playground.wires.openai import openai_error, openai_models

__all__ = ["ResponsesWire"]

_TEXT_PARTS = ("input_text", "output_text", "text")


class ResponsesWire:
    """OpenAI responses."""

    dialect = "responses"
    vendor = None
    request_id_header = "x-request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the bearer key."""
        return bearer(headers)

    def wrong_key(self) -> Refusal:
        """Say so with HTTP 401."""
        return Refusal(401, "Incorrect API key provided.", "invalid_api_key")

    def unknown_model(self, model: str) -> Refusal:
        """Say so with HTTP 404."""
        return Refusal(404, f"The model `{model}` does not exist.", "model_not_found", "model")

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a responses body."""
        if not isinstance(body, dict):
            return unparsable()
        for param in ("model", "input"):
            if not body.get(param):
                return bad(f"Missing required parameter: '{param}'.", "missing_required_parameter", param)
        found = _turns(body["input"])
        if found is None or "user" not in (role for role, _ in found):
            return bad(
                "Invalid value for 'input': expected a text or messages, one of them of the user.", None, "input"
            )
        instructions = body.get("instructions")
        system = [instructions] if isinstance(instructions, str) else []
        system += [text for role, text in found if role in ("system", "developer")]
        wanted, tool = _shape(body)
        return Asked(
            model=str(body["model"]),
            text=next(text for role, text in found if role == "user"),
            system="\n".join(system),
            schema=wanted,
            tool=tool,
            cap=whole(body.get("max_output_tokens")),
            input_tokens=count_tokens(*system, *(text for role, text in found if role in ("user", "assistant"))),
        )

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a response, completed or incomplete."""
        reason = said.finish or ("max_output_tokens" if said.truncated else None)
        return {
            "id": f"resp_{said.serial}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed" if reason is None else "incomplete",
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": asked.model,
            "output": _output(asked, said),
            "usage": {
                "input_tokens": asked.input_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": said.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0 if said.thought is None else said.output_tokens},
                "total_tokens": asked.input_tokens + said.output_tokens,
            },
        }

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write an error with OpenAI's four keys."""
        return openai_error(refusal)

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write OpenAI's list of models."""
        return openai_models(names)


def _turns(given: Any) -> list[tuple[str, str]] | None:
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list):
        return None
    found = []
    for item in given:
        if mapping(item).get("type", "message") != "message":
            continue
        text = content(mapping(item).get("content"), _TEXT_PARTS)
        if text is None:
            return None
        found.append((str(item.get("role")), text))
    return found


def _shape(body: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    choice = mapping(body.get("tool_choice")).get("name")
    for tool in mappings(body.get("tools")):
        if choice is not None and tool.get("name") == choice:
            return mapping(tool.get("parameters")), str(choice)
    return schema(mapping(mapping(body.get("text")).get("format")).get("schema")), None


def _output(asked: Asked, said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.thought is not None:
        summary = [{"type": "summary_text", "text": said.thought}]
        items.append({"type": "reasoning", "id": f"rs_{said.serial}", "summary": summary})
    called = said.call or asked.tool
    if said.refusal is not None:
        items.append(_message(said, {"type": "refusal", "refusal": said.refusal}))
    elif called is not None:
        call = {"name": called, "arguments": said.text, "call_id": f"call_{said.serial}"}
        items.append({"type": "function_call", "id": f"fc_{said.serial}", "status": "completed", **call})
    elif said.text or said.thought is None:
        items.append(_message(said, {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}))
    return items


def _message(said: Said, part: dict[str, Any]) -> dict[str, Any]:
    message = {"type": "message", "id": f"msg_{said.serial}", "role": "assistant", "status": "completed"}
    return {**message, "content": [part]}
