"""When to ask again, and when to let the next request go."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchkit._logic.pacing import GiveUp, Pace, Quota, Retry, decide
from batchkit.records import Failure, Limits, Scope

LIMITS = Limits(deadline=600.0, max_retries=5)
SERVER = Failure("server", "500", Scope.TRANSIENT, 500)
LIMITED = Failure("rate_limited", "429", Scope.TRANSIENT, 429)
OVERLOADED = Failure("server", "529", Scope.TRANSIENT, 529, overloaded=True)


class Always(Random):
    """A random number generator that draws the same number each time."""

    def __init__(self, number):
        super().__init__()
        self._number = number

    def random(self):
        return self._number


HIGHEST = Always(math.nextafter(1.0, 0.0))


def verdict_on(failure, *, retries=0, tries=1, elapsed=0.0, limits=LIMITS, rng=HIGHEST):
    return decide(failure, retries=retries, tries=tries, elapsed=elapsed, limits=limits, rng=rng)


# ---- asking again -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Scope.ROW, Scope.PROVIDER])
def test_what_is_not_transient_is_final(scope):
    """A failure that asking again cannot mend is not asked again."""
    failure = Failure("refused", "no", scope)
    assert verdict_on(failure) == GiveUp(failure)


@pytest.mark.parametrize(
    ("failure", "retries", "again"),
    [
        (SERVER, 0, True),
        (SERVER, 4, True),
        (SERVER, 5, False),
        (LIMITED, 5, True),
        (LIMITED, 500, True),
        (OVERLOADED, 500, True),
    ],
)
def test_what_uses_up_retries(failure, retries, again):
    """Only real failures count against `max_retries`: rate limits and overload are bounded by the deadline alone."""
    verdict = verdict_on(failure, retries=retries)
    assert isinstance(verdict, Retry if again else GiveUp)
    if isinstance(verdict, Retry):
        assert verdict.counts is (failure is SERVER)


def test_no_retries_means_one_attempt():
    """With `max_retries=0` a transient failure is final."""
    assert verdict_on(SERVER, limits=replace(LIMITS, max_retries=0)) == GiveUp(SERVER)


@pytest.mark.parametrize(
    ("tries", "ceiling"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (1000, 60)]
)
def test_waits_grow_to_a_minute(tries, ceiling):
    """The longest wait doubles with each attempt up to 60 seconds, and the shortest is none."""
    assert verdict_on(LIMITED, tries=tries).wait == pytest.approx(ceiling)
    assert verdict_on(LIMITED, tries=tries, rng=Always(0.0)).wait == 0.0


@pytest.mark.parametrize("failure", [SERVER, LIMITED, OVERLOADED])
@pytest.mark.parametrize(("elapsed", "again"), [(0.0, True), (598.9, True), (599.5, False), (600.0, False)])
def test_the_deadline_ends_every_row(failure, elapsed, again):
    """A row whose next attempt would begin after its deadline is given up with the failure it met."""
    verdict = verdict_on(failure, elapsed=elapsed)
    assert isinstance(verdict, Retry) if again else verdict == GiveUp(failure)


@pytest.mark.parametrize(
    ("failure", "pause"), [(LIMITED, 20.0), (OVERLOADED, 20.0), (SERVER, 0.0)], ids=["limited", "overloaded", "server"]
)
def test_retry_after_is_kept_and_pauses_the_lane(failure, pause):
    """A row waits at least as long as was asked, at most a quarter longer, and the lane as long as was asked."""
    asked = replace(failure, retry_after=20.0)
    for number in (0.0, 0.5, HIGHEST.random()):
        verdict = verdict_on(asked, rng=Always(number))
        assert 20.0 <= verdict.wait <= 25.0
        assert verdict.pause_lane == pause


@pytest.mark.parametrize("failure", [LIMITED, OVERLOADED], ids=["limited", "overloaded"])
def test_without_retry_after_only_the_row_waits(failure):
    """A provider that names no time is not paused."""
    assert verdict_on(failure).pause_lane == 0.0


def test_rows_do_not_come_back_all_at_once():
    """Rows that got the same hint wait differently long."""
    rng = Random(0)
    asked = replace(LIMITED, retry_after=20.0)
    assert len({verdict_on(asked, rng=rng).wait for _ in range(20)}) == 20


@pytest.mark.parametrize("failure", [LIMITED, OVERLOADED], ids=["limited", "overloaded"])
def test_a_pause_beyond_the_deadline_stops_the_provider(failure):
    """When every row would miss its deadline, the provider is stopped as `rate_limited`."""
    verdict = verdict_on(replace(failure, retry_after=601.0))
    assert isinstance(verdict, GiveUp)
    assert (verdict.failure.kind, verdict.failure.scope) == ("rate_limited", Scope.PROVIDER)


@pytest.mark.parametrize(("seconds", "said"), [(61, "61 s"), (900, "15 min"), (86400, "24 h")])
def test_a_pause_beyond_the_deadline_is_told(seconds, said):
    """How long the provider asks to wait is said in words, and what to do about it."""
    verdict = verdict_on(replace(LIMITED, retry_after=float(seconds)), limits=Limits(deadline=60))
    assert f"a wait of {said}, longer than deadline=60 s: run again later" in verdict.failure.message


def test_a_hint_beyond_the_deadline_after_a_failure_ends_the_row():
    """A hint that came with a mere failure concerns the row alone."""
    failure = replace(SERVER, retry_after=601.0)
    assert verdict_on(failure) == GiveUp(failure)


# ---- limits -----------------------------------------------------------------------------------


def run_through(quota, arrivals, now=0.0):
    """Let each request go as soon as it may, first come, first served; return (time, amount) pairs."""
    gone = []
    for gap, amount in arrivals:
        now += gap
        now += quota.wait(now, amount)
        quota.take(now, amount)
        gone.append((now, amount))
    return gone


def fullest(gone, seconds):
    """The largest amount in any half-open stretch of so many seconds."""
    return max(sum(part for at, part in gone if start <= at < start + seconds) for start, _ in gone)


gaps = st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.5, 1.0, 7.0, 59.9, 60.0, 61.0]) | st.floats(0, 90)


@given(
    st.sampled_from([0.5, 1, 2, 3, 10, 59, 60, 61, 100]) | st.floats(0.1, 200), st.lists(gaps, min_size=1, max_size=150)
)
@example(10, [0.0] * 40)
@example(1, [0.0, 60.0, 60.0])
def test_requests_never_exceed_the_limit_in_any_minute(per_minute, arrivals):
    """Whenever requests arrive, no half-open 60 s hold more than the limit, or one where it is below one."""
    gone = run_through(Quota(per_minute), [(gap, 1.0) for gap in arrivals])
    assert fullest(gone, 60) <= max(1, per_minute)


@given(
    st.floats(100, 100_000),
    st.lists(st.tuples(gaps, st.floats(0, 1)), min_size=1, max_size=100),
)
def test_tokens_never_exceed_the_limit_in_any_minute(per_minute, arrivals):
    """Amounts of any size up to the whole limit keep to it in every half-open 60 s."""
    gone = run_through(Quota(per_minute), [(gap, share * per_minute) for gap, share in arrivals])
    assert fullest(gone, 60) <= per_minute * (1 + 1e-6)


@given(st.floats(1, 6000), st.lists(gaps, min_size=1, max_size=150))
def test_no_burst_is_larger_than_one_seconds_worth(per_minute, arrivals):
    """At no instant leave more requests than one second allows, or one."""
    gone = run_through(Quota(per_minute), [(gap, 1.0) for gap in arrivals])
    assert fullest(gone, 1e-3) <= max(1, per_minute / 60 * (1 + 1e-3)) + 1e-6


@given(
    st.floats(0.5, 6000),
    st.lists(st.tuples(gaps, st.floats(0, 1)), max_size=60),
    st.floats(0, 1),
    st.floats(0, 1e6),
)
def test_waits_are_exact(per_minute, arrivals, share, start):
    """After waiting as long as it says nothing more is to be waited, and a little earlier it still is."""
    quota = Quota(per_minute)
    gone = run_through(quota, [(gap, part * per_minute) for gap, part in arrivals], start)
    now = gone[-1][0] if gone else start
    amount = share * per_minute
    wait = quota.wait(now, amount)
    if wait > 1e-3:
        assert quota.wait(now + wait * 0.99, amount) > 0
    assert quota.wait(now + wait, amount) == 0


def test_waiting_takes_nothing():
    """Asking how long to wait changes nothing."""
    quota = Quota(60)
    assert [quota.wait(0.0) for _ in range(5)] == [0.0] * 5
    quota.take(0.0)
    assert [quota.wait(0.0) for _ in range(5)] == [1.0] * 5


def test_the_usual_pace():
    """At 60 a minute one request leaves per second."""
    gone = run_through(Quota(60), [(0.0, 1.0)] * 5)
    assert [at for at, _ in gone] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_a_full_minute_is_followed_by_a_pause():
    """What a minute allows is never sent again before its own time has left the log."""
    gone = [at for at, _ in run_through(Quota(2), [(0.0, 1.0)] * 3)]
    assert gone == pytest.approx([0.0, 30.0, 60.5])


def test_a_large_amount_leaves_alone_and_leaves_a_debt():
    """An amount above one second's worth goes when the bucket is full, and the next waits for what it took."""
    quota = Quota(600)
    assert quota.wait(0.0, 100) == 0.0
    quota.take(0.0, 100)
    assert quota.wait(0.0, 1) == pytest.approx(9.2)


