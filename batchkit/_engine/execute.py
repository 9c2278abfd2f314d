"""The run itself: queues, lanes that pull from them, and what follows each reply.

Units wait in one queue per *set* of providers that may answer them. A lane (one provider) takes
from the queues it belongs to whenever its gate lets a request go. Nothing else waits: a lane that
may not send now has a timer, a row that must be asked again later is in a heap. So a million rows
are not a million coroutines, and stopping is cancelling a few timers.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from batchkit._engine.ledger import Ledger
from batchkit._engine.limits import gate_of
from batchkit._engine.memory import Memory
from batchkit._engine.plan import LaneSpec, Plan
from batchkit._engine.queues import Later, Line, Ticket
from batchkit._logic import pacing
from batchkit._logic.itinerary import Ask, Outcome, Seat, advance, seats_of
from batchkit._logic.judging import Again, judge
from batchkit._logic.pricing import Budget, estimate_tokens
from batchkit._logic.pricing import reserve as money
from batchkit._logic.progress import Adapted, Concurrency, Held, Paused, Stopped
from batchkit.records import Answer, Brief, Completion, Failure, Question, Scope, Usage

__all__ = ["Execution", "Lane"]

_LATEST = 10
"""Answers that are looked at for overload."""
_OVERLOADED = 3
"""So many of them, and the provider is overloaded for all."""
_PROBES = 3
"""So many requests may be called invalid before a provider that never answered well is stopped."""
_PATIENCE = 0.1
"""Seconds for which an ended run waits for requests it cancelled; an async function may refuse to be."""
_MARGIN = 4
"""So many times the longest reply so far is room enough for the next, where money is short."""
_ADDED = 400
"""Tokens of a tool's own instructions, of which no one tells beforehand."""
_TURN = 2_000
"""So many units are lined up, and perhaps answered from memory, at a stretch."""
_BEHIND = 1 << 40
"""More units than any run has."""
_HURRY = 0.1
"""Seconds that an idle disk needs at most for the answers of the last moment."""
_PATIENCE_WITH_DISK = 0.3
"""Seconds from its halt on for which an ended run waits for answers to be written down, if it gave no longer grace."""


class Lane:
    """One provider in one run."""

    __slots__ = (
        "admitted", "caller", "completed", "counted", "full_cap", "gate", "held", "in_flight", "index", "limits",
        "lines", "most_out", "overload", "pumping", "reached", "ready", "refused", "sent", "shared_tokens", "slots",
        "spec", "stopped", "timer", "wake",
    )  # fmt: skip

    def __init__(self, index: int, spec: LaneSpec, execution: Execution) -> None:
        self.index = index
        self.spec = spec
        self.caller = spec.caller
        self.limits = spec.limits
        self.gate = gate_of(spec.budget)
        self.lines: list[Line] = []
        self.stopped: Failure | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.ready = False
        """Whether its caller is open."""
        self.pumping = False
        self.admitted: deque[_Load] = deque()
        """Loads that the gate let in and whose worker has not begun yet."""
        self.sent = 0
        self.in_flight = 0
        self.slots = spec.limits.max_concurrency
        """So many at once, as far as the ledger was told."""
        self.held = False
        """Whether a limit lets nothing go."""
        self.reached = False
        """Whether the provider ever answered anything, be it an error."""
        self.completed = 0
        self.refused = 0
        self.overload: deque[bool] = deque(maxlen=_LATEST)
        """Of the latest answers, which said that the provider is overloaded."""
        self.shared_tokens = _most_shared(spec.brief)
        """The most that all of a request but its row may have."""
        self.most_out = 0
        """Tokens of the longest reply."""
        self.full_cap = 0
        """Tokens that a reply may have where money is not short; 0 until that was lowered."""
        self.counted = False
        """Whether that is what its provider counted."""
        self.wake = lambda: execution._pump(self)

    def count(self, usage: Usage) -> None:
        """Learn from a reply: no request shares more with the others than the shortest has in all."""
        if usage.input:
            self.shared_tokens = min(self.shared_tokens, usage.input) if self.counted else usage.input
            self.counted = True
        self.most_out = max(self.most_out, usage.output)

    def next_line(self) -> tuple[Line | None, int]:
        """The line whose head is first in row order, and that head; one that was set back comes after all others."""
        best, first, order = None, -1, -1
        for line in self.lines:
            head = line.head()
            if head is not None:
                place = head + _BEHIND if line.back and line.is_back() else head
                if best is None or place < order:
                    best, first, order = line, head, place
        return best, first


