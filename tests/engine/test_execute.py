"""A run in virtual time: every unit ends, limits and deadlines are exact, and stop means stop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual import (
    AUTH,
    BAD,
    LIMITED,
    SERVER,
    Script,
    Shelf,
    at_once,
    completion,
    execute,
    lane,
    plan_of,
    run,
    start,
    times,
)

from batchkit._dialects.ratelimits import Allowance, Allowances
from batchkit._engine import memory
from batchkit._engine.ledger import ANSWERED, FAILED, PENDING
from batchkit._engine.limits import gate_of
from batchkit._logic.itinerary import Cascade, Fallback, Panel, Seat, seats_of
from batchkit._logic.pacing import Quota
from batchkit._logic.pricing import Budget, Price
from batchkit.records import ERROR_KINDS, Completion, Failure, Finish, Scope, Text, Usage

A, B = Seat(frozenset({0})), Seat(frozenset({1}))
BOTH = Seat(frozenset({0, 1}))
OVERLOADED = Failure("server", "HTTP 529", Scope.TRANSIENT, 529, overloaded=True)
UNREACHED = Failure("connection", "not reachable", Scope.TRANSIENT, unreached=True)
INVALID_REQUEST = Failure("config", "HTTP 400", Scope.ROW, 400, refusable=True)
REFUSED = Failure("refused", "no", Scope.ROW, 200)


def texts(count):
    return [f"t{number}" for number in range(count)]


def always(line, seconds=0.0):
    return lambda question, asked: (seconds, line)


def in_turn(*lines, seconds=0.0):
    """The lines one after the other for each row, then its own text."""

    def says(question, asked):
        return seconds, lines[asked] if asked < len(lines) else completion(question.row)

    return says


def kinds(ledger):
    return [ERROR_KINDS[code] if code >= 0 else None for code in ledger.kind]


# ---- nothing lost, nothing mixed up ------------------------------------------------------------

_NODES = [
    A,
    B,
    BOTH,
    Fallback((A, B)),
    Fallback((A, BOTH)),
    Cascade((A, B), (0.8,)),
    Panel((A, B, BOTH)),
    Cascade((Panel((A, B)), BOTH), (0.8,)),
    Fallback((Cascade((A, A), (0.9,)), B)),
]


def chaos(seed):
    """Delays and faults that look random and depend on the row and the attempt only."""

    def says(question, asked):
        rng = Random(f"{seed} {question.row} {asked}")
        faults = [
            SERVER, LIMITED, replace(LIMITED, retry_after=3.0), OVERLOADED, UNREACHED, INVALID_REQUEST, REFUSED,
            AUTH, RuntimeError("a crash"), completion(BAD), completion(RuntimeError("a crash in the check")),
            completion(question.row, finish=Finish.TRUNCATED), completion(question.row, finish=Finish.REFUSED),
            completion(question.row, finish=Finish.FILTERED),
        ]  # fmt: skip
        weights = [4, 4, 2, 2, 1, 1, 2, 0.1, 1, 4, 1, 3, 1, 1]
        line = rng.choices(faults, weights)[0] if rng.random() < 0.4 else completion(question.row)
        return rng.choice([0.0, 0.1, 1.0, 7.0, 70.0]), line

    return says


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**9),
    codes=st.lists(st.integers(0, len(_NODES) - 1), max_size=25),
    slots=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    batches=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    confidence=st.sampled_from([None, 0.5, 0.95]),
    one_budget=st.booleans(),
    rpm=st.sampled_from([None, 30.0, 600.0]),
)
def test_every_unit_ends_with_its_own_answer_or_a_kind(seed, codes, slots, batches, confidence, one_budget, rpm):
    """Whatever the delays, faults, batches and itineraries, each unit has the answer to its own text or a kind."""
    scripts = [Script(chaos(f"{seed} {which}"), batch=batch) for which, batch in enumerate(batches)]
    shared = (object(),) if one_budget else None
    lanes = [
        lane(script, name=name, budget=shared, max_concurrency=count, max_retries=2, deadline=90.0, rpm=rpm)
        for script, name, count in zip(scripts, "ab", slots, strict=True)
    ]
    words = texts(len(codes))
    ledger = execute(plan_of(words, lanes, *_NODES, codes=codes, confidence=confidence), jitter=0.7)
    for unit, word in enumerate(words):
        if ledger.state[unit] == ANSWERED:
            assert (ledger.values[unit], ledger.kind[unit]) == (word, -1)
        else:
            assert ledger.state[unit] == FAILED
            assert ledger.values[unit] is None
            assert ERROR_KINDS[ledger.kind[unit]]
            assert ledger.messages[unit]
    for script, count in zip(scripts, slots, strict=True):
        assert script.peak <= (min(slots) if one_budget else count)
    snapshot = ledger.snapshot()
    assert (snapshot.done, snapshot.finished) == (len(words), "done")
    assert [part.in_flight for part in snapshot.lanes] == [0, 0]
    assert len(ledger.attempts) == sum(len(request.rows) for script in scripts for request in script.requests)


@given(delays=st.lists(st.floats(0, 50), min_size=1, max_size=40), slots=st.integers(1, 8))
def test_the_order_of_arrival_changes_no_answer(delays, slots):
    """Units that finish in any order still hold the answers to their own texts."""
    words = texts(len(delays))
    script = Script(lambda question, asked: (delays[int(question.row[1:])], completion(question.row)))
    assert execute(plan_of(words, [lane(script, max_concurrency=slots)])).values == words
    assert script.peak == min(slots, len(words))


def test_a_pull_is_a_greedy_schedule():
    """Slots take the next unit the moment they are free, so the end is that of greedy list scheduling."""
    script = Script(lambda question, asked: (float(question.row), completion(question.row)))
    ledger = execute(plan_of(["5", "1", "1", "2", "2", "3"], [lane(script, max_concurrency=2)]))
    assert times(script) == [0, 0, 1, 2, 4, 5]
    assert ledger.ended - ledger.began == 8


def test_a_run_without_units_is_done():
    """A plan of nothing ends at once and asks nobody."""
    script = Script()
    assert execute(plan_of([], [lane(script)])).snapshot().finished == "done"
    assert script.state == "new"


def test_long_itineraries_of_one_lane_do_not_recurse():
    """Thousands of units that end before they are sent do not pile up on the stack."""
    both = Fallback((A, BOTH))
    lanes = [lane(Script(), name=name, tpm=10.0) for name in "ab"]
    ledger = execute(plan_of(texts(3000), lanes, both))
    assert Counter(kinds(ledger)) == {"too_large": 3000}


# ---- again, and when ---------------------------------------------------------------------------


@pytest.mark.parametrize(("retries", "when"), [(0, [0]), (1, [0, 1]), (3, [0, 1, 3, 7])])
def test_transient_failures_are_retried_so_often(retries, when):
    """A transient failure is asked again up to max_retries times with growing waits, then it is final."""
    script = Script(always(SERVER))
    ledger = execute(plan_of(["t"], [lane(script, max_retries=retries)]))
    assert times(script) == when
    assert kinds(ledger) == ["server"]
    assert ledger.messages[0] == "HTTP 500"


@pytest.mark.parametrize("failure", [LIMITED, OVERLOADED])
def test_limits_and_overload_are_bounded_by_the_deadline_alone(failure):
    """Rate limits and overload use up no retry, and end before the deadline has passed."""
    script = Script(always(failure))
    ledger = execute(plan_of(["t"], [lane(script, max_retries=0, deadline=40.0)]))
    assert times(script) == [0, 1, 3, 7, 15, 31]
    assert kinds(ledger) == [failure.kind]
    assert ledger.ended <= 40.0


def test_a_row_that_waits_holds_no_slot():
    """While one row waits to be asked again, its only slot serves the others."""
    script = Script(lambda question, asked: (1.0, SERVER if question.row == "t0" and not asked else completion("x")))
    execute(plan_of(texts(3), [lane(script, max_concurrency=1)]))
    assert [request.rows[0] for request in script.requests] == ["t0", "t1", "t0", "t2"]
    assert times(script) == [0, 1, 2, 3]


def test_retry_after_pauses_the_lane():
    """After a rate limit with Retry-After nobody asks this provider until then, and others go on."""
    hint = replace(LIMITED, retry_after=10.0)
    slow = Script(lambda question, asked: (1.0, hint if question.row == "t0" and not asked else completion("x")))
    other = Script()
    lanes = [lane(slow, name="a", max_concurrency=1), lane(other, name="b", max_concurrency=1)]
    execute(plan_of(texts(6), lanes, A, B, codes=[0, 0, 0, 1, 1, 1]), jitter=0.5)
    assert times(slow) == [0, 11, 12, 13]
    assert times(slow, "t0") == [0, 13]
    assert times(other) == [0, 1, 2]


def test_one_overload_answer_delays_its_own_row_only():
    """A single overload answer pauses nobody: the other rows go on at full width."""
    script = Script(
        lambda question, asked: (1.0, OVERLOADED if question.row == "t0" and not asked else completion("x"))
    )
    execute(plan_of(texts(8), [lane(script, max_concurrency=2)]))
    assert times(script)[:6] == [0, 0, 1, 1, 2, 2]


def test_overload_of_several_pauses_the_lane_and_halves_its_slots():
    """Three overload answers among the last ten: everybody waits, and half as many are sent at once afterwards."""
    first = {f"t{number}" for number in range(4)}
    busy = Script(lambda question, asked: (0.25, completion("x") if asked or question.row not in first else OVERLOADED))
    execute(plan_of(texts(12), [lane(busy, max_concurrency=4)]), jitter=0.5)
    sent = times(busy)
    assert sent[:4] == [0, 0, 0, 0]
    assert sent.count(0.25) == 2  # what went before the third overload answer was read
    assert sent[6] == 0.75  # the back-off of half a second, which everybody waits
    assert all(sent.count(at) <= 2 for at in sent[4:])
    assert len(sent) == 12 + 4


def test_a_refusal_that_comes_late_is_one():
    """A rate limit that was said more than a minute after its request left is waited for like any."""
    late = Script(lambda question, asked: (1.0, completion("x")) if asked else (70.0, LIMITED))
    ledger = execute(plan_of(texts(2), [lane(late, max_concurrency=2, timeout=120.0)]))
    assert set(ledger.state) == {ANSWERED}


@pytest.mark.parametrize("how", ["cancelled", "halted", "answered by another"])
def test_a_turn_that_nobody_needs_any_more_holds_nobody_up(how):
    """A run that waits for much under a shared limit lets the others go on as soon as it needs it no more."""
    budget, first, large, small = (object(),), Script(), Script(), Script()
    first.reply_tokens = large.reply_tokens = small.reply_tokens = 10
    limited = {"budget": budget, "tpm": 6_000.0}
    lanes = [lane(large, name="large", **limited)]
    if how == "answered by another":
        slow = Script(lambda question, asked: (60.0, completion("x")), opening=5.0)
        lanes.append(lane(slow, name="slow", timeout=100.0))

    async def main():
        loop = asyncio.get_running_loop()
        await start(plan_of(["x" * 400] * 12, [lane(first, **limited)]))[0].run()
        waits, _ = start(plan_of(["y" * 4 * 5_700], lanes))
        waiting = loop.create_task(waits.run())
        await asyncio.sleep(0.1)
        others = loop.create_task(start(plan_of(texts(10), [lane(small, **limited)]))[0].run())
        await asyncio.sleep(5.0)
        now = loop.time()
        assert len(small.requests) < 10
        if how == "cancelled":
            waiting.cancel()
        elif how == "halted":
            waits.halt("max_seconds")
        await others
        waiting.cancel()
        await asyncio.wait([waiting])
        return now, min(at for at in times(small) if at > now)

    for script in (first, large, small):
        script.close = lambda: None
    asked, went = run(main())
    assert went <= asked + 1.2  # the tokens of one row


def test_overload_of_all_in_flight_halves_the_slots_once():
    """Sixteen requests in flight that all come back overloaded are one sign of overload, not five."""
    busy = Script(lambda question, asked: (1.0 + int(question.row[1:]) / 100, completion("x") if asked else OVERLOADED))
    ledger = execute(plan_of(texts(16), [lane(busy, max_concurrency=16)]), jitter=0.5)
    assert set(ledger.state) == {ANSWERED}
    assert ledger.snapshot().lanes[0].slots == 8 + 1  # and one more after ten calm answers


class Few(Script):
    """A server that takes ``able`` requests at once, about a second each, and refuses the others."""

    def __init__(self, able, seed=0):
        self._ends, self._rng, self.refusals = [], Random(seed), 0
        self._able = able
        super().__init__(self._serve)

    def _serve(self, question, asked):
        now = asyncio.get_running_loop().time()
        self._ends = [ends for ends in self._ends if ends > now + 1e-9]
        if len(self._ends) == self._able:
            self.refusals += 1
            return 0.02, LIMITED
        self._ends.append(now + self._rng.lognormvariate(0, 0.3))
        return self._ends[-1] - now, completion(question.row)


@pytest.mark.parametrize("able", [1, 2, 5, 12])
@pytest.mark.parametrize("slots", [16, 64])
def test_a_provider_that_refuses_more_than_so_many_at_once_gets_so_many(able, slots):
    """Where a provider limits what is in flight and tells nobody, it is kept busy and refuses few after the first."""
    server = Few(able)
    ledger = execute(plan_of(texts(1_000), [lane(server, max_concurrency=slots, deadline=1e4)]), jitter=0.5)
    assert set(ledger.state) == {ANSWERED}
    assert server.refusals <= slots + 0.03 * 1_000
    assert ledger.ended < 1.2 * 1_000 * 1.05 / able


class OneByOne(Script):
    """A server that works on ``able`` requests at once, a second each, and lets the others wait."""

    def __init__(self, able):
        self._free = [0.0] * able
        super().__init__(self._serve)

    def _serve(self, question, asked):
        now = asyncio.get_running_loop().time()
        ends = max(now, heapq.heappop(self._free)) + 1.0
        heapq.heappush(self._free, ends)
        return ends - now, completion(question.row)


@pytest.mark.parametrize(("able", "most"), [(1, 16), (1, 4), (2, 8), (4, 16)])
def test_a_server_is_not_asked_for_more_at_once_than_it_can_do(able, most):
    """Where nobody said how many, requests do not pile up in the server, and it is never short of them for long."""
    server = OneByOne(able)
    ledger = execute(plan_of(texts(400), [lane(server, max_concurrency=most, is_usual=True)]))
    assert set(ledger.state) == {ANSWERED}
    assert ledger.ended <= 1.15 * 400 / able
    log = ledger.attempts
    took = [ended - started for started, ended in zip(log.started, log.ended, strict=True)]
    assert median(took[200:]) <= 2


def test_a_server_that_can_do_more_gets_more():
    """Slots that nobody asked for begin with half of them and come to all, where the server keeps up."""
    server = Script()
    ledger = execute(plan_of(texts(64), [lane(server, max_concurrency=16, is_usual=True)]))
    assert [times(server).count(second) for second in (0, 1, 2)] == [8, 16, 16]
    assert server.peak == 16
    assert ledger.snapshot().lanes[0].slots == 16


def test_slots_that_the_user_gave_are_all_used_at_once():
    """A user's own number of slots is not ramped up to, and not lowered because replies take longer."""
    server = OneByOne(1)
    execute(plan_of(texts(64), [lane(server, max_concurrency=16)]))
    assert times(server).count(0) == 16
    assert server.peak == 16
    assert server.in_flight == 0


