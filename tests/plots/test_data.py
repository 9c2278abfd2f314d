"""The numbers behind the pictures."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented import attempts, requests_of, run_of

import batchkit as bk
from batchkit.plots import (
    assign_slots,
    compare_data,
    latency_data,
    outcome_data,
    throughput_data,
    timeline_data,
)

intervals = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda pair: (float(pair[0]), float(sum(pair)))), max_size=60
)


@given(intervals)
def test_no_two_attempts_share_a_slot_at_a_time(times):
    """Attempts in one slot do not overlap, unless they are one call."""
    slots = assign_slots([start for start, _ in times], [end for _, end in times])
    taken = sorted({(slot, *interval) for slot, interval in zip(slots, times, strict=True)})
    for (slot, _, end), (other, start, _) in itertools.pairwise(taken):
        assert slot != other or end <= start


@given(intervals)
def test_slots_are_as_few_as_were_in_flight(times):
    """The number of slots is the most attempts that were ever in flight at once."""
    calls = set(times)
    slots = assign_slots([start for start, _ in times], [end for _, end in times])
    in_flight = [sum(start <= moment < end for start, end in calls) for moment, _ in calls]
    assert len(set(slots)) == max(in_flight, default=0)
    assert set(slots) == set(range(len(set(slots))))


def test_rows_of_one_call_share_a_slot():
    """Attempts that began and ended together travelled in one call and take one slot."""
    assert assign_slots([0.0, 0.0, 0.5], [1.0, 1.0, 2.0]) == [0, 0, 1]


def test_a_wait_lies_between_a_failure_and_the_next_attempt():
    """A row waits from the end of an attempt that brought nothing to the start of its next one."""
    data = timeline_data(attempts((0, "a", 0.0, 1.0, "server"), (1, "a", 0.0, 2.0, None), (0, "a", 4.0, 5.0, None)))
    assert data["outcome"].tolist() == ["failed", "reply", "reply", "waiting"]
    assert data.iloc[-1][["row", "started", "ended", "slot"]].tolist() == [0, 1.0, 4.0, 0]


def test_a_row_that_moves_on_waits_for_the_next_provider():
    """Where another provider is asked next, the wait is shown there, and one at the same provider goes first."""
    data = timeline_data(
        attempts(
            (0, "a", 0.0, 1.0, "server"),
            (0, "b", 0.0, 0.5, "server"),
            (0, "a", 2.0, 3.0, "server"),
            (0, "b", 9.0, 9.5, None),
        )
    )
    waits = data[data["outcome"] == "waiting"].sort_values("started")
    assert list(zip(waits["provider"], waits["started"], waits["ended"], strict=True)) == [
        ("b", 0.5, 9.0),
        ("a", 1.0, 2.0),
        ("b", 3.0, 9.0),
    ]


@pytest.mark.parametrize(
    ("error", "finish", "outcome"),
    [
        (None, "stop", "reply"),
        (None, "truncated", "unusable"),
        (None, "refused", "unusable"),
        ("rate_limited", None, "rate_limited"),
        ("timeout", None, "failed"),
        ("cancelled", None, "cancelled"),
    ],
)
def test_each_attempt_has_an_outcome(error, finish, outcome):
    """Outcomes tell replies, unusable replies, rate limits, other failures and cancelled attempts apart."""
    data = timeline_data(attempts((0, "a", 0.0, 1.0, error)).assign(finish=finish))
    assert data["outcome"].tolist() == [outcome]


def test_a_reply_after_which_the_row_is_asked_again_was_unusable():
    """A reply followed by another attempt of the same row at the same provider counts as unusable."""
    data = timeline_data(attempts((0, "a", 0.0, 1.0, None), (0, "a", 1.0, 2.0, None), (0, "b", 3.0, 4.0, None)))
    assert data["outcome"].tolist() == ["unusable", "reply", "reply"]


@given(intervals, st.integers(1, 30))
def test_bins_lose_no_time_and_no_request(times, bins):
    """The areas of all bins are the seconds of all calls, and their counts are all calls and replies."""
    requests = attempts(*[(row, "a", start, end, None) for row, (start, end) in enumerate(times)])
    data = throughput_data(requests, bins=bins)
    width = data["end"] - data["start"]
    calls = set(times)
    assert (data["in_flight"] * width).sum() == pytest.approx(sum(end - start for start, end in calls))
    assert (data["rows_per_second"] * width).sum() == pytest.approx(len(times))
    assert data["calls"].sum() == len(calls)
    assert data["attempts"].sum() == len(times)


@given(intervals.filter(bool), st.integers(1, 30))
def test_the_most_in_flight_is_found_in_every_bin(times, bins):
    """The most in flight over the bins is the most that were ever in flight, and no bin's mean is above its most."""
    requests = attempts(*[(row, "a", start, end, None) for row, (start, end) in enumerate(times)])
    data = throughput_data(requests, bins=bins)
    calls = set(times)
    assert data["most"].max() == max(sum(start <= moment < end for start, end in calls) for moment, _ in calls)
    assert (data["in_flight"] <= data["most"] + 1e-6).all()


