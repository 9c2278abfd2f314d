"""What a run remembers: answers paid for before, and new ones, written down before they are shown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from batchkit._engine.journal import Entry, Journal, Kept
from batchkit._engine.plan import Plan
from batchkit._engine.threads import in_thread
from batchkit._logic.itinerary import Outcome, seats_of
from batchkit.records import Answer, Completion

__all__ = ["Memory"]

_KEY = 16
"""Bytes of a key."""


class Memory:
    """A journal as one run uses it.

    Parameters
    ----------
    journal : Journal
    plan : Plan
    recall : bool
        Whether answers paid for before are used; new ones are written down in any case.
    """

    def __init__(self, journal: Journal, plan: Plan, *, recall: bool = True) -> None:
        self._journal = journal
        self._plan = plan
        self._recalls = recall
        self._found: dict[int, Kept] = {}
        """By place, which is a unit and a lane in one number: see `_place`."""
        self._known_keys: dict[int, bytearray] = {}
        """By lane the keys of all its units, one behind the other: a key costs more than what is done with it."""
        self._keys = [journal.key_maker(lane.fingerprint or b"") for lane in plan.lanes]
        self.units: frozenset[int] = frozenset()
        """Those that somebody has answered before."""
        self._unwritten: dict[int, Any] = {}
        """The tokens of answers on their way to the disk, by what `id` says of each."""

    @property
    def unwritten(self) -> int:
        """How many answers are on their way to the disk."""
        return len(self._unwritten)

    def begin(self, loop: asyncio.AbstractEventLoop, written: Callable[[list[Any]], None]) -> None:
        """Say who is told of answers that have been written: ``written`` gets their tokens, on ``loop``."""

        def hand_over(tokens: list[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(self._written, tokens, written)

        self._hand_over = hand_over

    async def recall(self) -> None:
        """Look up everything that the plan may ask, at every provider it may be asked of."""
        if self._recalls and any(lane.fingerprint is not None for lane in self._plan.lanes):
            await in_thread(self._look_up)

    def recall_now(self) -> None:
        """Do the same at once, in this thread: not on the loop."""
        self._look_up()

    def find(self, unit: int, providers: Iterable[int]) -> Outcome | None:
        """The answer that one of ``providers`` gave before, the first in route order."""
        for index in sorted(providers):
            kept = self._found.get(self._place(unit, index))
            if kept is not None:
                value, confidence, source, _, _ = kept
                with contextlib.suppress(ValueError, IndexError, TypeError):
                    return Outcome(index, Answer(self._plan.task.load(orjson.loads(value)), confidence, source))
        return None

    def keep(self, unit: int, index: int, answer: Answer, completion: Completion, token: Any) -> None:
        """Write down what the lane ``index`` answered; ``token`` comes back when that is done."""
        usage = completion.usage
        lane = self._plan.lanes[index]
        entry = Entry(
            self._key(unit, index),
            self._plan.task.name,
            lane.name,
            completion.model,
            orjson.dumps(self._plan.task.dump(answer.value)),
            answer.confidence,
            answer.confidence_source,
            completion.finish.value,
            usage.input,
            usage.output,
            lane.caller.reply_tokens,
            time.time(),
        )
        self._unwritten[id(token)] = token
        self._journal.put(entry, token, self._hand_over)

    async def flush(self, timeout: float) -> list[Any]:
        """Wait until all is written, for a while; the tokens of what is not then, which nobody is told of later."""
        if self._unwritten:
            await in_thread(self._journal.flush, timeout)
        late, self._unwritten = list(self._unwritten.values()), {}
        if late:
            self._journal.note_late(len(late))
        return late

    def _written(self, tokens: list[Any], written: Callable[[list[Any]], None]) -> None:
        written([token for token in tokens if self._unwritten.pop(id(token), None) is not None])

    def _key(self, unit: int, index: int) -> bytes:
        known = self._known_keys.get(index)
        return self._new_key(unit, index) if known is None else bytes(known[unit * _KEY : (unit + 1) * _KEY])

    def _new_key(self, unit: int, index: int) -> bytes:
        text = self._plan.texts[unit].encode("utf-8", "surrogatepass")
        return self._keys[index](text, b"%d" % self._plan.samples.get(unit, 0))

    def _look_up(self) -> None:
        """Runs in a thread of its own: a million keys take seconds."""
        plan = self._plan
        lanes_of = [
            sorted(
                index
                for index in {index for seat in seats_of(node) for index in seat.providers}
                if plan.lanes[index].fingerprint is not None
            )
            for node in plan.itineraries
        ]
        known = {index: bytearray(_KEY * len(plan.texts)) for lanes in lanes_of for index in lanes}
        places: dict[bytes, int] = {}
        twins: list[tuple[int, int]] = []
        for unit, code in enumerate(plan.codes):
            for index in lanes_of[code]:
                key = self._new_key(unit, index)
                known[index][unit * _KEY : (unit + 1) * _KEY] = key
                place = self._place(unit, index)
                first = places.setdefault(key, place)
                if first != place:
                    twins.append((first, place))
        self._known_keys = known
        found = {places[key]: kept for key, kept in self._journal.look_up(list(places)).items()}
        found.update({place: found[first] for first, place in twins if first in found})
        self._found = {place: kept for place, kept in found.items() if self._fits(place, kept)}
        self.units = frozenset(place // len(plan.lanes) for place in self._found)

    def _place(self, unit: int, index: int) -> int:
        return unit * len(self._plan.lanes) + index

    def _fits(self, place: int, kept: Kept) -> bool:
        """Whether an answer could have come under the cap of now; that of then did not cut it, or it was not kept."""
        *_, tokens_out, then = kept
        now = self._plan.lanes[place % len(self._plan.lanes)].caller.reply_tokens
        return then <= now or tokens_out <= now