def test_retry_after_beyond_the_deadline_stops_the_provider():
    """A rate limit that asks for more than the deadline ends the provider for this run, kind rate_limited."""
    script = Script(always(replace(LIMITED, retry_after=1000.0)))
    ledger = execute(plan_of(texts(9), [lane(script, max_concurrency=2)]))
    assert len(script.requests) == 2
    assert set(kinds(ledger)) == {"rate_limited"}
    assert ledger.snapshot().lanes[0].stopped.kind == "rate_limited"


def test_the_last_attempt_is_cut_at_the_deadline():
    """An attempt may take timeout seconds, but none goes on beyond the row's deadline."""
    script = Script(always(completion("x"), seconds=1000.0))
    ledger = execute(plan_of(["t"], [lane(script, timeout=60.0, deadline=100.0)]))
    assert [request.timeout for request in script.requests] == [60.0, pytest.approx(39.0)]
    assert kinds(ledger) == ["timeout"]
    assert ledger.ended == pytest.approx(100.0)


def test_queueing_does_not_count_for_the_deadline():
    """A unit's time runs from its first attempt, however long it queued behind others."""
    script = Script(always(completion("x"), seconds=9.0))
    ledger = execute(plan_of(texts(20), [lane(script, max_concurrency=1, deadline=10.0)]))
    assert kinds(ledger) == [None] * 20