@pytest.mark.parametrize(("before", "after"), [(6000, 60), (60, 6000), (600, 1)])
def test_another_limit_keeps_what_went(before, after):
    """A changed limit holds at once, for bursts too, and counts what went under the old one."""
    quota = Quota(before)
    quota.take(0.0, 1.0)
    quota.change(after)
    gone = [(0.0, 1.0), *run_through(quota, [(0.0, 1.0)] * 120)]
    assert fullest(gone, 60) <= max(before / 60, after)
    assert fullest(gone[1:], 1e-3) <= max(1, after / 60)


def test_a_stricter_limit_holds_without_time_passing():
    """A bucket that was filled under a wider limit gives out no burst under the stricter one."""
    quota = Quota(6000)
    assert quota.wait(0.0) == 0.0
    quota.change(60)
    quota.take(0.0)
    assert quota.wait(0.0) == pytest.approx(1.0)


def test_what_was_not_used_is_given_back():
    """A corrected estimate frees the bucket and the minute at once."""
    quota = Quota(600)
    quota.take(0.0, 600.0)
    assert quota.wait(30.0, 300.0) == pytest.approx(30.5)
    quota.correct(30.0, -500.0, taken=0.0)
    assert quota.wait(30.0, 300.0) == 0.0


def test_what_was_used_beyond_the_estimate_counts():
    """A request that took more than was reserved leaves less for the others."""
    quota = Quota(600)
    quota.take(0.0, 100.0)
    quota.correct(1.0, 500.0, taken=0.0)
    assert quota.wait(30.0, 1.0) == pytest.approx(30.5)


