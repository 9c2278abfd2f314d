"""Ollama's own chat API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from batchkit._playground.judge import Asked, count_tokens
from batchkit._playground.wires.base import Refusal, Said, bad, bearer, mapping, schema, turns, unparsable, whole

__all__ = ["OllamaWire"]

_MADE = "2026-01-01T00:00:00Z"


class OllamaWire:
    """Ollama's own chat API, which streams unless told not to."""

    dialect = "ollama"
    vendor = None
    request_id_header = None

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the bearer key, which only the cloud asks for."""
        return bearer(headers)

    def wrong_key(self) -> Refusal:
        """Say so with HTTP 401."""
        return Refusal(401, "unauthorized")

    def unknown_model(self, model: str) -> Refusal:
        """Say so with HTTP 404."""
        return Refusal(404, f"model '{model}' not found")

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a chat body."""
        if not isinstance(body, dict):
            return unparsable()
        if not body.get("model"):
            return bad("model is required")
        found = turns(body.get("messages"))
        if found is None or "user" not in (role for role, _ in found):
            return bad("messages: expected objects with role and content, one of them of the user")
        options = mapping(body.get("options"))
        return Asked(
            model=str(body["model"]),
            text=next(text for role, text in found if role == "user"),
            system="\n".join(text for role, text in found if role == "system"),
            schema=schema(body.get("format")),
            cap=_positive(whole(options.get("num_predict"))),
            input_tokens=count_tokens(*(text for _, text in found)),
            streams=body.get("stream") is not False,
        )

    def reply(self, asked: Asked, said: Said) -> dict[str, Any] | bytes:
        """Write a chat reply: one object, or a line for the message and one for the end."""
        message: dict[str, Any] = {"role": "assistant", "content": said.text}
        if said.thought is not None:
            message["thinking"] = said.thought
        if said.call is not None:
            call = {"name": said.call, "arguments": said.arguments or {}}
            message.update(content="", tool_calls=[{"function": call}])
        head = {"model": asked.model, "created_at": _MADE, "message": message}
        end = {
            "done": True,
            "done_reason": said.finish or ("length" if said.truncated else "stop"),
            "total_duration": 1_000,
            "load_duration": 0,
            "prompt_eval_count": asked.input_tokens,
            "eval_count": said.output_tokens,
        }
        if not asked.streams:
            return head | end
        last = {**head, "message": {"role": "assistant", "content": ""}, **end}
        return orjson.dumps({**head, "done": False}) + b"\n" + orjson.dumps(last) + b"\n"

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write an error, which is a mere text."""
        return {"error": refusal.message}

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write the list of models that were pulled."""
        return {"models": [{"name": name, "model": name, "modified_at": _MADE, "size": 1} for name in names]}


def _positive(number: int | None) -> int | None:
    # -1 stands for no limit.
    return number if number is not None and number > 0 else None