def test_a_standstill_before_the_first_attempt_does_not_count_for_the_deadline():
    """A unit that was let in and not sent yet when the process stopped has all of its time when that goes on."""

    class Stopped(Script):
        async def open(self):
            await super().open()
            loop = asyncio.get_running_loop()
            loop.call_soon(setattr, loop._virtual, "now", 700.0)

    script = Stopped()
    ledger = execute(plan_of(["t"], [lane(script, deadline=600.0)]))
    assert [request.timeout for request in script.requests] == [60.0]
    assert kinds(ledger) == [None]


def test_a_row_that_waits_for_a_paused_lane_ends_at_its_deadline():
    """A row to be asked again does not outlive its deadline because others' hints pause the lane."""
    hint = replace(LIMITED, retry_after=9.0)

    def says(question, asked):
        return (1.0, SERVER) if question.row == "t0" else (float(question.row[1:]) * 4, hint)

    lanes = [lane(Script(says), max_concurrency=3, deadline=11.0)]
    ledger = execute(plan_of(texts(3), lanes), jitter=1.0)
    assert kinds(ledger)[0] == "server"
    ended = [end for unit, end in zip(ledger.attempts.unit, ledger.attempts.ended, strict=True) if unit == 0]
    assert ended[-1] <= 11.0
    assert ledger.ended <= 8 + 11.0


def test_a_deadline_passes_while_a_row_waits_to_be_asked_once_more():
    """A row whose time is up while it waits for the gate is sent no more, and says so."""
    script = Script(in_turn(completion(BAD)))
    ledger = execute(plan_of(["t"], [lane(script, rpm=1.0, deadline=30.0)]))
    assert len(script.requests) == 1
    assert kinds(ledger) == ["timeout"]
    assert "deadline=30" in ledger.messages[0]
    assert ledger.ended == pytest.approx(30.0)


# ---- once more, with room or with a complaint --------------------------------------------------


def test_a_cut_reply_is_asked_again_once_with_more_room():
    """A reply cut at its cap is asked again with the same messages and more room, then it is truncated."""
    script = Script(lambda question, asked: (0.0, completion("tr", finish=Finish.TRUNCATED)))
    ledger = execute(plan_of(["t"], [lane(script)]))
    first, second = [request.questions[0] for request in script.requests]
    assert (first.room, first.turns, first.complaint) == (1, (), None)
    assert second == first._replace(room=second.room)
    assert second.room > 1
    assert kinds(ledger) == ["truncated"]


def test_more_room_heals_a_cut_reply():
    """The second reply, if whole, is the answer."""
    script = Script(in_turn(completion("tr", finish=Finish.TRUNCATED)))
    assert execute(plan_of(["t"], [lane(script)])).values == ["t"]


def test_an_invalid_answer_is_asked_again_once_with_the_complaint():
    """A reply that is no answer is complained about once, then it is invalid_answer."""
    script = Script(always(completion(BAD)))
    ledger = execute(plan_of(["t"], [lane(script)]))
    first, second = [request.questions[0] for request in script.requests]
    assert (first.turns, first.complaint) == ((), None)
    assert second.complaint == BAD
    assert [turn.role for turn in second.turns] == ["assistant", "user"]
    assert BAD in second.turns[-1].text
    assert kinds(ledger) == ["invalid_answer"]


def test_room_and_complaint_do_not_forget_each_other():
    """A cut reply and a bad one each get their second chance, the later with what the earlier brought."""
    script = Script(in_turn(completion("tr", finish=Finish.TRUNCATED), completion(BAD), SERVER))
    assert execute(plan_of(["t"], [lane(script)])).values == ["t"]
    last = script.requests[-1].questions[0]
    assert (last.room > 1, last.complaint) == (True, BAD)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (completion("no", finish=Finish.REFUSED), "refused"),
        (completion("no", finish=Finish.FILTERED), "filtered"),
        (REFUSED, "refused"),
        (RuntimeError("a crash"), "internal"),
        (completion(RuntimeError("a crash in the check")), "internal"),
    ],
)
def test_what_concerns_one_row_ends_that_row_only(line, kind):
    """A refusal, a filter or a crash is asked once, is its row's kind, and the run goes on."""
    script = Script(lambda question, asked: (0.0, line if question.row == "t1" else completion(question.row)))
    ledger = execute(plan_of(texts(4), [lane(script, max_concurrency=2)]))
    assert kinds(ledger) == [None, kind, None, None]
    assert len(script.requests) == 4


def test_a_caller_that_miscounts_harms_its_rows_only():
    """Fewer results than questions are nobody's answers."""

    class Miscounting(Script):
        async def carry(self, questions, timeout):
            results = await super().carry(questions, timeout)
            return results[1:] if "t0" in self.requests[-1].rows else results

    ledger = execute(plan_of(texts(6), [lane(Miscounting(batch=3), max_concurrency=1)]))
    assert kinds(ledger) == ["internal"] * 3 + [None] * 3


# ---- stopping a provider -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auth", "config", "quota"])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_a_fault_of_the_provider_stops_it(kind, slots):
    """A fault that concerns every row is met by as many requests as slots, and then by nobody."""
    script = Script(always(replace(AUTH, kind=kind), seconds=1.0))
    other = Script()
    lanes = [lane(script, name="a", max_concurrency=slots), lane(other, name="b", max_concurrency=1)]
    ledger = execute(plan_of(texts(40), lanes, A, B, codes=[0, 1] * 20))
    assert len(script.requests) <= slots
    assert kinds(ledger) == [kind, None] * 20
    assert len(other.requests) == 20
    assert ledger.snapshot().lanes[0].stopped.kind == kind
    assert "a was stopped" in ledger.messages[38]


def test_a_balance_goes_on_without_the_stopped_provider():
    """Rows that another provider of their set may answer are answered by it, those in flight too."""
    broken, good = Script(always(AUTH, seconds=1.0)), Script()
    lanes = [lane(broken, name="a", max_concurrency=3), lane(good, name="b", max_concurrency=1)]
    words = texts(12)
    ledger = execute(plan_of(words, lanes, BOTH))
    assert ledger.values == words
    assert len(broken.requests) == 3
    assert set(ledger.lane) == {1}


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_requests_called_invalid_stop_a_provider_that_never_answered(slots):
    """Where every request is called invalid, at most max(3, slots) are sent."""
    script = Script(lambda question, asked: (1.0 + int(question.row[1:]) / 100, INVALID_REQUEST))
    ledger = execute(plan_of(texts(60), [lane(script, max_concurrency=slots)]))
    assert len(script.requests) <= max(3, slots)
    assert set(kinds(ledger)) == {"config"}


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_invalid_requests_are_their_rows_fault_where_others_succeed(slots):
    """Once one answer came well, any number of invalid requests stop nothing."""
    script = Script(
        lambda question, asked: (1.0, completion("x") if int(question.row[1:]) % 10 == 2 else INVALID_REQUEST)
    )
    ledger = execute(plan_of(texts(40), [lane(script, max_concurrency=slots)]))
    assert Counter(kinds(ledger)) == {"config": 36, None: 4}


@pytest.mark.parametrize("slots", [1, 4])
def test_doubt_about_a_provider_never_stalls_it(slots):
    """Invalid requests among transient failures hold nothing back for good."""

    def says(question, asked):
        number = int(question.row[1:])
        return 1.0 + number / 10, INVALID_REQUEST if number in (1, 3) else SERVER if asked < 2 else completion("x")

    ledger = execute(plan_of(texts(12), [lane(Script(says), max_concurrency=slots)]))
    assert Counter(kinds(ledger)) == {"config": 2, None: 10}


def test_a_server_never_reached_stops_fast():
    """No connection at first contact stops the provider at once."""
    script = Script(always(UNREACHED))
    ledger = execute(plan_of(texts(20), [lane(script, max_concurrency=2)]))
    assert len(script.requests) == 2
    assert set(kinds(ledger)) == {"connection"}