def test_what_is_given_back_leaves_with_what_was_taken():
    """A correction made late opens no gap in the next minute."""
    quota = Quota(600)
    quota.take(0.0, 600.0)
    quota.correct(50.0, -500.0, taken=0.0)
    gone = run_through(quota, [(60.5, 300.0), (0.0, 300.0), (0.0, 300.0)])
    assert fullest(gone, 60) <= 600


def test_a_correction_of_long_ago_changes_no_minute():
    """What has left the log is not counted again."""
    quota = Quota(600)
    quota.take(0.0, 100.0)
    quota.correct(100.0, -50.0, taken=0.0)
    quota.correct(100.0, 50.0, taken=0.0)
    assert "0 in the last minute" in repr(quota)


@given(
    st.floats(600, 60_000),
    st.lists(st.tuples(gaps, st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 59)), min_size=1, max_size=60),
)
def test_corrected_tokens_never_exceed_the_limit(per_minute, requests):
    """Whatever was reserved, used and corrected when, the amounts used keep to the limit in every half-open 60 s."""
    quota = Quota(per_minute)
    now, used, open_corrections = 0.0, [], []

    def correct_until(then):
        for due in sorted(item for item in open_corrections if item[0] <= then):
            open_corrections.remove(due)
            at, amount, taken = due
            quota.correct(at, amount, taken)

    for gap, share, part, latency in requests:
        reserved = share * per_minute
        now += gap
        correct_until(now)
        while (wait := quota.wait(now, reserved)) > 0:
            now += min(wait, 0.5) if open_corrections else wait
            correct_until(now)
        quota.take(now, reserved)
        used.append((now, reserved * part))
        open_corrections.append((now + latency, reserved * (part - 1), now))
    assert fullest(used, 60) <= per_minute * (1 + 1e-6)


def test_repr_says_where_it_stands():
    """A quota shows its limit and what went lately."""
    quota = Quota(60)
    quota.take(0.0)
    assert repr(quota) == "Quota(60 per minute, 1 in the last minute)"


def test_what_a_provider_says_is_left_may_go_and_no_more():
    """Where others use the same limit, the provider's word on what is left holds; more than its own it never gives."""
    quota = Quota(600)
    quota.lower(0.0, 1.0)
    assert quota.wait(0.0) == 0.0
    quota.take(0.0)
    assert quota.wait(0.0) == pytest.approx(0.1)
    quota.lower(0.0, 500.0)
    assert quota.wait(0.0) == pytest.approx(0.1)


# ---- limits that nobody told --------------------------------------------------------------------


