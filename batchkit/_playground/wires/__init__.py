"""The wire formats of the playground, seen from the server: read a request, write a reply or an error. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from batchkit._playground.wires.anthropic import AnthropicWire
from batchkit._playground.wires.base import Refusal, Said, Visit, Wire
from batchkit._playground.wires.gemini import GeminiWire
from batchkit._playground.wires.ollama import OllamaWire
from batchkit._playground.wires.openai import VENDORS, OpenAIWire
from batchkit._playground.wires.responses import ResponsesWire

__all__ = ["VENDORS", "WIRES", "Doors", "Refusal", "Said", "Visit", "Wire"]

WIRES: Mapping[str, Wire] = {
    "openai": OpenAIWire(),
    "responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "gemini": GeminiWire(),
    "ollama": OllamaWire(),
}
"""The format of each dialect, as the vendor that it is named after speaks it."""

_CHAT = "/chat/completions"
_GEMINI_ASK = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):generateContent")
_AZURE_ASK = re.compile(rf"/openai/deployments/(?P<model>[^/]+){_CHAT}")


class Doors:
    """Where a server of one dialect, or of one vendor that speaks OpenAI's, lets requests in."""

    def __init__(self, dialect: str, vendor: str | None = None) -> None:
        self.wire: Wire = WIRES[dialect] if vendor is None else OpenAIWire(vendor)
        ask, models = Visit("ask", self.wire), Visit("models", self.wire)
        self._pattern = {"gemini": _GEMINI_ASK, "azure": _AZURE_ASK}.get(vendor or dialect)
        self._doors: dict[tuple[str, str], Visit] = {}
        if dialect == "gemini":
            self._doors = {("GET", f"/{version}/models"): models for version in ("v1", "v1beta")}
            return
        if dialect == "ollama":
            compatible = OpenAIWire("ollama-v1")
            self._doors = {
                ("POST", "/api/chat"): ask,
                ("GET", "/api/tags"): models,
                ("POST", f"/v1{_CHAT}"): Visit("ask", compatible),
                ("GET", "/v1/models"): Visit("models", compatible),
            }
            return
        path = {"openai": _CHAT, "responses": "/responses", "anthropic": "/messages"}[dialect]
        # A base URL is written with and without the version.
        for version in {VENDORS[vendor] if vendor is not None else "/v1", "/v1", ""}:
            self._doors["POST", version + path] = ask
            self._doors["GET", f"{version}/models"] = models

    def find(self, method: str, path: str) -> Visit | None:
        """Find who receives a request, ``None`` where nobody does."""
        visit = self._doors.get((method, path))
        if visit is None and self._pattern is not None and method == "POST":
            match = self._pattern.fullmatch(path)
            return None if match is None else Visit("ask", self.wire, match["model"])
        return visit