def test_a_server_reached_before_is_tried_again():
    """No connection after an answer, be it an error, is a moment's trouble."""
    script = Script(in_turn(SERVER, UNREACHED, UNREACHED))
    assert execute(plan_of(["t"], [lane(script)])).values == ["t"]


def test_a_provider_that_cannot_open_is_stopped():
    """What goes wrong before the first question is the kind of all its rows; a fallback takes them."""

    class Broken(Script):
        async def open(self):
            raise OSError("no model file")

    broken, good = Broken(), Script(opening=5.0)
    lanes = [lane(broken, name="a"), lane(good, name="b")]
    ledger = execute(plan_of(texts(4), lanes, A, Fallback((A, B)), codes=[0, 1, 0, 1]))
    assert kinds(ledger) == ["config", None, "config", None]
    assert "no model file" in ledger.messages[0]
    assert times(good) == [5, 5]


def test_a_provider_that_opens_slowly_delays_its_own_rows_only():
    """Another lane's rows are asked at once."""
    slow, quick = Script(opening=100.0), Script()
    lanes = [lane(slow, name="a"), lane(quick, name="b")]
    execute(plan_of(texts(2), lanes, A, B, codes=[0, 1]))
    assert (times(slow), times(quick)) == ([100], [0])


# ---- itineraries -------------------------------------------------------------------------------


def test_a_fallback_asks_the_next_where_the_first_failed():
    """Rows the first could not answer go to the second, nobody else does."""
    first = Script(lambda question, asked: (1.0, REFUSED if question.row == "t1" else completion("first")))
    second = Script(always(completion("second")))
    lanes = [lane(first, name="a"), lane(second, name="b")]
    ledger = execute(plan_of(texts(3), lanes, Fallback((A, B))))
    assert ledger.values == ["first", "second", "first"]
    assert [request.rows for request in second.requests] == [("t1",)]
    assert list(ledger.lane) == [0, 1, 0]


@pytest.mark.parametrize(("confidence", "asked"), [(0.9, 0), (0.8, 0), (0.5, 3), (None, 3)])
def test_a_cascade_goes_on_below_its_bar(confidence, asked):
    """A confidence below the bar, or none, asks the next stage, whose answer stands."""
    first, second = Script(always(completion("first"))), Script(always(completion("second")))
    lanes = [lane(first, name="a"), lane(second, name="b")]
    ledger = execute(plan_of(texts(3), lanes, Cascade((A, B), (0.8,)), confidence=confidence))
    assert len(second.requests) == asked
    assert set(ledger.values) == {"second" if asked else "first"}


def test_a_panel_asks_all_and_counts():
    """Every member is asked once, and the majority's answer counts."""
    scripts = [Script(always(completion(word))) for word in ("x", "y", "y")]
    lanes = [lane(script, name=name) for script, name in zip(scripts, "abc", strict=True)]
    ledger = execute(plan_of(["t"], lanes, Panel((A, B, Seat(frozenset({2}))))))
    assert [len(script.requests) for script in scripts] == [1, 1, 1]
    assert (ledger.values, list(ledger.lane)) == (["y"], [1])
    assert ledger.confidence[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("node", _NODES, ids=str)
def test_a_dead_route_ends_every_row(node):
    """Where every provider is stopped each row ends with the kind that stopped it, whatever the route."""
    scripts = [Script(always(AUTH, seconds=1.0)) for _ in seats_of(BOTH) * 2]
    lanes = [lane(script, name=name, max_concurrency=2) for script, name in zip(scripts, "ab", strict=True)]
    ledger = execute(plan_of(texts(30), lanes, node))
    assert set(kinds(ledger)) == {"auth"}
    assert all(len(script.requests) <= 3 for script in scripts)


# ---- limits ------------------------------------------------------------------------------------


def test_a_row_larger_than_tpm_is_too_large():
    """A row that can never fit is an error of its own and is not sent; the others are."""
    script = Script()
    words = ["short", "x" * 4000, "short too"]
    ledger = execute(plan_of(words, [lane(script, tpm=1000.0)]))
    assert kinds(ledger) == [None, "too_large", None]
    assert "tpm=1000" in ledger.messages[1]
    assert len(script.requests) == 2


def test_a_row_too_large_for_one_goes_to_the_other_of_its_set():
    """In a balance a row is too large only if nobody in it may take it."""
    small, large = Script(always(completion("small"))), Script(always(completion("large")))
    lanes = [lane(small, name="a", tpm=1000.0), lane(large, name="b", tpm=100_000.0)]
    ledger = execute(plan_of(["x" * 4000, "x" * 400_000], lanes, BOTH))
    assert ledger.values[0] == "large"
    assert kinds(ledger) == [None, "too_large"]
    assert small.requests == []


@pytest.mark.parametrize(("limit", "most"), [({"rpm": 60.0}, 60), ({"tpm": 201.0 * 70}, 70)])
def test_a_minute_holds_no_more_than_its_limit(limit, most):
    """In any half-open 60 seconds no more leaves than the limit, retries included, and not all of it at once."""
    script = Script(
        lambda question, asked: (0.25, SERVER if question.row.endswith("7") and not asked else completion("x"))
    )
    execute(plan_of(texts(150), [lane(script, max_concurrency=50, **limit)]))
    at = [request.at for request in script.requests]
    for first in at:
        assert sum(first <= other < first + 60 for other in at) <= most
        assert sum(first <= other < first + 1 - 1e-6 for other in at) <= 2
    assert at[-1] < 200


class Strict(Script):
    """A provider that allows so many requests a second, one second's worth at once, and may tell it with each reply."""

    def __init__(self, a_second, *, tells):
        super().__init__(self._says)
        self._allowed = Quota(a_second * 60 / 0.9)  # its bucket holds nine tenths of a second
        self._allowed.per_minute = a_second * 60
        self._tells = tells
        self.refusals = 0

    def _says(self, question, asked):
        now = asyncio.get_running_loop().time()
        if self._tells:
            self.told = Allowances(requests=Allowance(self._allowed.per_minute))
        if self._allowed.wait(now):
            self.refusals += 1
            return 0.01, replace(LIMITED, retry_after=self._allowed.wait(now))
        self._allowed.take(now)
        return 0.2, completion(question.row)


@pytest.mark.parametrize(("tells", "most"), [(True, 0.01), (False, 0.03)])
def test_a_limit_the_user_did_not_give_is_learned(tells, most):
    """Told in headers or found by its refusals, a provider's limit is used nearly in full, and hardly overstepped."""
    script = Strict(20, tells=tells)
    ledger = execute(plan_of(texts(600), [lane(script, max_concurrency=16)]))
    assert set(ledger.state) == {ANSWERED}
    assert script.refusals <= most * 600
    assert ledger.ended < 600 / 20 / 0.8


def test_the_time_that_limits_took_is_counted():
    """A run knows for how many seconds a limit let nothing go, and slots that were taken are no such time."""
    slow, free = Script(), Script()
    plan = plan_of(
        texts(8),
        [lane(slow, name="slow", max_concurrency=8, rpm=60.0), lane(free, name="free", max_concurrency=1)],
        A,
        B,
        codes=[0, 1] * 4,
    )
    held = [lane.held for lane in execute(plan).snapshot().lanes]
    assert held == [pytest.approx(3.0), 0.0]


@pytest.mark.parametrize("first_slots", [2, 6])
def test_the_stricter_limit_holds_for_a_shared_budget(first_slots):
    """Two runs on one budget together never exceed the stricter of their limits, and both end."""
    script = Script()
    budget = (object(),)
    plans = [
        plan_of(texts(count), [lane(script, budget=budget, max_concurrency=slots)])
        for count, slots in ((10, first_slots), (20, 4))
    ]
    pairs = [start(plan) for plan in plans]

    async def both():
        await asyncio.gather(*(execution.run() for execution, _ in pairs))

    script.close = lambda: None
    run(both())
    assert all(ledger.values == list(plan.texts) for (_, ledger), plan in zip(pairs, plans, strict=True))
    assert gate_of(budget).in_flight == 0
    joint = [request for request in script.requests if request.at < 5]
    assert max(Counter(request.at for request in joint).values()) <= min(first_slots, 4)
    assert script.peak <= 4


def test_two_runs_take_turns_at_one_slot():
    """The slot of a shared budget goes to whoever asked for it first, and so in turn."""
    order = []
    budget = (object(),)
    plans = []
    for name in "ab":

        def says(question, asked, name=name):
            order.append(name)
            return 1.0, completion("x")

        plans.append(plan_of(texts(5), [lane(Script(says), name=name, budget=budget, max_concurrency=1)]))

    async def both():
        await asyncio.gather(*(start(plan)[0].run() for plan in plans))

    run(both())
    assert "".join(order) == "aababababb"


def test_a_cancelled_run_gives_its_slots_to_the_other():
    """A run that waits for the slots of another on its budget gets them when that is cancelled."""
    budget = (object(),)
    stuck = Script(always(completion("x"), seconds=50.0))
    first, second = (
        plan_of(texts(6), [lane(script, budget=budget, max_concurrency=2, timeout=60.0)])
        for script in (stuck, Script())
    )
    (halted, _), (other, ledger) = start(first), start(second)

    async def both():
        asyncio.get_running_loop().call_at(3.0, halted.halt, "cancelled", 0.0)
        await asyncio.gather(halted.run(), other.run())
        return asyncio.get_running_loop().time()

    assert run(both()) == 6.0
    assert ledger.values == texts(6)


# ---- stop means stop ---------------------------------------------------------------------------


def test_a_halt_keeps_what_arrives_within_the_grace():
    """After a halt nothing new starts, arrivals within the grace count, and the rest is given up."""
    script = Script(lambda question, asked: (float(question.row), completion(question.row)))
    plan = plan_of(["1", "4", "6.5", "9", "2", "1"], [lane(script, max_concurrency=4)])
    ledger = execute(plan, at=[(2.5, lambda execution: execution.halt("cancelled", 2.0))])
    assert ledger.values == ["1", "4", None, None, "2", None]
    assert list(ledger.state) == [ANSWERED, ANSWERED, PENDING, PENDING, ANSWERED, PENDING]
    assert max(times(script)) < 2.5
    assert ledger.ended == 4.5
    snapshot = ledger.snapshot()
    assert (snapshot.finished, snapshot.lanes[0].in_flight, snapshot.lanes[0].requests) == ("cancelled", 0, 5)


def test_what_is_given_up_stands_in_the_attempts():
    """A request in flight when its run was stopped is an attempt of kind cancelled, at who was asked."""
    ledger = execute(
        plan_of(["t"], [lane(Script(always(completion("x"), 50.0)))]),
        at=[(3.0, lambda execution: execution.halt("cancelled", 2.0))],
    )
    assert [ERROR_KINDS[code] for code in ledger.attempts.kind] == ["cancelled"]
    assert (list(ledger.attempts.ended), list(ledger.lane)) == ([5.0], [0])


def test_a_halt_without_anything_in_flight_ends_at_once():
    """A run that only waits, to retry or for a limit, has no grace to wait for."""
    script = Script(always(replace(LIMITED, retry_after=100.0)))
    ledger = execute(plan_of(texts(3), [lane(script)]), at=[(7.0, lambda execution: execution.halt("cancelled", 2.0))])
    assert (ledger.ended, ledger.snapshot().finished) == (7.0, "cancelled")


def test_a_second_halt_leaves_at_once():
    """The second halt cuts the first one's grace short, and the first one's reason stays."""
    script = Script(always(completion("x"), seconds=50.0))
    ledger = execute(
        plan_of(texts(3), [lane(script)]),
        at=[
            (1.0, lambda execution: execution.halt("interrupted", 2.0)),
            (1.5, lambda execution: execution.halt("interrupted", 0.0)),
        ],
    )
    assert (ledger.ended, ledger.snapshot().finished) == (1.5, "interrupted")


def test_a_halt_before_the_run_begins_asks_nobody():
    """A run halted before its first step opens nothing and sends nothing."""
    script = Script()
    execution, ledger = start(plan_of(texts(3), [lane(script)]))

    async def main():
        execution.halt("cancelled", 2.0)
        await execution.run()

    run(main())
    assert (script.state, script.requests) == ("new", [])
    assert ledger.snapshot().finished == "cancelled"


def test_a_halt_while_a_provider_opens_ends_within_the_grace():
    """A model that loads for minutes does not keep a stopped run."""
    script = Script(opening=100.0)
    ledger = execute(plan_of(texts(3), [lane(script)]), at=[(1.0, lambda execution: execution.halt("cancelled", 2.0))])
    assert (ledger.ended, script.requests) == (3.0, [])


def test_a_halt_in_the_moment_of_sending_sends_nothing():
    """Requests let in but not begun when the halt comes are not sent, and their slots are free again."""
    script = Script()
    execution, ledger = start(plan_of(texts(9), [lane(script, max_concurrency=5)]))
    begin = execution._start

    def begin_and_halt(work):
        begin(work)
        if work.__name__ == "_work":
            execution.halt("cancelled")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "_start", begin_and_halt)
        run(execution.run())
    assert (script.state, script.requests) == ("closed", [])
    assert gate_of(execution._plan.lanes[0].budget).in_flight == 0
    assert ledger.snapshot().finished == "cancelled"


