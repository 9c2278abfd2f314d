"""Which setting is recommended, and why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.advising import AnyReply, Measured, recommend
from batchkit._logic.labels import LabelSet
from batchkit.records import Answer, Structured, Text


def at(concurrency, rate, p50=0.2, *, rows=60, failed=0, limited=0, overloaded=0, in_flight=None, batch=None):
    name = f"{concurrency} at once" if batch is None else f"batches of {batch[0]}, {batch[1]:g} s"
    return Measured(name, concurrency, rows, rows - failed, rate, p50, limited, overloaded, in_flight, batch)


def chosen(*measured):
    place, reason = recommend(measured)
    assert place is not None
    return measured[place].concurrency, reason


settings = st.builds(
    at,
    st.integers(1, 50),
    st.floats(0, 1000),
    st.floats(0.001, 10) | st.just(math.nan),
    failed=st.integers(0, 60),
    limited=st.integers(0, 3),
    overloaded=st.integers(0, 3),
    in_flight=st.none() | st.integers(1, 50),
    batch=st.none() | st.tuples(st.integers(1, 64), st.floats(0, 1)),
)


@given(st.lists(settings, max_size=8))
def test_the_rule_holds_for_any_measurements(measured):
    """The chosen one is free of refusals and spare failures where any is, near the best of these, and the least."""
    place, reason = recommend(measured)
    assert reason.endswith(".")
    assert "\n" not in reason
    if place is None:
        assert not any(one.answered for one in measured)
        return
    mine = measured[place]
    assert mine.name in reason
    least = min(one.failures for one in measured)
    calm = [one for one in measured if one.failures == least and not one.refusals]
    if not calm:
        assert (mine.failures, mine.refusals) == min((one.failures, one.refusals) for one in measured)
        return
    assert mine in calm
    best = max(one.rows_per_second for one in calm)
    assert mine.rows_per_second >= 0.95 * best
    assert not any(one.load < mine.load and one.rows_per_second >= 0.95 * best for one in calm)


@given(st.lists(settings, min_size=1, max_size=6, unique_by=lambda one: one.load), st.randoms())
def test_the_order_of_the_settings_is_no_reason(measured, random):
    """The same settings in another order lead to the same choice."""
    shuffled = list(measured)
    random.shuffle(shuffled)
    first, again = recommend(measured)[0], recommend(shuffled)[0]
    assert (None if first is None else measured[first].load) == (None if again is None else shuffled[again].load)


def test_the_smallest_of_those_about_as_fast_is_taken():
    """Within 5 % of the fastest, fewer at once win, and a latency that grows with them is called a queue."""
    concurrency, reason = chosen(at(1, 10.0, 0.1), at(5, 48.1, 0.1), at(10, 48.7, 0.204), at(20, 49.0, 0.406))
    assert concurrency == 5
    assert reason == (
        "5 at once: 48.1 rows/s, within 5 % of the fastest (20 at once, 49 rows/s); with 10 at once p50 grows from "
        "0.1 s to 0.2 s, so more requests only queue at the provider."
    )


def test_a_flat_latency_is_no_queue():
    """Where the pace stays but latency does not grow, the sentence says only what the next one came to."""
    _, reason = chosen(at(5, 40.0, 0.1), at(10, 39.0, 0.11))
    assert reason == "5 at once: 40 rows/s, the fastest of 2 settings; 10 at once came to 39 rows/s."


def test_just_within_and_just_beyond_five_per_cent():
    """95 % of the best is near enough, less is not."""
    assert chosen(at(5, 95.0), at(10, 100.0))[0] == 5
    assert chosen(at(5, 94.9), at(10, 100.0))[0] == 10


def test_a_setting_that_was_refused_is_not_taken_however_fast():
    """One rate limit or overload is enough to rule a setting out where others have none."""
    concurrency, reason = chosen(at(5, 20.0), at(10, 40.0, limited=14), at(20, 60.0, overloaded=1))
    assert concurrency == 5
    assert reason == "5 at once: 20 rows/s, the fastest without trouble; 10 at once had 14 rate limits."


def test_rows_that_fail_at_every_setting_are_no_reason_against_any():
    """Failures that all settings share are the rows', more than these are the setting's."""
    concurrency, reason = chosen(at(5, 20.0, failed=2), at(10, 39.0, failed=2), at(20, 60.0, failed=3))
    assert concurrency == 10
    assert "20 at once had 3 failed rows" in reason
    assert reason.endswith("2 of 60 rows failed at every setting.")


def test_where_all_were_refused_the_least_troubled_is_named_as_such():
    """Without a setting free of trouble, failures count before refusals, and the sentence says what to do."""
    concurrency, reason = chosen(at(1, 5.0, limited=2), at(5, 9.0, failed=1, limited=1), at(10, 9.0, limited=8))
    assert concurrency == 1
    assert reason == (
        "1 at once: 5 rows/s, with the least trouble of 3 settings (2 rate limits); none was free of it, so try fewer "
        "at once, or give the provider its limits as rpm= or tpm=."
    )


def test_a_pace_that_still_climbs_asks_for_more():
    """If the highest setting is the best by far, the sentence says that one above may be better."""
    concurrency, reason = chosen(at(5, 20.0), at(10, 39.0))
    assert concurrency == 10
    assert "still 1.9 times the pace of 5 at once, so more may be faster yet" in reason
    assert "more may" not in chosen(at(5, 35.0), at(10, 39.0))[1]


def test_a_small_sample_is_said_to_be_one():
    """Fewer than three rows for each request in flight are called few."""
    assert (
        "12 rows are few for 20 at once, 60 would tell more" in chosen(at(5, 20.0, rows=12), at(20, 20.0, rows=12))[1]
    )
    assert "few" not in chosen(at(5, 20.0), at(20, 20.0))[1]


def test_slots_that_were_never_used_are_mentioned():
    """If less was ever in flight than allowed, the setting did not show what its name says."""
    assert "there were never more than 6 in flight" in chosen(at(20, 20.0, in_flight=6))[1]
    assert "in flight" not in chosen(at(20, 20.0, in_flight=20))[1]


def test_batches_are_taken_only_if_they_are_faster():
    """Plain calls go before batches of about the same pace, small batches before large ones."""
    plain, small, large = at(10, 98.0), at(60, 100.0, batch=(16, 0.05)), at(60, 101.0, batch=(64, 0.05))
    assert recommend([large, small, plain])[0] == 2
    assert recommend([large, small, at(10, 50.0)])[0] == 1


@pytest.mark.parametrize(
    ("measured", "words"),
    [([], "No setting was measured"), ([at(1, 0.0, math.nan, failed=60)], ".runs[0].failed says why")],
)
def test_without_any_answer_nothing_is_recommended(measured, words):
    """No settings, or none that answered a row, lead to no recommendation and a sentence that says so."""
    place, reason = recommend(measured)
    assert place is None
    assert words in reason


@pytest.mark.parametrize(("reply", "label"), [(Text("yes"), "yes"), (Text("who knows"), None), (Structured(7), None)])
def test_without_labels_any_reply_is_an_answer(reply, label):
    """What names no label counts as answered, without one."""
    verdict = AnyReply(LabelSet.of(["yes", "no"])).check(reply)
    assert isinstance(verdict, Answer)
    assert verdict.value == label
