"""What a run remembers: answers paid for before, and new ones, written down before they are shown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from batchkit._engine.journal import Entry, Journal
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
        self._found: dict[tuple[int, int], Outcome] = {}
        self._samples = _samples(plan)
        self._known_keys: dict[int, bytearray] = {}
        """By lane the keys of all its units, one behind the other: a key costs more than what is done with it."""
        self._keys = [journal.key_maker(lane.fingerprint or b"") for lane in plan.lanes]
        self.units: frozenset[int] = frozenset()
        """Those that somebody has answered before."""
        self.unwritten = 0

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
            outcome = self._found.get((unit, index))
            if outcome is not None:
                return outcome
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
        self.unwritten += 1
        self._journal.put(entry, token, self._hand_over)

    async def flush(self, timeout: float) -> None:
        """Wait until all is written, for a while."""
        if self.unwritten:
            await in_thread(self._journal.flush, timeout)

    def _written(self, tokens: list[Any], written: Callable[[list[Any]], None]) -> None:
        self.unwritten -= len(tokens)
        written(tokens)

    def _key(self, unit: int, index: int) -> bytes:
        known = self._known_keys.get(index)
        return self._new_key(unit, index) if known is None else bytes(known[unit * _KEY : (unit + 1) * _KEY])

    def _new_key(self, unit: int, index: int) -> bytes:
        text = self._plan.texts[unit].encode("utf-8", "surrogatepass")
        return self._keys[index](text, b"%d" % self._samples.get(unit, 0))

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
        askers: dict[bytes, list[tuple[int, int]]] = {}
        for unit, code in enumerate(plan.codes):
            for index in lanes_of[code]:
                key = self._new_key(unit, index)
                known[index][unit * _KEY : (unit + 1) * _KEY] = key
                askers.setdefault(key, []).append((unit, index))
        self._known_keys = known
        for key, entry in self._journal.look_up(list(askers)).items():
            for unit, index in askers[key]:
                cap = plan.lanes[index].caller.reply_tokens
                # Under a smaller cap than now it was not cut, or it would not be here; under a larger one it must fit.
                if entry.cap <= cap or entry.tokens_out <= cap:
                    with contextlib.suppress(ValueError, IndexError, TypeError):
                        self._found[unit, index] = self._read(entry, index)
        self.units = frozenset(unit for unit, _ in self._found)

    def _read(self, entry: Entry, index: int) -> Outcome:
        value = self._plan.task.load(orjson.loads(entry.value))
        return Outcome(index, Answer(value, entry.confidence, entry.confidence_source))


def _samples(plan: Plan) -> dict[int, int]:
    """Number equal texts that are asked separately: each has an answer of its own."""
    if len(set(plan.texts)) == len(plan.texts):
        return {}
    seen: Counter[tuple[int, str]] = Counter()
    samples = {}
    for unit, (code, text) in enumerate(zip(plan.codes, plan.texts, strict=True)):
        if seen[code, text]:
            samples[unit] = seen[code, text]
        seen[code, text] += 1
    return samples