def test_a_function_that_will_not_be_cancelled_does_not_hold_the_run():
    """A request that swallows its cancellation is left behind, and what it brings later is dropped."""

    class Stubborn(Script):
        async def carry(self, questions, timeout):
            try:
                await asyncio.sleep(50.0)
            except asyncio.CancelledError:
                await asyncio.sleep(20.0)
            return [completion("late")] * len(questions)

    execution, ledger = start(plan_of(["t"], [lane(Stubborn())]))

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_at(1.0, execution.halt, "cancelled", 2.0)
        await execution.run()
        ended = loop.time()
        await asyncio.sleep(100.0)
        return ended

    assert run(main()) < 3.5
    assert (list(ledger.state), len(ledger.attempts)) == ([PENDING], 0)
    assert gate_of(execution._plan.lanes[0].budget).in_flight == 0


def test_raise_on_error_keeps_what_is_in_flight():
    """At the first error nothing new is sent, and answers on their way are kept however long they take."""
    script = Script(
        lambda question, asked: (1.0, REFUSED) if question.row == "t0" else (30.0, completion(question.row))
    )
    ledger = execute(plan_of(texts(9), [lane(script, max_concurrency=3)]), raise_on_error=True)
    assert len(script.requests) == 3
    assert list(ledger.state) == [FAILED, ANSWERED, ANSWERED] + [PENDING] * 6
    assert (ledger.first_failed, ledger.ended, ledger.snapshot().finished) == (0, 30.0, "raised")


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**9),
    when=st.floats(0, 60),
    grace=st.sampled_from([None, 0.0, 2.0]),
    code=st.integers(0, len(_NODES) - 1),
)
def test_a_halt_at_any_moment_is_clean(seed, when, grace, code):
    """Whenever it comes, nothing is sent after a halt, no task and no slot is kept, and no answer is on a wrong row."""
    scripts = [Script(chaos(f"{seed} {which}"), batch=which + 1) for which in range(2)]
    lanes = [lane(script, name=name, max_concurrency=2) for script, name in zip(scripts, "ab", strict=True)]
    words = texts(30)
    plan = plan_of(words, lanes, _NODES[code])
    ledger = execute(plan, at=[(when, lambda execution: execution.halt("cancelled", grace))], jitter=0.3)
    assert all(request.at <= when for script in scripts for request in script.requests)
    assert all(value in (None, word) for value, word in zip(ledger.values, words, strict=True))
    if grace is not None:
        assert ledger.ended <= when + grace + 0.2
    assert [part.in_flight for part in ledger.snapshot().lanes] == [0, 0]


def test_a_crash_of_the_engine_itself_is_raised():
    """A fault that no row explains ends the run with that fault instead of hanging."""
    plan = plan_of(texts(3), [lane(Script(always(replace(SERVER, kind="no such kind"))))])
    with pytest.raises(KeyError, match="no such kind"):
        execute(plan)


def test_row_order_is_kept_in_the_queue():
    """Units are asked in row order, across all queues a lane serves."""
    script = Script()
    other = Script()
    lanes = [lane(script, name="a", max_concurrency=1), lane(other, name="b", max_concurrency=1)]
    execute(plan_of(texts(8), lanes, A, BOTH, codes=[0, 1] * 4))
    rows = [int(request.rows[0][1:]) for request in script.requests]
    assert all(a < b for a, b in itertools.pairwise(rows))


