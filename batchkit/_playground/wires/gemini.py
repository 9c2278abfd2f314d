"""Gemini generateContent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchkit._playground.judge import Asked, count_tokens
from batchkit._playground.wires.base import Refusal, Said, bad, mapping, mappings, schema, unparsable, whole

__all__ = ["GeminiWire"]

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class GeminiWire:
    """Gemini generateContent. The model is named in the path."""

    dialect = "gemini"
    vendor = None
    request_id_header = None

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the key in ``x-goog-api-key``."""
        return headers.get("x-goog-api-key")

    def wrong_key(self) -> Refusal:
        """Say so with HTTP 400, as Gemini does."""
        details = [{"@type": _ERROR_INFO, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        return Refusal(400, "API key not valid. Please pass a valid API key.", details=details)

    def unknown_model(self, model: str) -> Refusal:
        """Say so with HTTP 404."""
        return Refusal(404, f"models/{model} is not found for API version v1beta, or is not supported.")

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a generateContent body."""
        if not isinstance(body, dict):
            return unparsable()
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            return bad("* GenerateContentRequest.contents: contents is not specified")
        found = [(str(item.get("role", "user")), _text(item)) for item in mappings(contents)]
        rows = [text for role, text in found if role == "user"]
        if not rows:
            return bad("* GenerateContentRequest.contents: expected contents with parts, one of them of the user")
        system = _text(mapping(body.get("systemInstruction")))
        config = mapping(body.get("generationConfig"))
        return Asked(
            model=str(model),
            text=rows[0],
            system=system,
            schema=schema(config.get("responseJsonSchema")) or schema(config.get("responseSchema")),
            cap=whole(config.get("maxOutputTokens")),
            input_tokens=count_tokens(system, *(text for _, text in found)),
        )

    def reply(self, asked: Asked, said: Said) -> dict[str, Any]:
        """Write a reply with one candidate."""
        candidate: dict[str, Any] = {"content": {"role": "model"}, "finishReason": _ending(said), "index": 0}
        parts = _parts(said)
        if parts:
            candidate["content"]["parts"] = parts
        thought = said.output_tokens if said.thought is not None and not said.text else 0
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": asked.input_tokens,
                "candidatesTokenCount": said.output_tokens - thought,
                "thoughtsTokenCount": thought,
                "totalTokenCount": asked.input_tokens + said.output_tokens,
            },
            "modelVersion": asked.model,
            "responseId": said.serial,
        }

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """Write an error with the name that its status has at Google."""
        status = refusal.kind or _STATUSES.get(refusal.status, "UNKNOWN")
        error = {"code": refusal.status, "message": refusal.message, "status": status}
        return {"error": error if refusal.details is None else {**error, "details": refusal.details}}

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write Gemini's list of models."""
        can = ["generateContent"]
        rows = [{"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": can} for name in names]
        return {"models": rows}


def _text(content: Mapping[str, Any]) -> str:
    texts = (part.get("text") for part in mappings(content.get("parts")))
    return "".join(text for text in texts if isinstance(text, str))


def _parts(said: Said) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if said.thought is not None:
        parts.append({"text": said.thought, "thought": True})
    if said.call is not None:
        parts.append({"functionCall": {"name": said.call, "args": said.arguments or {}}})
    elif said.text:
        parts.append({"text": said.text})
    return parts


def _ending(said: Said) -> str:
    return said.finish or ("MAX_TOKENS" if said.truncated else "STOP")