def ask_at_a_pace(rate, depth, slots, latency, seconds):
    """Ask a provider that lets ``rate`` a second go, ``depth`` seconds' worth at once: when each left, and its fate."""
    pace, quota = Pace(), None
    level, at, now = rate * depth, 0.0, 0.0
    on_the_way, log = [], []
    while now < seconds:
        if len(on_the_way) < slots and (quota is None or not quota.wait(now)):
            pace.sent(now)
            if quota is not None:
                quota.take(now)
            level, at = min(rate * depth, level + (now - at) * rate), now
            taken = level >= 1
            level -= taken
            log.append((now, taken))
            heapq.heappush(on_the_way, (now + (latency if taken else 0.005), now, taken))
            continue
        wait = math.inf if quota is None or len(on_the_way) == slots else quota.wait(now)
        if not on_the_way or now + wait < on_the_way[0][0]:
            now += wait
            continue
        now, sent, taken = heapq.heappop(on_the_way)
        if taken:
            changed = pace.taken(now)
        else:
            pace.refused(sent, now)
            pace.slow_down(sent, now)
            changed = pace.per_minute is not None
            now += 0.01  # as long as a row waits that was told to
        if changed:
            quota = Quota(pace.per_minute) if quota is None else quota
            quota.change(pace.per_minute)
            if not taken:
                quota.lower(now, 0.0)
    return log


@settings(deadline=None, max_examples=30)
@given(
    rate=st.floats(5, 60), slots=st.integers(16, 64), latency=st.sampled_from([0.1, 0.2, 0.5]), depth=st.floats(0.5, 2)
)
@example(rate=100.0, slots=64, latency=0.2, depth=1.0)
def test_a_limit_nobody_told_is_found(rate, slots, latency, depth):
    """A provider that refuses what comes too fast and says no more is used nearly in full, with few refusals."""
    seconds = 30.0
    log = ask_at_a_pace(rate, depth, slots, latency, seconds)
    taken = sum(fate for _, fate in log)
    possible = min(rate * seconds, slots / latency * seconds)
    assert taken > 0.75 * possible
    late = [fate for at, fate in log if at > 5]
    assert late.count(False) <= 0.1 * len(late) + 10


def slow_down(pace, sent, now, limit=None):
    pace.refused(sent, now)
    pace.slow_down(sent, now, limit)


def test_a_few_requests_say_little_about_a_pace():
    """One refusal among few requests is somebody else's doing, and hardly slows anything down."""
    pace = Pace()
    for second in range(0, 100, 20):
        pace.sent(second)
    slow_down(pace, 80, 81)
    assert pace.per_minute >= 300


def test_a_refusal_that_took_over_a_minute_to_arrive_is_one():
    """However long ago a request left, its refusal slows down."""
    pace = Pace()
    pace.sent(0)
    slow_down(pace, 0, 70)
    assert pace.per_minute == 300


def test_refusals_of_few_requests_slow_down_step_by_step():
    """Where nearly all are refused from the start the pace is halved each time, but never down to a standstill."""
    pace = Pace()
    paces = []
    for number in range(12):
        pace.sent(number)
        slow_down(pace, number, number + 0.1)
        paces.append(pace.per_minute)
    assert paces[:4] == [300, 150, 75, 37.5]
    assert paces[-1] == 10


def test_a_refusal_that_is_only_noted_slows_nothing_down():
    """A request that was one too many at once counts as not taken, and no more than that."""
    pace = Pace()
    for request in range(100):
        pace.sent(request / 100)
    for request in range(50):
        pace.refused(request / 100, 1.0)
    assert pace.per_minute is None
    slow_down(pace, 0.99, 1.0)
    assert pace.per_minute == pytest.approx(0.5 * 49 * 60)


def test_a_pace_below_a_known_limit_begins_just_under_it():
    """Where a limit was told and kept and a request was refused all the same, the pace falls by a twentieth."""
    pace = Pace()
    for request in range(100):
        pace.sent(request / 100)
    slow_down(pace, 0.99, 1.0, limit=6000)
    assert pace.per_minute == pytest.approx(5700)


def test_a_pace_that_holds_nothing_back_is_not_raised():
    """Only a pace that is kept to is tried faster."""
    pace = Pace()
    for request in range(100):
        pace.sent(request / 100)
    slow_down(pace, 0.99, 1.0)
    before = pace.per_minute
    pace.sent(5.0)
    assert not pace.taken(5.5)
    assert pace.per_minute == before
    for request in range(100):
        pace.sent(6 + request / 100)
    assert pace.taken(7.0)
    assert pace.per_minute > before
    assert "per minute" in repr(pace)
    assert repr(Pace()) == "Pace(not known)"


@pytest.mark.parametrize("latency", [0.3, 1.5, 2.0, 5.0])
def test_the_slowest_pace_is_left_again(latency):
    """However long replies take, a pace of few requests a minute is raised once none is refused any more."""
    pace, now = Pace(), 0.0
    for _ in range(20):
        pace.sent(now)
        pace.refused(now, now + 0.05)
        pace.slow_down(now, now + 0.05)
        now += 1.0
    slowest = pace.per_minute
    for _ in range(40):
        pace.sent(now)
        pace.taken(now + latency)
        now += 60 / pace.per_minute
    assert pace.per_minute > 1.5 * slowest