class Execution:
    """Carries out a plan. All methods but the constructor run on the engine's loop.

    Parameters
    ----------
    plan : Plan
    ledger : Ledger
        Written as things happen.
    rng : random.Random
        For the jitter of waits.
    raise_on_error : bool
        Send nothing new once a unit has ended in an error; what is in flight is kept.
    memory : Memory, optional
        Answers paid for before, and where new ones are written down before they are shown.
    budget : Budget, optional
        Send nothing new once it could be overdrawn. All lanes need a price then.
    max_seconds : float, optional
        Send nothing new after so long.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        *,
        rng: Random,
        raise_on_error: bool = False,
        memory: Memory | None = None,
        budget: Budget | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._rng = rng
        self._raise_on_error = raise_on_error
        self._memory = memory
        self._budget = budget
        self._max_seconds = max_seconds
        self._open_units = len(plan.texts)
        self._outcomes: dict[int, dict[int, Outcome]] = {}
        """Of units whose itinerary has several seats: what came of each so far."""
        self._asked: dict[int, set[int]] = {}
        self._later = Later()
        self._later_timer: asyncio.TimerHandle | None = None
        self._later_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes: list[Lane] = []
        self._over = asyncio.Event()
        self._halted: str | None = None
        self._halted_at: float | None = None
        self._crash: BaseException | None = None

    async def run(self) -> None:
        """Work until every unit is settled or the run was halted."""
        self._loop = asyncio.get_running_loop()
        self._lanes = [Lane(index, spec, self) for index, spec in enumerate(self._plan.lanes)]
        self._lines: dict[frozenset[int], Line] = {}
        self._ledger.began = self._loop.time()
        joined: list[Lane] = []
        limit = None
        try:
            if self._memory is not None:
                self._memory.begin(self._loop, self._written)
                await self._recall(self._memory)
            await self._line_up()
            if self._max_seconds is not None:
                limit = self._loop.call_later(self._max_seconds, self.halt, "max_seconds")
            for lane in self._lanes:
                if lane.lines and self._halted is None:
                    lane.gate.join(lane.limits)
                    joined.append(lane)
                    self._tell_slots(lane)
                    self._start(self._open(lane))
            self._look_whether_over()
            await self._over.wait()
        finally:
            if not self._open_units and self._halted in (None, "max_cost", "max_seconds"):
                self._halted = "done"  # a limit that kept nothing from being asked ended nothing
            self._halted = self._halted or "cancelled"
            _cancel(limit)
            await self._abandon()
            if self._memory is not None:
                # They are paid for: what the disk does not take in time is shown all the same.
                waited = 0.0 if self._halted_at is None else self._loop.time() - self._halted_at
                for lane, ticket, answer in await self._memory.flush(max(_HURRY, _PATIENCE_WITH_DISK - waited)):
                    self._arrive(lane, ticket, answer)
            for lane in joined:
                for load in lane.admitted:
                    lane.gate.leave(self._loop.time(), load.reserved, 0, lane.wake, load.entered)
                lane.gate.quit(lane.limits, lane.wake)
                if lane.ready:
                    lane.caller.close()
            self._ledger.finished(self._halted, self._loop.time())
        if self._crash is not None:
            raise self._crash

    async def _recall(self, memory: Memory) -> None:
        """Look up what was answered before; a run that is halted meanwhile does not wait for the disk."""
        looking, over = self._loop.create_task(memory.recall()), self._loop.create_task(self._over.wait())
        try:
            await asyncio.wait((looking, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            over.cancel()
            await asyncio.wait((looking, over))
        if not looking.cancelled():
            looking.result()

    def halt(self, why: str, grace: float | None = None) -> None:
        """Send nothing new. What is in flight may still arrive for ``grace`` seconds (None: its own time-outs)."""
        if self._halted is None:
            self._halted, self._halted_at = why, asyncio.get_running_loop().time()
            for lane in self._lanes:
                _cancel(lane.timer)
                lane.gate.forget(lane.wake)
            _cancel(self._later_timer)
        if grace is not None:
            asyncio.get_running_loop().call_later(grace, self._over.set)
        self._look_whether_over()

    # ---- queues ---------------------------------------------------------------------------------

    async def _line_up(self) -> None:
        """Put every unit into the queues its itinerary begins with."""
        itineraries = self._plan.itineraries
        self._seats = [{seat.number: self._line(seat.providers) for seat in seats_of(node)} for node in itineraries]
        first = [advance(node, {}) for node in itineraries]
        starts = [
            [(seats[seat.number], seat.number) for seat in step.seats] if isinstance(step, Ask) else []
            for seats, step in zip(self._seats, first, strict=True)
        ]
        several = [not isinstance(node, Seat) for node in itineraries]
        known = self._memory.units if self._memory is not None else frozenset[int]()
        for unit, code in enumerate(self._plan.codes):
            if known and unit % _TURN == _TURN - 1:
                await asyncio.sleep(0)  # other runs share this loop
            if several[code]:
                self._outcomes[unit] = {}
                self._asked[unit] = {seat for _, seat in starts[code]}
            for line, seat in starts[code]:
                if unit not in known or not self._remember(unit, seat):
                    line.add(unit, seat)

    def _line(self, providers: frozenset[int]) -> Line:
        line = self._lines.get(providers)
        if line is None:
            lanes = [self._lanes[index] for index in sorted(providers)]
            line = self._lines[providers] = Line(lanes)
            for lane in lanes:
                lane.lines.append(line)
        return line

    def _remember(self, unit: int, seat: int) -> bool:
        """Answer a seat from memory, if one of its providers answered before."""
        line = self._seats[self._plan.codes[unit]][seat]
        outcome = None if self._memory is None else self._memory.find(unit, [lane.index for lane in line.lanes])
        if outcome is not None:
            self._conclude(unit, seat, outcome, reused=True)
        return outcome is not None

    # ---- lanes ----------------------------------------------------------------------------------

    async def _open(self, lane: Lane) -> None:
        """Get a lane ready, each by itself: a model that loads slowly delays its own rows only."""
        try:
            await lane.caller.open()
        except Exception as error:  # noqa: BLE001
            self._stop(lane, Failure("config", f"{type(error).__name__}: {error}", Scope.PROVIDER))
        else:
            lane.ready = True
            self._pump(lane)
        if self._budget is not None:  # they may have waited for what this one can pay for
            for other in self._lanes:
                if other.ready:
                    self._pump(other)

    def _pump(self, lane: Lane) -> None:
        """Start workers for as long as there is work and the gate lets requests go."""
        if lane.pumping:  # a unit that ended in here was asked again: the loop below finds it
            return
        lane.pumping = True
        try:
            while (load := self._load(lane)) is not None:
                lane.admitted.append(load)
                self._start(self._work(lane))
        finally:
            lane.pumping = False

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._worker_ended)

    def _may_send(self, lane: Lane) -> bool:
        if self._halted is not None or lane.stopped is not None or not lane.ready:
            return False
        # Called invalid and never answered well: more than these are sent only once the replies on their way say which.
        doubtful = lane.refused and not lane.completed and lane.in_flight
        return not doubtful or lane.sent < max(_PROBES, lane.limits.max_concurrency)

    def _load(self, lane: Lane) -> _Load | None:
        """Take what the lane may send now; its gate has then let one request in."""
        limits = lane.limits
        while self._may_send(lane):
            line, unit = lane.next_line()
            if line is None:
                lane.gate.forget(lane.wake)
                return None
            now = self._loop.time()
            if line.again and line.ends_at(limits.deadline) <= now:
                ticket = line.pop()
                late = Failure("timeout", f"no answer within deadline={limits.deadline:g} s")
                self._arrive(lane, ticket, ticket.last or late)
                continue
            reserve = price = 0.0
            tpm = lane.gate.tpm
            if tpm is not None and (reserve := self._estimate(lane, unit)) > tpm and not self._has_room(lane, unit):
                self._decline(lane, line, reserve)
                continue
            if self._budget is not None and not self._budget.may_send(price := self._money(lane, line)):
                if line.set_back() or self._lower_cap(lane, line, self._budget):
                    continue
                if not self._is_waiting():  # else money may come back
                    if self._give_full_cap(lane, line, self._budget):
                        continue
                    if not self._others_go_on(lane, self._budget):
                        self.halt("max_cost")
                return None
            wait = lane.gate.enter(now, reserve, lane.wake)
            if wait:
                if wait < math.inf:
                    if not lane.held:
                        lane.held = True
                        self._ledger.tell(Held(lane.index, lane.gate.held_by, now))
                    _cancel(lane.timer)
                    lane.timer = self._loop.call_later(min(wait, line.ends_at(limits.deadline) - now), lane.wake)
                return None
            lane.sent += 1
            lane.in_flight += 1
            if lane.held:
                lane.held = False
                self._ledger.tell(Held(lane.index, None, now))
            if self._budget is not None:
                self._budget.take(price)
            return _Load(self._take(lane, line, now), reserve, now, price)
        return None

    def _take(self, lane: Lane, line: Line, now: float) -> list[Ticket]:
        """Take the next unit of a line, and more where the lane's requests take several."""
        tickets = [line.pop()]
        while len(tickets) < lane.caller.batch and line.head() is not None and line.ends_at(lane.limits.deadline) > now:
            tickets.append(line.pop())
        if len(line.lanes) > 1 and line.head() is None:
            for other in line.lanes:
                if other is not lane and other.held and other.next_line()[0] is None:
                    other.gate.forget(other.wake)
        return tickets

    def _decline(self, lane: Lane, line: Line, size: float) -> None:
        """Leave the next unit to those of its set that may take it at all; without any it ends here."""
        ticket = line.pop()
        able = [other for other in line.lanes if other.stopped is None and self._has_room(other, ticket.unit)]
        if able:
            self._ask_again(self._line(frozenset(other.index for other in able)), ticket)
            return
        text = f"about {size:.0f} tokens, more than tpm={lane.gate.tpm:g} of {lane.spec.name} allows at all"
        self._arrive(lane, ticket, Failure("too_large", text))

    def _has_room(self, lane: Lane, unit: int) -> bool:
        if lane.gate.tpm is None:
            return True
        tokens = self._estimate(lane, unit)
        return tokens <= lane.gate.tpm or lane.gate.has_room(tokens, self._tokens_in(lane, unit) / tokens)

    def _estimate(self, lane: Lane, unit: int) -> float:
        """Tokens the next request is likely to use: four bytes each, and the whole room for the answer."""
        return self._tokens_in(lane, unit) + lane.caller.reply_tokens

    def _tokens_in(self, lane: Lane, unit: int) -> float:
        return estimate_tokens(_size(lane.spec.brief.system) + _size(self._plan.texts[unit]))

    def _money(self, lane: Lane, line: Line) -> float:
        """What the next request may cost at most."""
        if self._budget is None or lane.spec.price is None:
            return 0.0
        ticket, cap = line.asked(), lane.caller.reply_tokens
        if ticket is not None and ticket.question is not None and ticket.was_cut:
            cap = max(cap, lane.full_cap) * ticket.question.room
        return money(self._most_in(lane, line), cap, lane.spec.price)

    def _most_in(self, lane: Lane, line: Line) -> float:
        """The most tokens that the next request may have: no tokenizer makes more than one of a byte."""
        unit = line.head()
        ticket = line.asked()
        texts = [] if unit is None else [self._plan.texts[unit]]
        if ticket is not None and ticket.question is not None:
            texts += [turn.text for turn in ticket.question.turns]
        return lane.shared_tokens + sum(map(_size, texts))

    def _lower_cap(self, lane: Lane, line: Line, budget: Budget) -> bool:
        """Spare some of what is reserved for replies: room to think is large, and few need it; whether that was done.

        They get what the task needs, and several times what the longest so far had; the first, all there is money for.
        """
        price, before, ticket = lane.spec.price, lane.caller.reply_tokens, line.asked()
        if price is None or (not lane.most_out and self._is_waiting()):
            return False
        if ticket is not None and ticket.was_cut:  # it gets what it would get where money is not short
            return False
        needed = lane.spec.brief.max_output_tokens
        cap = max(needed, _MARGIN * lane.most_out)
        if not lane.most_out:
            tokens_in = self._most_in(lane, line)
            # What one token more costs is what it costs: no rate of a reply depends on its length.
            left = budget.max_cost - budget.spent - money(tokens_in, 0, price)
            each = money(tokens_in, 1, price) - money(tokens_in, 0, price)
            cap = max(needed, int(left / each)) if each else before
        if cap < before:
            lane.full_cap = max(lane.full_cap, before)
            lane.caller.set_cap(cap)
        return lane.caller.reply_tokens < before

    def _give_full_cap(self, lane: Lane, line: Line, budget: Budget) -> bool:
        """Ask the last row, cut under a lowered cap and too dear with more, under the full one; whether that can be.

        Nothing is in flight then, so that nothing else leaves under a cap for which no money was reserved.
        """
        ticket, price = line.asked(), lane.spec.price
        if ticket is None or ticket.question is None or not ticket.was_cut or ticket.had_full_cap or price is None:
            return False
        cap = max(lane.full_cap, lane.caller.reply_tokens)
        if not budget.may_send(money(self._most_in(lane, line), cap, price)):
            return False
        lane.caller.set_cap(cap)
        ticket.question, ticket.had_full_cap = ticket.question._replace(room=1), True
        return True

    def _others_go_on(self, lane: Lane, budget: Budget) -> bool:
        """Have the other providers send what they can pay for; whether any does, or will when its limits let it."""
        for other in self._lanes:
            if other is lane or other.stopped is not None or not other.lines:
                continue
            if not other.ready:
                return True
            self._pump(other)
            line, _ = other.next_line()
            if line is not None and budget.may_send(self._money(other, line)):
                return True
        return self._is_waiting()

    def _is_waiting(self) -> bool:
        """Whether any request is in flight."""
        return any(lane.in_flight for lane in self._lanes)

    async def _work(self, lane: Lane) -> None:
        """Carry one load after the other for as long as the lane has any."""
        first = lane.admitted.popleft()
        if self._halted is not None:  # others may use the slot
            lane.in_flight -= 1
            lane.gate.leave(self._loop.time(), first.reserved, 0, lane.wake, first.entered)
            lane.gate.hand_on()
            return
        load: _Load | None = first
        try:
            while load is not None:
                await self._send(lane, load)
                load = self._load(lane)
                if self._budget is not None:  # what came back may pay for more than one
                    self._pump(lane)
        finally:
            lane.gate.hand_on()

    async def _send(self, lane: Lane, load: _Load) -> None:
        """Have a load carried, and see to what comes of it."""
        ledger, tickets, limits = self._ledger, load.tickets, lane.limits
        used = None
        paid: float | None = 0.0
        started = ended = earliest = self._loop.time()
        questions = []
        try:
            for ticket in tickets:
                if not ticket.tries:  # not at its admission: the process may have stood still since
                    ticket.first_at = started
                elif ticket.first_at < earliest:
                    earliest = ticket.first_at
                if self._budget is not None and lane.caller.reply_tokens >= lane.full_cap:
                    ticket.had_full_cap = True
                questions.append(self._fitted(lane, self._question(lane, ticket)))
                ledger.sent(lane.index)
            try:
                left = limits.deadline - (started - earliest)
                timeout = limits.timeout if limits.timeout <= left else max(0.001, left)
                results = await lane.caller.carry(questions, timeout)
            except asyncio.CancelledError:
                ended = self._loop.time()
                if ledger.ended is None:
                    given_up = Failure("cancelled", "given up when the run was stopped")
                    for ticket in tickets:
                        ledger.attempted(ticket.unit, lane.index, started, ended, given_up)
                raise
            except Exception as error:  # noqa: BLE001
                results = [_internal(error)] * len(tickets)
            if len(results) != len(tickets):
                miscounted = ValueError(f"{len(results)} results for {len(tickets)} questions")
                results = [_internal(miscounted)] * len(tickets)
            ended = self._loop.time()
            if ledger.ended is not None:  # a function that would not be cancelled: its result is dropped
                return
            if lane.gate.counts_tokens:
                used = _tokens_used(results)
            self._heed(lane, load, results[0], ended)
            for ticket, result in zip(tickets, results, strict=True):
                ticket.tries += 1
                cost = ledger.attempted(ticket.unit, lane.index, started, ended, result)
                paid = None if cost is None or paid is None else paid + cost
                try:
                    self._judge(lane, ticket, result, load.entered, ended)
                except Exception as error:  # noqa: BLE001
                    self._arrive(lane, ticket, _internal(error))
        finally:
            lane.in_flight -= 1
            if self._budget is not None:
                self._settle_up(lane, load.money, paid)
            if lane.slots != lane.gate.slots:
                self._tell_slots(lane)
            # After the judgement: what it asks again goes before what waits for a slot.
            lane.gate.leave(ended, load.reserved, used, lane.wake, load.entered)

    def _settle_up(self, lane: Lane, reserved: float, paid: float | None) -> None:
        if self._budget is not None:
            self._budget.settle(reserved, paid)
            for other in self._lanes:  # they may have waited for the money to come back
                if other is not lane and other.stopped is None:
                    self._pump(other)

    def _heed(self, lane: Lane, load: _Load, result: Completion | Failure, now: float) -> None:
        """Learn from a reply how fast its provider may be asked."""
        if isinstance(result, Completion):
            lane.gate.taken(now)
            lane.gate.timed(load.entered, now)
        elif result.kind == "timeout":
            lane.gate.timed(load.entered, now)
        elif result.kind == "rate_limited" and result.scope is Scope.TRANSIENT:
            lane.gate.refused(load.entered, now)
        told = lane.caller.told
        if told is not None:
            tokens_in = self._tokens_in(lane, load.tickets[0].unit)
            lane.gate.hear(now, told, tokens_in / (tokens_in + lane.caller.reply_tokens))

    def _tell_slots(self, lane: Lane) -> None:
        if lane.slots != lane.gate.slots and self._ledger.ended is None:
            lane.slots = lane.gate.slots
            self._ledger.tell(Concurrency(lane.index, lane.slots))

    def _question(self, lane: Lane, ticket: Ticket) -> Question:
        question = ticket.question
        if question is None:
            question = ticket.question = Question(lane.spec.brief, self._plan.texts[ticket.unit])
        elif question.brief is not lane.spec.brief:  # another provider of its set was asked before
            question = ticket.question = question._replace(brief=lane.spec.brief)
        return question

    def _fitted(self, lane: Lane, question: Question) -> Question:
        """A question as this lane is to carry it: its room is of the full cap, also where that was lowered."""
        cap = lane.caller.reply_tokens
        if question.room > 1 and cap < lane.full_cap:
            question = question._replace(room=question.room * lane.full_cap // cap)
        return question

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error
            self._over.set()
        self._look_whether_over()

    # ---- what follows a reply -------------------------------------------------------------------

    def _judge(self, lane: Lane, ticket: Ticket, result: Completion | Failure, sent: float, now: float) -> None:
        if isinstance(result, Failure):
            self._judge_failure(lane, ticket, result, sent, now)
            return
        lane.reached = True
        lane.completed += 1
        lane.overload.append(False)
        lane.count(result.usage)
        if lane.completed == 1 and lane.refused:
            self._pump(lane)
        question = ticket.question or self._question(lane, ticket)
        verdict = judge(self._plan.task, question, result)
        if isinstance(verdict, Again):
            ticket.question = verdict.question
            self._ask_again(self._line_of(ticket), ticket)
        elif isinstance(verdict, Answer) and self._memory is not None and lane.spec.fingerprint is not None:
            self._memory.keep(ticket.unit, lane.index, verdict, result, (lane, ticket, verdict))
        else:
            self._arrive(lane, ticket, verdict)

    def _written(self, tokens: list[tuple[Lane, Ticket, Answer]]) -> None:
        """These answers are written down: they may be shown."""
        for lane, ticket, answer in tokens:
            try:
                self._arrive(lane, ticket, answer)
            except Exception as error:  # noqa: BLE001 - the others' answers are written down as well
                self._arrive(lane, ticket, _internal(error))
        self._look_whether_over()

    def _judge_failure(self, lane: Lane, ticket: Ticket, failure: Failure, sent: float, now: float) -> None:
        ticket.last = failure
        lane.reached = lane.reached or failure.status is not None
        if failure.adapted is not None:
            if failure.adapted:
                self._ledger.tell(Adapted(lane.index, failure.adapted))
            lane.shared_tokens, lane.counted = _most_shared(lane.spec.brief), False
            self._ask_again(self._line_of(ticket), ticket)
            return
        if failure.refusable and ticket.question is not None and ticket.question.room > 1:
            # Cut at its cap before, and this model allows no larger one.
            self._arrive(lane, ticket, replace(failure, kind="truncated", scope=Scope.ROW))
            return
        if failure.unreached and not lane.reached:
            failure = replace(failure, scope=Scope.PROVIDER)
        if failure.refusable:
            lane.refused += 1
            if lane.refused >= _PROBES and not lane.completed:
                failure = replace(failure, scope=Scope.PROVIDER)
        verdict = pacing.decide(
            failure,
            retries=ticket.retries,
            tries=ticket.tries,
            elapsed=now - ticket.first_at,
            limits=lane.limits,
            rng=self._rng,
        )
        if failure.status is not None:
            lane.overload.append(failure.overloaded)
        if isinstance(verdict, pacing.Retry):
            ticket.retries += verdict.counts
            if failure.overloaded:
                for_all = sum(lane.overload) >= _OVERLOADED
                if lane.gate.overloaded(sent, now, for_all=for_all):
                    # Not one row's bad luck: everybody waits, and fewer are sent at once from then on.
                    lane.gate.pause(now + verdict.wait)
                    self._ledger.tell(Paused(lane.index, now + verdict.wait))
                if for_all:
                    lane.overload.clear()
            if verdict.pause_lane:
                lane.gate.pause(now + verdict.pause_lane)
                self._ledger.tell(Paused(lane.index, now + verdict.pause_lane))
                line = self._line_of(ticket)
                if any(other is not lane and other.stopped is None for other in line.lanes):
                    self._ask_again(line, ticket)  # another of its set need not wait
                    return
            self._ask_later(lane, ticket, now + verdict.wait)
            return
        if verdict.failure.scope is Scope.PROVIDER:
            self._stop(lane, verdict.failure)
            line = self._line_of(ticket)
            if line.dead is None:  # its set has other providers
                self._ask_again(line, ticket)
                return
        self._arrive(lane, ticket, verdict.failure)

    # ---- asking again ---------------------------------------------------------------------------

    def _ask_again(self, line: Line, ticket: Ticket) -> None:
        if line.dead is not None:
            self._arrive(line.lanes[-1], ticket, line.dead)
            return
        line.again.append(ticket)
        for lane in line.lanes:
            if lane.stopped is None:
                self._pump(lane)

    def _ask_later(self, lane: Lane, ticket: Ticket, at: float) -> None:
        line = self._line_of(ticket)
        if line.dead is not None:
            self._arrive(lane, ticket, line.dead)
            return
        self._later.add(at, line, ticket)
        self._set_later_timer()

    def _set_later_timer(self) -> None:
        at = self._later.next_at
        if at != self._later_at:
            _cancel(self._later_timer)
            self._later_at = at
            if at is not None and self._halted is None:
                self._later_timer = self._loop.call_at(at, self._now_is_later)

    def _now_is_later(self) -> None:
        self._later_at = None
        for line, ticket in self._later.due(self._loop.time()):
            self._ask_again(line, ticket)
        self._set_later_timer()

    def _line_of(self, ticket: Ticket) -> Line:
        return self._seats[self._plan.codes[ticket.unit]][ticket.seat]

    # ---- endings --------------------------------------------------------------------------------

    def _arrive(self, lane: Lane, ticket: Ticket, result: Answer | Failure) -> None:
        """A ticket has its outcome. Follow the itinerary on, or settle the unit."""
        outcome = Outcome(lane.index, result) if isinstance(result, Answer) else Outcome(lane.index, None, result)
        self._conclude(ticket.unit, ticket.seat, outcome)

    def _conclude(self, unit: int, seat: int, outcome: Outcome, *, reused: bool = False) -> None:
        if unit in self._outcomes:
            outcomes = self._outcomes[unit]
            outcomes[seat] = outcome
            step = advance(self._plan.itineraries[self._plan.codes[unit]], outcomes)
            if isinstance(step, Ask):
                self._ask_seats(unit, step.seats)
                return
            del self._outcomes[unit], self._asked[unit]
            if step.outcome is not None:
                outcome = step.outcome
        self._ledger.settled(unit, outcome, reused=reused)
        self._open_units -= 1
        if outcome.failure is not None and self._raise_on_error and self._halted is None:
            self.halt("raised")
        if not self._open_units or self._halted is not None:
            self._look_whether_over()

    def _ask_seats(self, unit: int, seats: Sequence[Seat]) -> None:
        asked = self._asked[unit]
        for seat in seats:
            if seat.number not in asked:
                asked.add(seat.number)
                if not self._remember(unit, seat.number):
                    self._ask_again(self._lines[seat.providers], Ticket(unit, seat.number))

    def _stop(self, lane: Lane, failure: Failure) -> None:
        """Ask a provider no more; units that nobody else may answer end with its failure."""
        if lane.stopped is not None:
            return
        lane.stopped = failure
        _cancel(lane.timer)
        lane.gate.forget(lane.wake)
        self._ledger.tell(Stopped(lane.index, failure))
        message = f"not asked: {lane.spec.name} was stopped: {failure.message}"
        for line in lane.lines:
            if all(other.stopped is not None for other in line.lanes):
                line.dead = replace(failure, message=message)
                for ticket in itertools.chain(self._later.drain(line), line.drain()):
                    self._arrive(lane, ticket, line.dead)

    def _look_whether_over(self) -> None:
        unwritten = self._memory is not None and self._memory.unwritten
        if not self._open_units or (self._halted is not None and not self._tasks and not unwritten):
            self._over.set()

    async def _abandon(self) -> None:
        for lane in self._lanes:
            _cancel(lane.timer)
        _cancel(self._later_timer)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)


class _Load(NamedTuple):
    tickets: list[Ticket]
    reserved: float
    """Tokens taken from the gate's budget for it."""
    entered: float
    """When they were taken."""
    money: float
    """USD taken from the run's budget for it."""


def _most_shared(brief: Brief) -> float:
    """Tokens of instructions and schema, twice what prose of that length has, and what a vendor may add by itself."""
    return _size(brief.system) / 2 + _size(repr(brief.schema)) / 2 + _ADDED


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _tokens_used(results: Sequence[Completion | Failure]) -> float | None:
    """What the provider counted; None where it did not say."""
    usages = [result.usage for result in results if isinstance(result, Completion)]
    used = sum(usage.input + usage.output for usage in usages)
    return float(used) if used else None


def _internal(error: Exception) -> Failure:
    return Failure("internal", f"a fault in batchkit, please report it: {type(error).__name__}: {error}")