# ---- paid once ---------------------------------------------------------------------------------


@pytest.fixture
def no_threads(monkeypatch):
    """Look-ups happen at once: virtual time waits for no thread."""
    monkeypatch.setattr(memory, "in_thread", at_once)


def kept_lanes(scripts, **settings):
    return [
        lane(script, name=name, fingerprint=name.encode(), **settings)
        for script, name in zip(scripts, "ab", strict=False)
    ]


def test_an_answer_is_written_before_it_is_shown(no_threads):
    """While the disk is slow an answer stays unseen, and the run ends when it is written."""
    script, shelf = Script(), Shelf(delay=5.0)
    plan = plan_of(["t"], kept_lanes([script]))
    execution, ledger = start(plan, shelf=shelf)
    seen = []

    async def main():
        for at in (1.5, 5.5, 6.5):
            asyncio.get_running_loop().call_at(at, lambda: seen.append((ledger.state[0], len(shelf.entries))))
        await asyncio.gather(execution.run(), asyncio.sleep(7))

    run(main())
    assert seen == [(PENDING, 0), (PENDING, 0), (ANSWERED, 1)]
    assert ledger.ended - ledger.began == 6


def test_a_slot_is_free_while_an_answer_is_written(no_threads):
    """The next request does not wait for the disk."""
    script = Script()
    execute(plan_of(texts(3), kept_lanes([script], max_concurrency=1)), shelf=Shelf(delay=50.0))
    assert times(script) == [0, 1, 2]


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    when=st.floats(0, 40),
    code=st.integers(0, len(_NODES) - 1),
    confidence=st.sampled_from([None, 0.5, 0.85]),
    count=st.integers(1, 8),
)
def test_a_run_after_a_halt_asks_only_for_what_is_missing(seed, when, code, confidence, count):
    """Whatever the route, and whenever it was stopped: no provider is asked again for what it answered."""
    shelf, words = Shelf(delay=0.3), texts(count)
    shaky = [Script(chaos(f"{seed} {which}")) for which in "ab"]
    plan = plan_of(words, kept_lanes(shaky, max_retries=1), _NODES[code], confidence=confidence)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "in_thread", at_once)
        execute(plan, shelf=shelf, at=[(when, lambda execution: execution.halt("interrupted", 1.0))])
        answered = shelf.answers()
        sound = [Script(), Script()]
        again = plan_of(words, kept_lanes(sound), _NODES[code], confidence=confidence)
        ledger = execute(again, shelf=shelf)
        assert ledger.values == words
        asked = [(name, row) for script, name in zip(sound, "ab", strict=True) for row in rows_of(script)]
        assert not set(asked) & set(answered)
        third = [Script(), Script()]
        final = execute(plan_of(words, kept_lanes(third), _NODES[code], confidence=confidence), shelf=shelf)
        assert final.values == words
        assert [len(script.requests) for script in third] == [0, 0]
        assert final.snapshot().reused == count


def rows_of(script):
    return [row for request in script.requests for row in request.rows]


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
def test_only_answers_are_kept(seed, count):
    """Failures, refusals, cut replies and invalid answers are in no journal."""
    shelf, words = Shelf(), texts(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "in_thread", at_once)
        ledger = execute(plan_of(words, kept_lanes([Script(chaos(seed))], max_retries=1)), shelf=shelf)
    answered = [word for unit, word in enumerate(words) if ledger.state[unit] == ANSWERED]
    assert shelf.answers() == sorted(("a", word) for word in answered)


def test_answers_that_may_not_be_kept_are_shown_at_once(no_threads):
    """A provider whose answers are not journaled is neither looked up nor written down."""
    shelf = Shelf(delay=9.0)
    for _ in range(2):
        ledger = execute(plan_of(texts(2), [lane(script := Script())]), shelf=shelf)
        assert len(script.requests) == 2
        assert ledger.ended - ledger.began == 1
    assert shelf.entries == {}


def test_refresh_asks_all_again_and_replaces(no_threads):
    """Without recall everything is asked again, and the new answer stands in the old one's place."""
    shelf = Shelf()
    for said in ("old", "new"):
        script = Script(always(completion(said)))
        execute(plan_of(texts(2), kept_lanes([script])), shelf=shelf, recall=False)
        assert len(script.requests) == 2
        assert shelf.answers() == [("a", said)] * 2


def test_what_arrives_within_the_grace_is_kept(no_threads):
    """An answer that comes after the stop is written, and its row is answered."""
    shelf, script = Shelf(delay=0.5), Script(always(completion("late"), seconds=3.0))
    plan = plan_of(texts(2), kept_lanes([script], max_concurrency=1))
    ledger = execute(plan, shelf=shelf, at=[(2.0, lambda execution: execution.halt("interrupted", 2.0))])
    assert shelf.answers() == [("a", "late")]
    assert list(ledger.state) == [ANSWERED, PENDING]
    assert ledger.ended - ledger.began == 3.5


def test_what_is_not_written_at_the_end_of_the_grace_is_written_then(no_threads):
    """A slow disk does not lose what has arrived: the end of a run waits for it a little."""
    shelf, script = Shelf(delay=60.0), Script()
    ledger = execute(
        plan_of(["t"], kept_lanes([script])),
        shelf=shelf,
        at=[(1.5, lambda execution: execution.halt("interrupted", 2.0))],
    )
    assert shelf.answers() == [("a", "t")]
    assert (ledger.state[0], ledger.ended - ledger.began) == (ANSWERED, 3.5)


def test_a_halt_does_not_wait_for_a_look_up(monkeypatch):
    """A run that is stopped while the disk is searched ends at once."""

    async def stuck(function, *args):
        await asyncio.sleep(1_000)

    monkeypatch.setattr(memory, "in_thread", stuck)
    script = Script()
    ledger = execute(
        plan_of(texts(3), kept_lanes([script])),
        shelf=Shelf(),
        at=[(4.0, lambda execution: execution.halt("interrupted", 2.0))],
    )
    assert ledger.ended - ledger.began == 4
    assert script.requests == []


def test_many_answers_from_memory_leave_the_loop_to_others(no_threads):
    """Thousands of remembered answers are taken up in turns, between which other work goes on."""
    shelf, words = Shelf(), texts(5_000)
    execute(plan_of(words, kept_lanes([Script()], max_concurrency=5_000)), shelf=shelf)
    execution, ledger = start(plan_of(words, kept_lanes([Script()])), shelf=shelf)
    seen = set()

    async def watch():
        while ledger.ended is None:
            seen.add(ledger.snapshot().reused)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(execution.run(), watch())

    run(main())
    assert ledger.values == words
    assert seen >= {0, 1_999, 3_999}


def test_a_fault_behind_a_written_answer_ends_its_row_only(no_threads):
    """Where an itinerary cannot go on from an answer, its row says so and the run goes on."""
    plan = plan_of(texts(3), kept_lanes([Script(), Script()]), Cascade((A, B), (0.8,)), confidence="very sure")
    ledger = execute(plan, shelf=Shelf())
    assert ledger.snapshot().finished == "done"


# ---- money and time ----------------------------------------------------------------------------

PRICE = Price(2.0, 8.0)


