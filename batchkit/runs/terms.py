"""What a verb asks for: the question, the columns it writes, and on which terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from batchkit import columns
from batchkit._logic.pricing import dollars
from batchkit._logic.tasks import Task
from batchkit.columns import Table

__all__ = ["BOOKKEEPING", "DETAILS", "Asked", "Cost", "Output", "Terms"]

BOOKKEEPING = ("confidence", "provider", "error")
DETAILS = (
    "message", "model", "confidence_source", "finish", "attempts", "seconds",
    "tokens_in", "tokens_out", "cost", "reused", "request_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """Which columns a verb writes, and how its answers become one."""

    name: str
    """The answer's column; bookkeeping stands in ``<name>_...``."""
    details: bool | str
    """False: the answer alone; True: with confidence, provider and error; ``"full"``: all."""
    column: Callable[[Sequence[Any]], Any]
    """From one answer per row (None where there is none) to a column."""
    is_again: bool = False
    """Whether the frame has an earlier output of ours under that name."""

    def names(self) -> list[str]:
        """All columns that will be written, the answer's first."""
        parts = () if self.details is False else BOOKKEEPING + (DETAILS if self.details == "full" else ())
        return [self.name, *self._named(parts)]

    def earlier(self, frame: pd.DataFrame) -> list[str]:
        """Columns of an earlier output of ours: what is not written anew would belie what is."""
        if not self.is_again:
            return []
        details = self._named(DETAILS)
        return [self.name, *self._named(BOOKKEEPING), *(details if columns.has_all(frame, details) else ())]

    def _named(self, parts: Iterable[str]) -> list[str]:
        return [f"{self.name}_{part}" for part in parts]


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a run is carried out.

    Attributes
    ----------
    journal : Path or None
        Where finished answers are kept.
    refresh : bool
        Ask again although answered before.
    dedupe : bool
        Ask equal texts once.
    on_error : str
        ``"continue"`` or ``"raise"``.
    max_cost, max_seconds : float or None
        Send nothing new once so many USD are spent, or so many seconds are over.
    """

    journal: Path | None = None
    refresh: bool = False
    dedupe: bool = True
    on_error: str = "continue"
    max_cost: float | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run used: tokens as the providers counted them, and USD as far as prices are known.

    Attributes
    ----------
    tokens_in, tokens_out : int
        All attempts together, answers that were refused or cut included.
    usd : float or None
        None: unknown. It is never guessed, and never 0 for want of a price.
    is_partial : bool
        Whether some requests have no known cost, so that the true one is higher than ``usd``.
    """

    tokens_in: int
    tokens_out: int
    usd: float | None = None
    is_partial: bool = False

    def __str__(self) -> str:
        price = "price unknown" if self.usd is None else dollars(self.usd) + (" and some unknown" * self.is_partial)
        return f"{self.tokens_in:,} tokens in, {self.tokens_out:,} out, {price}"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A verb's call, read and checked: everything but the doing."""

    table: Table
    task: Task
    route: Any
    output: Output
    terms: Terms
    progress: bool | str
    """Which view is wanted; False: none."""
