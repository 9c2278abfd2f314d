"""The frozen values that all layers share: what is asked, what comes back, what is counted.

Those made for every request are named tuples, which cost a quarter of a frozen dataclass.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "ERROR_KINDS",
    "Answer",
    "Brief",
    "Complaint",
    "Completion",
    "Endpoint",
    "Failure",
    "Finish",
    "Limits",
    "Probabilities",
    "Prompt",
    "Question",
    "Quirks",
    "Reply",
    "Scope",
    "Structured",
    "Text",
    "Turn",
    "Usage",
]

ERROR_KINDS = (
    "invalid_answer",
    "truncated",
    "refused",
    "filtered",
    "context_length",
    "too_large",
    "timeout",
    "rate_limited",
    "server",
    "connection",
    "auth",
    "quota",
    "config",
    "function",
    "cancelled",
    "budget",
    "not_returned",
    "internal",
)
"""Every way in which an asked row can end without an answer, as ``<out>_error`` shows it."""


# ---- what is asked ----------------------------------------------------------------------------


class Turn(NamedTuple):
    """One earlier message of a conversation."""

    role: str
    """``"user"`` or ``"assistant"``."""
    text: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The part of a question that is the same for all rows of a run at one provider."""

    system: str
    """Instructions, label definitions and examples, ready to be sent."""
    labels: tuple[Any, ...] | None = None
    """The labels the user gave, in order; ``None`` where any text will do."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer on the wire; ``None`` for free text."""
    max_output_tokens: int = 256
    """What the task needs for its longest answer, thinking not counted."""
    label_texts: tuple[str, ...] = ()
    """The labels as plain text, for those who read no prose: the embedded model."""
    descriptions: tuple[str | None, ...] = ()
    examples: tuple[tuple[str, int], ...] = ()
    """(text, label position) pairs, likewise."""
    longest_row: int = 0
    """UTF-8 bytes of the longest row text of the run, for servers that must be told how much is coming."""


class Question(NamedTuple):
    """What a dialect encodes: one row's text under its brief, with earlier turns if any.

    The messages on the wire are the system text, the row as a user message, then ``turns``.
    """

    brief: Brief
    row: str
    turns: tuple[Turn, ...] = ()
    complaint: str | None = None
    """Why the previous answer was no answer, when this row is asked once more."""
    room: int = 1
    """How many times the usual output cap, after a reply was cut at it."""


class Prompt(str):
    """What a function provider gets: the row's rendered text, with the task beside it.

    Attributes
    ----------
    system : str
        The instructions a language model would get.
    labels : tuple or None
        The labels asked for, in order.
    schema : mapping or None
        JSON schema of the answer.
    complaint : str or None
        Why the previous answer to this text was not accepted, when it is asked once more.
    """

    __slots__ = ("complaint", "labels", "schema", "system")

    system: str
    labels: tuple[Any, ...] | None
    schema: Mapping[str, Any] | None
    complaint: str | None

    @classmethod
    def of(cls, question: Question) -> Prompt:
        """Build the prompt that stands for ``question``."""
        prompt = cls(question.row)
        prompt.system = question.brief.system
        prompt.labels = question.brief.labels
        prompt.schema = question.brief.schema
        prompt.complaint = question.complaint
        return prompt


# ---- what comes back --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A reply that is text, JSON or not; nobody has looked inside yet."""

    text: str


@dataclass(frozen=True, slots=True)
class Structured:
    """A reply that is a value already: a tool call's arguments, a function's return value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Probabilities:
    """A reply that gives a probability for every label, in label order."""

    weights: Sequence[float]
    source: str = "probabilities"


# Vectors (embed) and Job (native batches) join this union together with what needs them.
Reply = Text | Structured | Probabilities


class Finish(enum.StrEnum):
    """Why a reply ended, in one vocabulary for all vendors."""

    STOP = "stop"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    FILTERED = "filtered"


class Usage(NamedTuple):
    """Tokens of one request. ``input`` includes ``cached``; ``output`` includes ``reasoning``."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


NO_USAGE = Usage()


class Completion(NamedTuple):
    """One decoded reply of a provider, not judged yet."""

    reply: Reply
    usage: Usage = NO_USAGE
    finish: Finish = Finish.STOP
    model: str | None = None
    request_id: str | None = None


class Scope(enum.Enum):
    """Whom a failure concerns, and so what is done about it."""

    TRANSIENT = "transient"
    """The same request may well succeed a moment later: ask again."""
    ROW = "row"
    """This row fails here however often it is asked; others are fine."""
    PROVIDER = "provider"
    """Every row would fail here alike: stop asking this provider."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request brought no completion."""

    kind: str
    """One of `ERROR_KINDS`."""
    message: str
    scope: Scope = Scope.ROW
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds the provider asked to wait."""
    overloaded: bool = False
    """The provider said that it is overloaded (503, 529), not that it failed."""
    unreached: bool = False
    """No connection came about: wrong address, server not started."""
    refusable: bool = False
    """A request the provider calls invalid: perhaps this row's fault, perhaps every row's."""
    param: str | None = None
    """The field of the request that the provider named."""
    code: str | None = None
    """The provider's own word for what happened, the most specific it gave."""
    adapted: str | None = None
    """How the same row is asked again at once, in a manner that the model may take; empty where it was said before."""
    tls: bool = False
    """No secure connection came about: a certificate, or no TLS at the other end."""


class Answer(NamedTuple):
    """A checked answer: what stands in the output column, and how sure its giver was."""

    value: Any
    confidence: float | None = None
    confidence_source: str | None = None


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply is no answer, in words for the model that gave it."""

    text: str


# ---- who is asked -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider may be asked to bear."""

    max_concurrency: int = 16
    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute, input and output."""
    timeout: float = 60.0
    """Seconds for one attempt."""
    deadline: float = 600.0
    """Seconds for one row from its first attempt, all attempts and waits included."""
    max_retries: int = 5
    """Repetitions of one row after transient failures."""
    is_usual: bool = False
    """Whether ``max_concurrency`` is only what is usual there: nobody said what this server bears."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """What a model turned out to refuse, remembered per base URL and model."""

    rung: str | None = None
    """How the form of the answer is asked for; ``None`` for the best way the vendor is known for."""
    dropped: frozenset[str] = frozenset()
    """Fields that are not sent, as paths into the body; ``"field=value"`` where only that value was refused."""
    cap_field: str | None = None
    """The name of the output cap, where the usual one was refused."""


NO_QUIRKS = Quirks()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind a URL, as a dialect needs to know it. Never show ``key``."""

    vendor: str
    model: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    temperature: float | None = None
    reasoning: str | None = None
    max_output_tokens: int | None = None