def billed(seed, system=150):
    """Honest usage: a system text of so many tokens, at most a token for each byte of the rest, output within the cap.

    Some requests fail, some replies are cut or invalid, all in ways that depend on the row and the attempt only.
    """

    def says(question, asked):
        rng = Random(f"{seed} {question.row} {asked}")
        own = len(question.row) + sum(len(turn.text) for turn in question.turns)
        usage = Usage(system + rng.choice([0, own // 4, own]), rng.randint(1, 100 * question.room))
        line = rng.choice([
            completion(question.row)._replace(usage=usage), completion(question.row)._replace(usage=usage),
            completion(BAD)._replace(usage=usage), completion("", finish=Finish.TRUNCATED)._replace(usage=usage),
            completion("", finish=Finish.REFUSED)._replace(usage=usage), SERVER, LIMITED,
        ])  # fmt: skip
        return rng.choice([0.1, 1.0, 5.0]), line

    return says


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 40),
    slots=st.integers(1, 16),
    max_cost=st.floats(1e-5, 0.05),
    lanes=st.integers(1, 2),
    system=st.integers(1, 400),
)
def test_max_cost_holds(seed, count, slots, max_cost, lanes, system):
    """With honest usage no more is spent than allowed, whatever is in flight, is cut, asked again or fails."""
    scripts = [Script(billed(f"{seed} {which}", system)) for which in range(lanes)]
    specs = [lane(script, name=f"{which}", price=PRICE, max_concurrency=slots) for which, script in enumerate(scripts)]
    budget = Budget(max_cost)
    ledger = execute(plan_of(texts(count), specs), budget=budget)
    spent = sum(ledger.attempts.cost)
    assert spent <= max_cost * (1 + 1e-9)
    assert abs(budget.spent - spent) < 1e-12
    assert budget.reserved < 1e-12
    snapshot = ledger.snapshot()
    assert snapshot.done == count or snapshot.finished == "max_cost"


def test_a_budget_that_suffices_is_not_felt():
    """With money enough all slots are used and every row is answered."""
    script = Script()
    ledger = execute(plan_of(texts(20), [lane(script, price=PRICE, max_concurrency=7)]), budget=Budget(1.0))
    assert (script.peak, ledger.snapshot().answered) == (7, 20)


def test_what_a_provider_adds_is_learned_from_its_first_reply():
    """A request that has more tokens than could be foreseen raises what is reserved for the next."""
    script = Script(lambda question, asked: (1.0, completion(question.row)._replace(usage=Usage(5_000, 1))))
    budget = Budget(0.0125)
    execute(plan_of(texts(9), [lane(script, price=PRICE, max_concurrency=1)]), budget=budget)
    assert len(script.requests) == 1
    assert budget.spent <= budget.max_cost


def test_a_complaint_costs_its_tokens():
    """A row that is asked again with a complaint is reserved for at its new length."""

    def says(question, asked):
        own = len(question.row) + sum(len(turn.text) for turn in question.turns)
        return 1.0, completion(BAD if not asked else "t")._replace(usage=Usage(400 + own, 100 if asked else 1))

    budget = Budget((402 * 2 + 8 + 404 * 2 + 800 + 12) / 1e6)
    execute(plan_of(["t0"], [lane(script := Script(says), price=PRICE)]), budget=Budget(1.0))
    assert len(script.requests) == 2
    execute(plan_of(["t0"], [lane(script := Script(says), price=PRICE)]), budget=budget)
    assert budget.spent <= budget.max_cost
    assert len(script.requests) == 1


def test_what_was_learned_of_requests_is_forgotten_when_they_change():
    """A model that is asked in another manner may count other tokens for it."""
    adapted = Failure("config", "no", Scope.ROW, 400, adapted="asked otherwise")
    lines = [
        completion("t0")._replace(usage=Usage(400, 1)), adapted, completion("t1")._replace(usage=Usage(900, 1)),
    ]  # fmt: skip
    script = Script(lambda question, asked: (1.0, lines[len(script.requests) - 1]))
    budget = Budget((400 * 2 + 8 + 402 * 2 + 800 + 10) / 1e6)
    execute(plan_of(texts(2), [lane(script, price=PRICE, max_concurrency=1)]), budget=Budget(1.0))
    assert len(script.requests) == 3
    script.requests.clear()
    script.state = "new"
    execute(plan_of(texts(2), [lane(script, price=PRICE, max_concurrency=1)]), budget=budget)
    assert budget.spent <= budget.max_cost
    assert len(script.requests) == 2


def test_slots_come_back_with_the_money():
    """When requests turn out cheaper than was reserved for them, more are sent at once again."""
    script = Script(lambda question, asked: (1.0, completion(question.row)._replace(usage=Usage(40, 1))))
    # Two first requests fit, at 600 tokens and an answer of 100; later ones are known to be smaller.
    budget = Budget((2 * 700 * 2.0 + 2 * 100 * 8.0) / 1e6)
    ledger = execute(plan_of(texts(20), [lane(script, price=PRICE, max_concurrency=4)]), budget=budget)
    at_once = [times(script).count(moment) for moment in sorted(set(times(script)))]
    assert at_once[0] == 2
    assert at_once[1] > 2
    assert ledger.snapshot().answered > 10


def test_room_to_think_does_not_eat_up_a_small_budget():
    """Where the cap is far above what replies need, it is lowered, and the money goes as far as it can."""
    script = Script(lambda question, asked: (1.0, completion(question.row)._replace(usage=Usage(40, 10))))
    script.reply_tokens = 40_000
    # A request at its cap could cost 0.32 USD.
    budget = Budget(0.01)
    ledger = execute(plan_of(texts(99), [lane(script, price=PRICE, max_concurrency=4)]), budget=budget)
    assert script.reply_tokens == 100
    assert script.peak == 4
    assert 0.008 < budget.spent <= 0.01
    assert ledger.snapshot().finished == "max_cost"


def cut_at(cap, tokens):
    """A reply of so many tokens, cut if that is more than it may have."""
    if tokens > cap:
        return Completion(Text("part"), Usage(40, cap), finish=Finish.TRUNCATED)
    return completion("whole")._replace(usage=Usage(40, tokens))


@pytest.mark.parametrize("max_cost", [0.07, 0.1, 0.5])
def test_a_long_answer_is_not_cut_twice_because_money_is_short(max_cost):
    """A cap that was lowered to spare money fails no row: what was cut gets the room it would have had without."""

    def says(question, asked):
        tokens = 1_500 if question.row in ("t7", "t23") else 10
        return 1.0, cut_at(script.reply_tokens * question.room, tokens)

    script = Script(says)
    script.reply_tokens = 4_000  # with which a request may cost 0.032 USD
    ledger = execute(plan_of(texts(40), [lane(script, price=PRICE, max_concurrency=8)]), budget=Budget(max_cost))
    assert list(ledger.state) == [ANSWERED] * 40
    assert len(script.requests) <= 42


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 30),
    slots=st.integers(1, 10),
    max_cost=st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.5]),
    cap=st.sampled_from([100, 1_000, 4_000, 40_000]),
    prices=st.lists(st.sampled_from([PRICE, Price(0.02, 0.08), Price(20.0, 80.0)]), min_size=1, max_size=2),
)
def test_no_row_fails_for_a_cap_that_was_lowered(seed, count, slots, max_cost, cap, prices):
    """Whatever answers need, no more is spent than allowed, and only what is too long without a budget is truncated."""
    rng = Random(seed)
    needs = {text: rng.choice([10, 10, 10, 90, 390, 1_500, 6_000]) for text in texts(count)}
    scripts = []

    def says(place):
        return lambda question, asked: (
            rng.choice([0.5, 1.0, 1.0, 3.0]),
            cut_at(scripts[place].reply_tokens * question.room, needs[question.row]),
        )

    for place in range(len(prices)):
        scripts.append(Script(says(place)))
        scripts[-1].reply_tokens = cap
    specs = [
        lane(script, name=f"{place}", price=price, max_concurrency=slots)
        for place, (script, price) in enumerate(zip(scripts, prices, strict=True))
    ]
    ledger = execute(plan_of(texts(count), specs), budget=Budget(max_cost))
    assert sum(ledger.attempts.cost) <= max_cost * (1 + 1e-9)
    failed = [text for text, state in zip(texts(count), ledger.state, strict=True) if state == FAILED]
    assert all(needs[text] > 4 * cap for text in failed)
    assert ledger.snapshot().finished in ("done", "max_cost")


def test_a_row_that_was_set_back_waits_for_the_other_queues_of_its_provider():
    """Where rows of several itineraries go to one provider, a cut row that is too dear comes after all of them."""

    def says(question, asked):
        return 1.0, cut_at(script.reply_tokens * question.room, 5_000 if question.row == "t1" else 10)

    script = Script(says)
    script.reply_tokens = 4_000
    lanes = [lane(script, name="a", price=PRICE), lane(Script(), name="too dear", price=Price(20_000.0, 80_000.0))]
    plan = plan_of(texts(12), lanes, A, BOTH, codes=[0] * 4 + [1] * 8)
    ledger = execute(plan, budget=Budget(0.025))
    assert [unit for unit, state in enumerate(ledger.state) if state != ANSWERED] == [1]
    assert ledger.snapshot().finished == "max_cost"


