"""A loop whose clock jumps to the next timer, and callers that follow a script: waits are exact and take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any, TypeVar

import orjson

from batchkit._engine.execute import Execution
from batchkit._engine.journal import Done, Entry, Kept
from batchkit._engine.ledger import Ledger
from batchkit._engine.limits import gate_of
from batchkit._engine.memory import Memory
from batchkit._engine.plan import LaneSpec, Plan
from batchkit._logic.itinerary import Node, Seat, seated
from batchkit._logic.pricing import Price
from batchkit.records import (
    Answer,
    Brief,
    Complaint,
    Completion,
    Failure,
    Limits,
    Question,
    Reply,
    Scope,
    Structured,
    Usage,
)

__all__ = [
    "AUTH",
    "BAD",
    "LIMITED",
    "SERVER",
    "Jitter",
    "Request",
    "Script",
    "Shelf",
    "at_once",
    "completion",
    "execute",
    "lane",
    "plan_of",
    "run",
    "start",
    "times",
]

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Where asyncio would wait for a timer, the clock is put forward."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is ready and no timer is set: this would wait for ever")
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits. Its clock starts at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; what could never end is an error at once."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        try:
            loop.run_until_complete(_cancel_rest())
        finally:
            loop.close()


async def _cancel_rest() -> None:
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Jitter(Random):
    """Randomness that always draws the same number."""

    def __init__(self, drawn: float) -> None:
        super().__init__(0)
        self.drawn = drawn

    def random(self) -> float:
        return self.drawn


# ---- what is said ------------------------------------------------------------------------------

SERVER = Failure("server", "HTTP 500", Scope.TRANSIENT, 500)
LIMITED = Failure("rate_limited", "HTTP 429", Scope.TRANSIENT, 429)
AUTH = Failure("auth", "HTTP 401", Scope.PROVIDER, 401)
BAD = "no answer at all"


def completion(value: Any, tokens: int = 0, **rest: Any) -> Completion:
    return Completion(Structured(value), Usage(tokens, 0), **rest)


class Echo:
    """A task whose answer is what the reply holds; `BAD` is none."""

    def __init__(self, confidence: float | None = None) -> None:
        self.confidence = confidence

    def brief(self, vendor_instructions: str | None = None) -> Brief:
        return Brief("s" * 400, max_output_tokens=100)

    def check(self, reply: Reply) -> Answer | Complaint:
        assert isinstance(reply, Structured)
        if isinstance(reply.value, Exception):
            raise reply.value
        return Complaint(BAD) if reply.value == BAD else Answer(reply.value, self.confidence, "stated")

    name = "echo"

    def dump(self, value: Any) -> Any:
        return value

    def load(self, written: Any) -> Any:
        return written


class Shelf:
    """A journal without a file: what is put is kept ``delay`` seconds later."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.late = 0
        self.entries: dict[bytes, Entry] = {}
        self._pending: deque[tuple[Entry, Any, Done]] = deque()

    def key_maker(self, first: bytes) -> Callable[[bytes, bytes], bytes]:
        return lambda second, third: blake2b(repr((first, second, third)).encode(), digest_size=16).digest()

    def look_up(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        found = {key: self.entries[key] for key in keys if key in self.entries}
        return {
            key: (entry.value, entry.confidence, entry.confidence_source, entry.tokens_out, entry.cap)
            for key, entry in found.items()
        }

    def put(self, entry: Entry, token: Any, done: Done) -> None:
        self._pending.append((entry, token, done))
        asyncio.get_running_loop().call_later(self.delay, self._keep_next)

    def flush(self, timeout: float) -> bool:
        while self._pending:
            self._keep_next()
        return True

    def note_late(self, count: int) -> None:
        self.late = count

    def answers(self) -> list[tuple[str, Any]]:
        """Who gave which answer, as far as it is kept."""
        return sorted((entry.provider, orjson.loads(entry.value)) for entry in self.entries.values())

    def _keep_next(self) -> None:
        if self._pending:
            entry, token, done = self._pending.popleft()
            self.entries[entry.key] = entry
            done([token])


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Stands for a thread, for which virtual time would not wait."""
    return function(*args)


# ---- who says it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    at: float
    rows: tuple[str, ...]
    questions: tuple[Question, ...]
    timeout: float


Line = Completion | Failure | BaseException
Says = Callable[[Question, int], tuple[float, Line]]
"""From a question and the number of times its row was asked before, to seconds and what is said then."""


class Script:
    """A caller that does what its script says, and notes what it was asked and how much at once."""

    reply_tokens = 100
    told = None

    def __init__(self, says: Says | None = None, *, batch: int = 1, opening: float = 0.0) -> None:
        self.batch = batch
        self.says = says or (lambda question, asked: (1.0, completion(question.row)))
        self.opening = opening
        self.requests: list[Request] = []
        self.in_flight = 0
        self.peak = 0
        self.state = "new"
        self._asked: Counter[str] = Counter()

    async def open(self) -> None:
        await asyncio.sleep(self.opening)
        self.state = "open"

    async def carry(self, questions: Sequence[Question], timeout: float) -> Sequence[Completion | Failure]:
        assert self.state == "open"
        rows = tuple(question.row for question in questions)
        self.requests.append(Request(asyncio.get_running_loop().time(), rows, tuple(questions), timeout))
        lines = [self.says(question, self._asked[question.row]) for question in questions]
        self._asked.update(rows)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        delay = max(seconds for seconds, _ in lines)
        try:
            await asyncio.sleep(min(delay, timeout))
        finally:
            self.in_flight -= 1
        if delay > timeout:
            return [Failure("timeout", f"no answer within {timeout:g} s", Scope.TRANSIENT)] * len(lines)
        results = []
        for _, line in lines:
            if isinstance(line, BaseException):
                raise line
            results.append(line)
        return results

    def set_cap(self, cap: int) -> None:
        self.reply_tokens = cap

    def close(self) -> None:
        self.state = "closed"


def lane(
    script: Script,
    *,
    name: str = "p",
    budget: tuple[Any, ...] | None = None,
    price: Price | None = None,
    fingerprint: bytes | None = None,
    **limits: Any,
) -> LaneSpec:
    """A lane over a script, by default with a budget of its own."""
    return LaneSpec(name, script, Echo().brief(), Limits(**limits), budget or (object(),), fingerprint, price)


def plan_of(
    texts: Sequence[str],
    lanes: Sequence[LaneSpec],
    *itineraries: Node,
    codes: Sequence[int] | None = None,
    confidence: float | None = None,
    samples: Mapping[int, int] | None = None,
) -> Plan:
    """A plan of one unit per text; without itineraries any lane may answer any of them."""
    nodes = itineraries or (Seat(frozenset(range(len(lanes)))),)
    return Plan(
        Echo(confidence),
        texts,
        codes or [0] * len(texts),
        [1] * len(texts),
        tuple(seated(node) for node in nodes),
        tuple(lanes),
        samples or {},
    )


def start(
    plan: Plan, *, jitter: float = 1.0, shelf: Shelf | None = None, recall: bool = True, **terms: Any
) -> tuple[Execution, Ledger]:
    """An execution that has not begun, and its ledger."""
    ledger = Ledger(plan)
    memory = None if shelf is None else Memory(shelf, plan, recall=recall)
    return Execution(plan, ledger, rng=Jitter(jitter), memory=memory, **terms), ledger


def execute(
    plan: Plan,
    *,
    at: Sequence[tuple[float, Callable[[Execution], object]]] = (),
    **settings: Any,
) -> Ledger:
    """Carry a plan out in virtual time; ``at`` says what is done to the execution when."""
    execution, ledger = start(plan, **settings)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds, act in at:
            loop.call_at(seconds, act, execution)
        await execution.run()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == [], "an ended run leaves no task behind"

    run(main())
    for spec in plan.lanes:
        assert gate_of(spec.budget).in_flight == 0, "an ended run keeps no slot"
        assert not isinstance(spec.caller, Script) or spec.caller.state in ("new", "closed")
    return ledger


def times(script: Script, row: str | None = None) -> list[float]:
    """When requests left, of one row or of all, to the microsecond."""
    return [round(request.at, 6) for request in script.requests if row is None or row in request.rows]