def test_waiting_and_failures_are_counted_in_their_bins():
    """A bin has the mean number of waiting rows, and the attempts that failed in it."""
    requests = attempts((0, "a", 0.0, 1.0, "server"), (0, "a", 3.0, 4.0, None))
    data = throughput_data(requests, bins=4)
    assert data["waiting"].tolist() == [0, 1, 1, 0]
    assert data["failures"].sum() == 1
    assert data["failed"].tolist() == [1, 0, 0, 0]


def test_a_call_that_failed_for_one_of_its_rows_is_one_failed_call():
    """Rows that travelled together are one request in flight, of the worst outcome among them."""
    requests = attempts((0, "a", 0.0, 1.0, None), (1, "a", 0.0, 1.0, "function"))
    data = throughput_data(requests, bins=1)
    assert data[["in_flight", "failed", "reply"]].iloc[0].tolist() == [1, 1, 0]


def test_latencies_are_those_of_replies():
    """Failed attempts are counted, and are in no quantile."""
    table = latency_data(attempts((0, "a", 0.0, 9.0, "timeout"), (1, "a", 0.0, 1.0, None), (2, "a", 0.0, 3.0, None)))
    assert table.loc["a", ["replies", "failures", "p50", "max"]].tolist() == [2, 1, 2.0, 3.0]


def test_latencies_agree_with_the_summary_of_a_run():
    """`latency_data` and `Run.summary` have the same quantiles for a real run."""
    rules = bk.FunctionProvider(lambda text: "a", name="rules")
    frame = pd.DataFrame({"text": [f"row {i}" for i in range(20)]})
    frame.llm.classify("text", ["a", "b"], route=rules, progress=False)
    run = bk.last_run()
    assert run is not None
    for quantile in ("p50", "p90", "p99"):
        assert latency_data(run.requests).loc["rules", quantile] == run.summary.loc["rules", quantile]


def test_outcomes_are_counted_by_provider_and_kind():
    """Every attempt is counted once, under its error kind or as a reply."""
    requests = attempts(
        (0, "a", 0.0, 1.0, "server"),
        (0, "a", 2.0, 3.0, None),
        (1, "b", 0.0, 1.0, "timeout"),
        (2, "b", 0.0, 1.0, "server"),
    )
    counts = outcome_data(requests)
    assert counts.columns.tolist() == ["reply", "unusable", "server", "timeout"]
    assert counts.loc["b"].tolist() == [0, 0, 1, 1]
    assert counts.to_numpy().sum() == len(requests)


def test_runs_stand_side_by_side():
    """The table of a comparison has the runs in order, and does not count reused answers as speed."""
    table = compare_data({"slow": run_of(40, 20.0, failed=2), "again": run_of(40, 0.5, reused=40)})
    assert table.index.tolist() == ["slow", "again"]
    assert table["rows_per_second"].tolist() == [1.9, 0.0]
    assert table.loc["slow", ["answered", "failed", "requests"]].tolist() == [38, 2, 40]


@pytest.mark.parametrize("numbers", [timeline_data, throughput_data, latency_data, outcome_data])
def test_a_run_without_requests_has_no_numbers(numbers):
    """No request gives an empty frame with its columns."""
    table = numbers(requests_of(0))
    assert len(table) == 0
    assert len(table.columns) > 1


@pytest.mark.parametrize("numbers", [timeline_data, throughput_data, latency_data, outcome_data])
def test_numbers_leave_what_they_are_given_as_it_was(numbers):
    """The frame given is not changed, whatever its index."""
    requests = requests_of(30, failed=4).set_index(np.arange(30)[::-1])
    before = requests.copy(deep=True)
    numbers(requests)
    pd.testing.assert_frame_equal(requests, before)


@pytest.mark.parametrize("numbers", [timeline_data, throughput_data, latency_data, outcome_data])
def test_another_frame_is_refused(numbers):
    """A frame that is not `Run.requests` is refused, naming the column it lacks."""
    with pytest.raises(bk.InputError, match=r"Run\.requests.*'started'"):
        numbers(pd.DataFrame({"row": [0], "provider": ["a"]}))


def test_there_is_at_least_one_run_and_one_bin():
    """Nothing to compare, and no bins, are refused."""
    with pytest.raises(bk.InputError, match="nothing to compare"):
        compare_data({})
    with pytest.raises(bk.InputError, match="bins=0"):
        throughput_data(requests_of(4), bins=0)