@pytest.mark.parametrize("dear_first", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_provider_that_is_too_dear_does_not_end_the_run_for_a_cheap_one(dear_first, shared):
    """While another provider can pay for its rows, the run goes on, whether they share a queue or not."""
    answer = completion("t")._replace(usage=Usage(40, 10))
    scripts = {name: Script(always(answer, seconds=1.0)) for name in "dc"}
    prices = {"d": Price(20_000.0, 80_000.0), "c": PRICE}
    lanes = [lane(scripts[name], name=name, price=prices[name]) for name in ("dc" if dear_first else "cd")]
    cheap = 1 if dear_first else 0
    seats = () if shared else (A, B)
    codes = None if shared else [cheap] * 9 + [1 - cheap]
    ledger = execute(plan_of(texts(10), lanes, *seats, codes=codes), budget=Budget(0.1))
    assert list(ledger.state[:9]) == [ANSWERED] * 9
    assert ledger.state[9] == (ANSWERED if shared else PENDING)
    assert scripts["d"].requests == []


def test_a_long_answer_that_cannot_be_paid_for_keeps_no_other_from_theirs():
    """A row whose answer was cut waits as over budget while all others are asked; the run says max_cost."""

    def says(question, asked):
        tokens = 5_000 if question.row == "t2" else 10
        return 1.0, cut_at(script.reply_tokens * question.room, tokens)

    script = Script(says)
    script.reply_tokens = 4_000
    ledger = execute(plan_of(texts(9), [lane(script, price=PRICE, max_concurrency=2)]), budget=Budget(0.02))
    assert [unit for unit, state in enumerate(ledger.state) if state == PENDING] == [2]
    assert ledger.snapshot().finished == "max_cost"
    assert sum(ledger.attempts.cost) <= 0.02


def test_a_budget_below_the_first_request_sends_nothing():
    """If the task's own answer might cost more than there is, nobody is asked."""
    script = Script()
    ledger = execute(plan_of(texts(3), [lane(script, price=PRICE)]), budget=Budget(1e-5))
    assert (script.requests, ledger.snapshot().finished) == ([], "max_cost")


def test_a_lane_waits_for_anothers_money():
    """Money that one provider gives back is spent at the other."""
    slow = Script(lambda question, asked: (5.0, completion(question.row)._replace(usage=Usage(40, 1))))
    fast = Script(lambda question, asked: (1.0, completion(question.row)._replace(usage=Usage(40, 1))))
    lanes = [lane(slow, name="a", price=PRICE, max_concurrency=1), lane(fast, name="b", price=PRICE, max_concurrency=1)]
    budget = Budget(700 * 2.0 / 1e6 + 100 * 8.0 / 1e6)
    ledger = execute(plan_of(["x", "y"], lanes, A, B, codes=[0, 1]), budget=budget)
    assert (times(slow), times(fast)) == ([0], [5])
    assert ledger.snapshot().answered == 2


def test_a_cost_that_nobody_knows_counts_as_reserved():
    """A request that timed out may have cost all that was reserved for it."""
    script = Script(always(completion("late"), seconds=90.0))
    spec = lane(script, price=PRICE, max_concurrency=1, timeout=10.0, max_retries=9)
    budget = Budget((2 * 700 * 2.0 + 2 * 100 * 8.0) / 1e6)
    ledger = execute(plan_of(["t"], [spec]), budget=budget)
    assert len(script.requests) == 2
    assert ledger.snapshot().finished == "max_cost"
    assert ledger.state[0] == PENDING


def test_requests_in_flight_are_kept_when_the_money_is_spent(no_threads):
    """What was sent before is answered and written down; the rest was not asked."""
    script, shelf = Script(lambda question, asked: (float(question.row[1:]), completion(question.row))), Shelf(0.2)
    spec = lane(script, price=PRICE, max_concurrency=3, fingerprint=b"f")
    budget = Budget((3 * 700 * 2.0 + 3 * 100 * 8.0) / 1e6)
    ledger = execute(plan_of(texts(9), [spec]), budget=budget, shelf=shelf)
    assert rows_of(script) == ["t0", "t1", "t2"]
    assert list(ledger.state) == [ANSWERED] * 3 + [PENDING] * 6
    assert [value for _, value in shelf.answers()] == ["t0", "t1", "t2"]


def test_max_seconds_stops_new_requests_and_keeps_what_is_done():
    """After max_seconds nothing is sent, not even a repetition; what is in flight still arrives."""

    def says(question, asked):
        return (2.0, completion(question.row)) if question.row != "t2" else (2.0, SERVER)

    script = Script(says)
    ledger = execute(plan_of(texts(9), [lane(script, max_concurrency=3)]), max_seconds=3.0)
    assert max(times(script)) <= 3.0
    assert ledger.ended - ledger.began == 4
    assert ledger.snapshot().finished == "max_seconds"
    assert [ledger.state[unit] for unit in (0, 1, 2, 3, 4)] == [ANSWERED, ANSWERED, PENDING, ANSWERED, ANSWERED]
    assert ledger.state.count(PENDING) == 9 - ledger.snapshot().answered


def test_a_run_that_is_complete_is_done_whatever_time_it_took():
    """Where max_seconds pass with nothing left to ask, they ended nothing."""
    ledger = execute(plan_of(texts(3), [lane(Script(lambda *_: (2.0, completion("x"))))]), max_seconds=1.0)
    assert ledger.ended - ledger.began == 2
    assert (ledger.snapshot().answered, ledger.snapshot().finished) == (3, "done")


def test_max_seconds_count_from_the_first_request_on(monkeypatch):
    """Time spent searching the journal is not taken from the rows."""

    async def slowly(function, *args):
        await asyncio.sleep(10)
        return function(*args)

    monkeypatch.setattr(memory, "in_thread", slowly)
    script = Script()
    execute(plan_of(texts(9), kept_lanes([script], max_concurrency=1)), shelf=Shelf(), max_seconds=2.5)
    assert times(script) == [10, 11, 12]


# ---- found by a second look at how runs share a budget ----------------------------------------------


def test_a_long_row_is_not_too_large_because_others_are_short():
    """Where input and output have limits of their own, a row is measured by its own mix, whatever came before it."""
    rows = [*(f"short {number}" for number in range(4)), "x" * 80_000, "y" * 80_000]
    for order in (rows, rows[::-1]):
        script = Script()
        script.reply_tokens = 1024
        script.told = Allowances(input_tokens=Allowance(50_000), output_tokens=Allowance(8_000))
        ledger = execute(plan_of(order, [lane(script, max_concurrency=1)]))
        assert set(ledger.state) == {ANSWERED}


def test_a_halted_run_holds_no_slot_for_what_it_will_not_send():
    """What a run let in at the moment it was halted gives its slot to another run at once."""

    async def main():
        shared = (object(),)
        first = Script(
            lambda question, _: (60.0, completion("x")) if question.row == "slow" else (1.0, REFUSED), batch=2
        )
        then, other = Script(), Script()
        lanes = [lane(first, name="a"), lane(then, name="b", budget=shared, max_concurrency=1)]
        plan = plan_of(["t0", "t1", "slow"], lanes, Fallback((A, B)), A, codes=[0, 1, 1])
        execution, _ = start(plan, raise_on_error=True)
        running = asyncio.get_running_loop().create_task(execution.run())
        await asyncio.sleep(2)
        assert not running.done()
        assert gate_of(shared).in_flight == 0
        assert not then.requests
        await start(plan_of(["o"], [lane(other, budget=shared, max_concurrency=1)]))[0].run()
        assert times(other) == [2.0]
        await running

    run(main())


def test_a_turn_ends_with_the_last_row_to_send():
    """A row whose time was up while it waited for tokens makes no other run wait."""

    async def main():
        limits = {"budget": (object(),), "tpm": 6000.0}
        big, slow, small = Script(always(SERVER, 1.0)), Script(always(completion("x"), 200.0)), Script()
        lanes = [lane(big, name="big", deadline=15.0, **limits), lane(slow, name="slow", timeout=300.0)]
        execution, _ = start(plan_of(["y" * 14_000, "s"], lanes, A, B, codes=[0, 1]))
        running = asyncio.get_running_loop().create_task(execution.run())
        await asyncio.sleep(20)
        await start(plan_of(texts(3), [lane(small, **limits)]))[0].run()
        assert times(small)[0] == pytest.approx(37.0)  # when the bucket is full again, and not a minute after
        running.cancel()
        await asyncio.wait([running])

    run(main())
