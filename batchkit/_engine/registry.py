"""What models turned out to refuse, remembered for the whole process."""

from __future__ import annotations

from collections.abc import Hashable

from batchkit.records import Quirks

__all__ = ["learn", "quirks_of"]

_NONE = Quirks()
_known: dict[Hashable, Quirks] = {}


def quirks_of(place: Hashable) -> Quirks:
    """What is known of a model at a base URL."""
    return _known.get(place, _NONE)


def learn(place: Hashable, quirks: Quirks) -> None:
    """Remember it for all that ask that model there. Called on the engine's loop only."""
    _known[place] = quirks
