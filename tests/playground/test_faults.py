"""Faults and latencies depend on the row alone, and limits hold in every window of time."""

from __future__ import annotations

from collections import Counter
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.faults import Bucket, Gauge, draw
from batchkit._playground.server import Server

FAULTY = Server(server_errors=0.1, drops=0.1, garbage=0.1, truncated=0.1, invalid=0.1, hangs=0.1)


def _draws(server: Server, count: int = 4_000):
    return [draw(server, 0, "fast", f"text {number}", 1) for number in range(count)]


def test_each_fault_has_its_share():
    """Each fault happens about as often as asked for, and the rest is answered."""
    counts = Counter(chance.fate for chance in _draws(FAULTY))
    assert counts.pop("answered") / 4_000 == pytest.approx(0.4, abs=0.03)
    assert {fate: round(count / 4_000, 1) for fate, count in counts.items()} == {
        "server_error": 0.1,
        "drop": 0.1,
        "garbage": 0.1,
        "truncated": 0.1,
        "invalid": 0.1,
        "hang": 0.1,
    }


@pytest.mark.parametrize(
    ("setting", "fate"),
    [("server_errors", "server_error"), ("hangs", "hang"), ("invalid", "invalid"), ("latency", "answered")],
)
def test_certainty_is_certain(setting, fate):
    """A share of 1 meets every request, and no share meets none."""
    assert {chance.fate for chance in _draws(Server(**{setting: 1}), 500)} == {fate}


@given(st.text(st.characters(exclude_categories=())), st.integers(), st.integers(1, 9))
def test_a_draw_depends_on_its_arguments_only(text, seed, nth):
    """The same row asked the same time of the same server meets the same fate."""
    assert draw(FAULTY, seed, "fast", text, nth) == draw(FAULTY, seed, "fast", text, nth)


def test_every_argument_counts():
    """Another seed, server, text or time of asking is another draw."""
    draws = [
        draw(FAULTY, 0, "fast", "text", 1),
        draw(FAULTY, 1, "fast", "text", 1),
        draw(FAULTY, 0, "slow", "text", 1),
        draw(FAULTY, 0, "fast", "texts", 1),
        draw(FAULTY, 0, "fast", "text", 2),
    ]
    assert len({chance.serial for chance in draws}) == 5


def test_latency_without_jitter_is_exact():
    """Without jitter each request takes the latency asked for."""
    assert {chance.latency for chance in _draws(Server(latency=0.25), 100)} == {0.25}


def test_latency_scatters_by_the_jitter():
    """With jitter latencies have the mean and the deviation asked for."""
    latencies = [chance.latency for chance in _draws(Server(latency=1.0, jitter=0.1))]
    assert mean(latencies) == pytest.approx(1.0, abs=0.01)
    assert stdev(latencies) == pytest.approx(0.1, abs=0.01)


@given(st.text(), st.floats(0, 1), st.floats(0, 100))
def test_latency_is_never_negative(text, latency, jitter):
    """However large the jitter, no answer comes before its request."""
    assert draw(Server(latency=latency, jitter=jitter), 0, "fast", text, 1).latency >= 0


@given(st.floats(1, 6_000), st.lists(st.floats(0, 3), max_size=200))
def test_the_bucket_holds_its_quota(rpm, gaps):
    """In any stretch of time no more is admitted than what flows in plus one second's quota."""
    bucket = Bucket(rpm, 0.0)
    now, admitted = 0.0, []
    for gap in gaps:
        now += gap
        if not bucket.take(now):
            admitted.append(now)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            allowed = max(1, rpm / 60) + (admitted[last] - admitted[first]) * rpm / 60
            assert last - first + 1 <= allowed + 1e-6


@given(st.floats(1, 6_000))
def test_the_bucket_says_how_long_to_wait(rpm):
    """Who comes back after the time that the bucket gave is admitted."""
    bucket = Bucket(rpm, 0.0)
    wait = 0.0
    while not wait:
        wait = bucket.take(0.0)
    assert bucket.take(wait) == 0.0


@given(st.floats(60, 1e6), st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1e4)), max_size=100))
def test_the_bucket_holds_its_quota_of_any_amounts(tpm, askings):
    """However large the amounts, no more is taken than flows in, one second's quota and the last amount."""
    bucket = Bucket(tpm, 0.0)
    now, taken = 0.0, 0.0
    for gap, amount in askings:
        now += gap
        if not bucket.take(now, amount):
            assert taken <= tpm / 60 * (now + 1) * (1 + 1e-9) + 1e-6
            taken += amount


@given(st.floats(60, 1e6), st.floats(0, 1e5), st.floats(0, 1e5))
def test_a_wait_for_an_amount_is_long_enough(tpm, first, second):
    """Who comes back after the time that the bucket gave gets the amount, however large it is."""
    bucket = Bucket(tpm, 0.0)
    assert bucket.take(0.0, first) == 0.0
    wait = bucket.take(0.0, second)
    assert not wait or bucket.take(wait, second) == 0.0


def test_what_was_not_used_comes_back():
    """What is given back can be taken again, never more than the bucket holds, and what was used beyond is owed."""
    bucket = Bucket(6_000, 0.0)
    assert bucket.take(0.0, 150) == 0.0
    bucket.give_back(0.0, 130)
    assert bucket.read(0.0).used == pytest.approx(20)
    bucket.give_back(0.0, 1_000)
    assert bucket.read(0.0).used == 0
    bucket.give_back(0.0, -200)
    assert bucket.take(0.0, 1) == pytest.approx(1.01)


@pytest.mark.parametrize(
    ("taken", "after", "gauge", "remaining"),
    [
        (0, 0.0, Gauge(600, 0, 0.0, False), 600),
        (1, 0.0, Gauge(600, 1, 0.1, False), 599),
        (1, 0.05, Gauge(600, 0.5, 0.05, False), 599),
        (9.5, 0.0, Gauge(600, 9.5, 0.95, True), 0),
        (25, 0.0, Gauge(600, 25, 2.5, True), 0),
        (25, 9.0, Gauge(600, 0, 0.0, False), 600),
    ],
)
def test_the_bucket_says_what_is_left(taken, after, gauge, remaining):
    """What is left is told of a minute's quota, and is nothing where nothing may be taken."""
    bucket = Bucket(600, 0.0)
    bucket.take(0.0, taken)
    found = bucket.read(after)
    assert found == pytest.approx(gauge)
    assert found.remaining == remaining
