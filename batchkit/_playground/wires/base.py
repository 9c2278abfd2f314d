"""What all wire formats share: how a request is turned away, what is said to it, and how JSON is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from batchkit._playground.judge import Asked

__all__ = [
    "Refusal",
    "Said",
    "Visit",
    "Wire",
    "bad",
    "bearer",
    "content",
    "mapping",
    "mappings",
    "schema",
    "turns",
    "unparsable",
    "whole",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request gets no answer; each wire dresses it as its vendor does."""

    status: int
    message: str
    """``{key}`` in it stands for the key that came with the request."""
    code: str | None = None
    """What OpenAI calls the reason."""
    param: str | None = None
    kind: str | None = None
    """The vendor's type or status of the error, where the HTTP status does not give it."""
    details: Any = None
    """Anthropic's and Gemini's ``details``, OpenRouter's ``metadata``, Azure's ``innererror``."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A reply before it is dressed as a vendor's."""

    text: str
    arguments: Mapping[str, Any] | None
    """The answer as a tool's arguments, where the tool was forced and the answer is whole."""
    truncated: bool
    output_tokens: int
    serial: str
    finish: str | None = None
    """The vendor's own word for why the reply ended, where it is neither whole nor truncated."""
    thought: str | None = None
    """What the model thought aloud before it said anything."""
    refusal: str | None = None
    """What is said instead by vendors that have a place for refusals."""
    call: str | None = None
    """The tool that is called though nobody made the model."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What a request's method and path come to."""

    wants: Literal["ask", "models"]
    wire: Wire
    model: str | None = None
    """The model, where the path names it."""


class Wire(Protocol):
    """One vendor's format."""

    @property
    def dialect(self) -> str:
        """The dialect whose rules hold."""
        ...

    @property
    def vendor(self) -> str | None:
        """The vendor, where it is not the one the dialect is named after."""
        ...

    @property
    def request_id_header(self) -> str | None:
        """The header that names a request, if the vendor names them."""
        ...

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Find the key that came with the request."""
        ...

    def wrong_key(self) -> Refusal:
        """Turn away a request with the wrong key, or none."""
        ...

    def unknown_model(self, model: str) -> Refusal:
        """Turn away a request for a model that is not there."""
        ...

    def read(self, body: Any, headers: Mapping[str, str], model: str | None = None) -> Asked | Refusal:
        """Understand a request's JSON body, or say why the vendor would not."""
        ...

    def reply(self, asked: Asked, said: Said) -> dict[str, Any] | bytes:
        """Write the body of a reply; bytes are a stream of JSON lines."""
        ...

    def error(self, refusal: Refusal, request_id: str) -> Any:
        """Write the body of an error."""
        ...

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """Write the list of models."""
        ...


def bearer(headers: Mapping[str, str]) -> str | None:
    """Find a key after ``Bearer``."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def bad(message: str, code: str | None = None, param: str | None = None) -> Refusal:
    """Turn away a request that is not as it should be."""
    return Refusal(400, message, code, param)


def unparsable() -> Refusal:
    """Turn away a body that is no JSON object."""
    return bad("We could not parse the JSON body of your request: expected a JSON object.")


def turns(messages: Any) -> list[tuple[str, str]] | None:
    """Read messages as (role, text), or None where they are not written so."""
    if not isinstance(messages, list):
        return None
    found = []
    for message in messages:
        role = str(mapping(message).get("role"))
        # An assistant that called a tool has said nothing else.
        nothing = "" if role == "assistant" else None
        text = content(mapping(message).get("content", nothing) or nothing)
        if text is None:
            return None
        found.append((role, text))
    return found


def content(value: Any, kinds: Sequence[str] = ("text",)) -> str | None:
    """Read a content, which is a text or a list of parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    texts = [mapping(part).get("text") for part in value if mapping(part).get("type") in kinds]
    return "".join(text for text in texts if isinstance(text, str))


def whole(number: Any) -> int | None:
    """Return a whole number, and None for anything else."""
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def schema(value: Any) -> Mapping[str, Any] | None:
    """Return a JSON object, and None for anything else."""
    return value if isinstance(value, dict) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list, and none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
