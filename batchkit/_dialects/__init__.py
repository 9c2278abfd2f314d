"""The wire formats of the vendors: how a question is written down and a reply read; pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchkit._dialects.anthropic import AnthropicMessages
from batchkit._dialects.base import Dialect
from batchkit._dialects.gemini import Gemini
from batchkit._dialects.ollama import Ollama
from batchkit._dialects.openai import OpenAIChat
from batchkit._dialects.responses import OpenAIResponses

__all__ = ["DIALECTS"]

DIALECTS: Mapping[str, Dialect] = {
    "openai": OpenAIChat(),
    "responses": OpenAIResponses(),
    "anthropic": AnthropicMessages(),
    "gemini": Gemini(),
    "ollama": Ollama(),
}
"""By the name that a profile gives as its ``dialect``."""
