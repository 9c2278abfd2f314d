"""The fold of a run's events."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.progress import (
    Attempted,
    Finished,
    Group,
    Held,
    Paused,
    Progress,
    Retrying,
    Sent,
    Settled,
    Stopped,
)
from batchkit.records import ERROR_KINDS, Failure, Limits, Scope

LANES = ("fast", "strong")
lane = st.integers(0, 1)
kind = st.none() | st.sampled_from(ERROR_KINDS)
counts = st.integers(0, 1000)
sent = st.builds(Sent, lane, st.floats(0, 100))
costs = st.none() | st.floats(0, 100)
attempted = st.builds(Attempted, lane, kind, st.floats(0, 100), st.floats(0, 100), counts, counts, costs)
settled = st.builds(Settled, lane, st.integers(1, 5), kind)
paused = st.builds(Paused, lane, st.floats(0, 100))
stopped = st.builds(Stopped, lane, st.builds(Failure, st.sampled_from(ERROR_KINDS), st.text()))
histories = st.lists(sent | attempted | settled | paused | stopped, max_size=60)


def of(events, kind, number=None):
    return [event for event in events if isinstance(event, kind) and number in (None, event.lane)]


@given(histories)
def test_a_snapshot_is_the_fold_of_its_events(events):
    """Counts, tokens and states of a snapshot are what its events add up to."""
    rows = sum(event.rows for event in of(events, Settled))
    progress = Progress(rows, LANES)
    for event in events:
        progress.fold(event)
    now = progress.snapshot()
    assert now.rows == rows
    assert now.answered == sum(event.rows for event in of(events, Settled) if event.kind is None)
    errors = Counter()
    for event in of(events, Settled):
        if event.kind is not None:
            errors[event.kind] += event.rows
    assert now.errors == errors
    assert now.failed == errors.total()
    assert now.done == now.answered + now.failed <= now.rows
    assert now.finished is None
    for number, found in enumerate(now.lanes):
        ended, done = of(events, Attempted, number), of(events, Settled, number)
        assert found.name == LANES[number]
        assert found.requests == len(ended)
        assert found.in_flight == len(of(events, Sent, number)) - len(ended)
        assert found.tokens_in == sum(event.tokens_in for event in ended)
        assert found.tokens_out == sum(event.tokens_out for event in ended)
        assert found.answered == sum(event.rows for event in done if event.kind is None)
        assert found.failed == sum(event.rows for event in done if event.kind is not None)
        assert [found.paused_until] == ([event.until for event in of(events, Paused, number)] or [None])[-1:]
        assert [found.stopped] == ([event.failure for event in of(events, Stopped, number)] or [None])[-1:]
    assert sum(found.answered + found.failed for found in now.lanes) == now.done


@given(histories, st.integers(0, 60))
def test_a_snapshot_is_of_its_moment(events, moment):
    """What happens later does not change a snapshot taken before."""
    progress, again = Progress(300, LANES), Progress(300, LANES)
    for event in events[:moment]:
        progress.fold(event)
        again.fold(event)
    before = progress.snapshot()
    for event in events[moment:]:
        progress.fold(event)
    assert before == again.snapshot()


@given(st.lists(settled, max_size=40))
def test_rows_that_are_done_only_grow_and_never_exceed_all_rows(events):
    """Progress goes one way and reaches the number of rows at the end, not before."""
    rows = sum(event.rows for event in events)
    progress, before = Progress(rows, LANES), 0
    for event in events:
        assert before < rows
        progress.fold(event)
        done = progress.snapshot().done
        assert done == before + event.rows <= rows
        before = done
    assert before == rows


@pytest.mark.parametrize("why", ["done", "cancelled", "interrupted", "raised"])
def test_the_end_is_said(why):
    """A run that ended says how."""
    progress = Progress(0, ())
    progress.fold(Finished(why, 1.0))
    assert progress.snapshot().finished == why


def test_a_fresh_run():
    """Before the first event nothing is done and nothing is in flight."""
    now = Progress(3, LANES).snapshot()
    assert (now.rows, now.done, now.finished, dict(now.errors)) == (3, 0, None, {})
    assert [found.in_flight for found in now.lanes] == [0, 0]


def test_a_stopped_lane_keeps_its_failure():
    """The failure that stopped a provider is in the snapshot."""
    progress = Progress(3, LANES)
    failure = Failure("auth", "wrong key", Scope.PROVIDER)
    progress.fold(Stopped(1, failure))
    assert [found.stopped for found in progress.snapshot().lanes] == [None, failure]


def test_who_may_still_be_asked_about_how_much():
    """Rows that are open are told by who may be asked about them, and shared ones go by what each did so far."""
    both, one = Group(frozenset({0, 1}), 8, 10), Group(frozenset({1}), 5, 5)
    progress = Progress(15, LANES, [Limits(3), Limits(1)], [both, one])
    fast, strong = progress.snapshot().lanes
    assert (fast.open_rows, fast.open_units, fast.expected) == (10, 8, 7.5)
    assert (strong.open_rows, strong.open_units, strong.expected) == (15, 13, 7.5)
    assert progress.snapshot().duplicates == 2
    progress.fold(Settled(0, 2, None, group=0))
    progress.fold(Settled(1, 1, "timeout", group=1, message="late"))
    progress.fold(Settled(1, 1, None, group=1))
    progress.fold(Settled(1, 1, None, reused=True, group=1))
    fast, strong = progress.snapshot().lanes
    assert (fast.open_rows, fast.open_units, fast.expected) == (8, 7, 4.0)
    assert (strong.open_rows, strong.expected, strong.reused, strong.settled) == (10, 6.0, 1, 2)
    progress.fold(Stopped(1, Failure("auth", "wrong key", Scope.PROVIDER)))
    assert progress.snapshot().lanes[0].expected == 8


@given(st.lists(st.builds(Settled, lane, st.just(1), kind), max_size=30))
def test_what_is_expected_of_all_is_what_is_open(events):
    """What the providers will probably settle comes to the rows that are open."""
    progress = Progress(30, LANES)
    for event in events:
        progress.fold(event._replace(group=0))
    assert sum(found.expected for found in progress.snapshot().lanes) == pytest.approx(30 - len(events))


def test_the_first_error_of_each_kind_is_the_example():
    """Of each kind of error the first message is kept."""
    progress = Progress(9, LANES)
    for kind_, message in [("server", "one"), ("server", "two"), ("timeout", "three"), ("refused", None)]:
        progress.fold(Settled(0, 1, kind_, message=message))
    assert progress.snapshot().examples == {"server": "one", "timeout": "three"}


def test_nothing_is_retried_after_the_end():
    """Rows that are asked again count until they are not, or the run is over."""
    progress = Progress(9, LANES)
    for rows in (3, 4, -3):
        progress.fold(Retrying(0, rows))
    assert progress.snapshot().lanes[0].retrying == 4
    progress.fold(Finished("cancelled", 1.0))
    assert progress.snapshot().lanes[0].retrying == 0


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=200))
def test_latencies_are_right_to_a_few_percent(seconds):
    """Quantiles of replies are within 4 % of one of the true neighbours; failures do not count."""
    progress = Progress(9, LANES)
    for taken in seconds:
        progress.fold(Attempted(0, None, 0.0, taken, 0, 0))
    progress.fold(Attempted(0, "timeout", 0.0, 10_000.0, 0, 0))
    found = progress.snapshot().lanes[0]
    ordered = sorted(seconds)
    for q, value in ((0.50, found.p50), (0.99, found.p99)):
        place = q * (len(ordered) - 1)
        assert 0.96 * ordered[int(place)] <= value <= 1.04 * ordered[min(int(place) + 1, len(ordered) - 1)]
    assert progress.snapshot().lanes[1].p50 is None


@pytest.mark.parametrize("taken", [0.0, -1.0, 1e-12, 1e9])
def test_odd_latencies_do_no_harm(taken):
    """A clock that stood still, or a reply that took for ever, is counted like any other."""
    progress = Progress(9, LANES)
    progress.fold(Attempted(0, None, 0.0, taken, 0, 0))
    assert progress.snapshot().lanes[0].p50 > 0


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (None, "running: 1,200 of 3,000 rows answered, 300 failed, 1 in flight"),
        ("interrupted", "interrupted: 1,200 of 3,000 rows answered, 300 failed, 1,500 cancelled"),
        ("max_cost", "max_cost: 1,200 of 3,000 rows answered, 300 failed, 1,500 over budget"),
    ],
)
def test_a_snapshot_reads_as_one_line(why, text):
    """Its text counts answered and failed rows, and what is under way or was not got to."""
    progress = Progress(3000, ("a",))
    progress.sent(0)
    progress.settled(0, 1200, None)
    progress.settled(0, 300, "server")
    if why is not None:
        progress.fold(Finished(why, 1.0))
    assert str(progress.snapshot()) == text
    assert repr(progress.snapshot()) == f"<Snapshot {text}>"


def test_what_holds_a_provider_back_is_named_and_timed():
    """The limit that lets nothing go stands in the snapshot, and so do the seconds for which any did."""
    progress = Progress(10, ("p",))
    progress.fold(Held(0, "60 requests a minute", 1.0))
    lane = progress.snapshot(now=1.5).lanes[0]
    assert (lane.held_by, lane.held) == ("60 requests a minute", 0.5)
    progress.fold(Held(0, None, 2.0))
    progress.fold(Held(0, "a pause it asked for", 4.0))
    progress.fold(Finished("cancelled", 4.25))
    lane = progress.snapshot(now=9.0).lanes[0]
    assert (lane.held_by, lane.held) == (None, 1.25)
