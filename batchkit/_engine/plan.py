"""What the engine is given: texts, an itinerary for each, and the lanes that carry questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchkit._logic.itinerary import Node
from batchkit._logic.pricing import Price
from batchkit._logic.tasks import Task
from batchkit.records import Brief, Limits

if TYPE_CHECKING:
    from batchkit._engine.callers import Caller

__all__ = ["LaneSpec", "Plan"]


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """A provider as the engine sees it: who carries, how much it bears, whose budget it uses."""

    name: str
    caller: Caller
    brief: Brief
    limits: Limits
    budget: tuple[Any, ...] = field(repr=False)
    """Lanes of one budget share its limits, whatever run or provider object they belong to. May hold a key."""
    fingerprint: bytes | None = field(default=None, repr=False)
    """Stands for all but the row that an answer depends on; None where answers are not kept across runs."""
    price: Price | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A run decided, not begun.

    A *unit* is one text under one itinerary; equal rows share one.
    """

    task: Task
    texts: Sequence[str]
    """One per unit."""
    codes: Sequence[int]
    """One per unit: its position in ``itineraries``."""
    rows: Sequence[int]
    """One per unit: how many rows of the frame wait for it."""
    itineraries: tuple[Node, ...]
    lanes: tuple[LaneSpec, ...]
    samples: Mapping[int, int] = field(default_factory=dict)
    """By unit, the how many-eth of equal texts it is, from 0, where these are asked separately: each keeps its own
    answer. A unit that is not here is the first."""
