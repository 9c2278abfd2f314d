"""The ledger keeps what happened, whole at every moment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual import AUTH, SERVER, Script, completion, lane, plan_of

from batchkit._engine.ledger import ANSWERED, FAILED, PENDING, Ledger
from batchkit._logic.itinerary import Outcome
from batchkit._logic.progress import Stopped
from batchkit.records import ERROR_KINDS, Answer, Completion, Failure, Finish, Structured, Usage


def ledger(units=3, lanes=1):
    return Ledger(plan_of(["t"] * units, [lane(Script(), name=f"p{number}") for number in range(lanes)]))


def columns(attempts):
    return [getattr(attempts, name) for name in attempts.__slots__]


def test_a_new_ledger_is_pending():
    """Before anything happened every unit is pending, asked of nobody."""
    new = ledger()
    assert list(new.state) == [PENDING] * 3
    assert (list(new.lane), list(new.kind), len(new.attempts), new.ended) == ([-1] * 3, [-1] * 3, 0, None)


def test_an_answer_is_written_whole():
    """An answered unit has its value, confidence, source and giver."""
    book = ledger(lanes=2)
    book.settled(1, Outcome(1, answer=Answer("x", 0.5, "stated")))
    assert (book.state[1], book.values[1], book.confidence[1], book.source[1]) == (ANSWERED, "x", 0.5, "stated")
    assert (book.lane[1], book.kind[1]) == (1, -1)


def test_a_missing_confidence_is_nan():
    """An answer without a confidence has none, not 0."""
    book = ledger()
    book.settled(0, Outcome(0, answer=Answer("x")))
    assert math.isnan(book.confidence[0])


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_a_failure_is_written_whole(kind):
    """A failed unit has its kind and message, and the first one is remembered."""
    book = ledger()
    book.settled(2, Outcome(0, failure=Failure(kind, "why")))
    book.settled(1, Outcome(0, failure=Failure("server", "later")))
    assert (book.state[2], ERROR_KINDS[book.kind[2]], book.messages[2]) == (FAILED, kind, "why")
    assert book.first_failed == 2


def test_an_attempt_is_kept_with_all_its_details():
    """A completion's model, id, finish and tokens, and a failure's kind, status and message stand side by side."""
    book = ledger()
    reply = Completion(Structured("x"), Usage(7, 3, 2), Finish.TRUNCATED, "m", "id-1")
    book.attempted(0, 0, 1.0, 2.5, reply)
    book.attempted(1, 0, 1.0, 3.0, Failure("auth", "no", status=401, request_id="id-2"))
    log = book.attempts
    assert (list(log.unit), list(log.started), list(log.ended)) == ([0, 1], [1.0, 1.0], [2.5, 3.0])
    assert (list(log.tokens_in), list(log.tokens_out), list(log.tokens_cached)) == ([7, 0], [3, 0], [2, 0])
    assert (log.finish, log.model, log.request_id) == (["truncated", None], ["m", None], ["id-1", "id-2"])
    assert (list(log.status), log.message) == ([0, 401], [None, "no"])
    assert [ERROR_KINDS[code] if code >= 0 else None for code in log.kind] == [None, "auth"]


@given(st.lists(st.sampled_from([completion("x", 5), SERVER, AUTH])))
def test_every_column_has_an_entry_per_attempt(results):
    """However attempts end, no column falls behind another."""
    book = ledger()
    for result in results:
        book.sent(0)
        book.attempted(0, 0, 0.0, 1.0, result)
    assert {len(column) for column in columns(book.attempts)} == {len(results)} == {len(book.attempts)}


def test_an_attempt_half_written_is_not_counted_yet():
    """A reader in another thread never sees an attempt before all its columns are there."""
    book = ledger()
    book.attempted(0, 0, 0.0, 1.0, SERVER)
    for name in book.attempts.__slots__:
        if name != "message":
            column = getattr(book.attempts, name)
            column.append(column[0])
    assert len(book.attempts) == 1


def test_who_was_tried_last_is_known_before_the_end():
    """A unit that was asked and has no outcome yet names whom it was asked of."""
    book = ledger(lanes=2)
    book.attempted(0, 1, 0.0, 1.0, SERVER)
    assert (book.lane[0], book.state[0]) == (1, PENDING)


def test_the_snapshot_counts_rows_not_units():
    """A unit for which several rows wait counts for all of them."""
    book = Ledger(replace(plan_of(["t", "u"], [lane(Script())]), rows=[5, 2]))
    book.settled(0, Outcome(0, answer=Answer("x")))
    book.settled(1, Outcome(0, failure=SERVER))
    snapshot = book.snapshot()
    assert (snapshot.rows, snapshot.answered, snapshot.failed, snapshot.errors) == (7, 5, 2, {"server": 2})


def test_events_reach_the_snapshot():
    """What is told, and how a run ended, stands in the snapshot."""
    book = ledger()
    book.tell(Stopped(0, AUTH))
    book.finished("cancelled", 9.0)
    assert (book.snapshot().lanes[0].stopped, book.snapshot().finished, book.ended) == (AUTH, "cancelled", 9.0)


def test_rows_that_are_tried_again_are_counted():
    """A unit counts as tried again from its failure to its next reply or its outcome, with all its rows."""
    book = Ledger(replace(plan_of(["t", "u"], [lane(Script())]), rows=[5, 2]))

    def again():
        return book.snapshot().lanes[0].retrying

    book.attempted(0, 0, 0.0, 1.0, SERVER)
    book.attempted(1, 0, 0.0, 1.0, SERVER)
    assert again() == 7
    book.attempted(0, 0, 1.0, 2.0, SERVER)
    assert again() == 7
    book.attempted(0, 0, 2.0, 3.0, completion("x"))
    assert again() == 2
    book.settled(1, Outcome(0, failure=SERVER))
    assert (again(), book.snapshot().examples) == (0, {"server": SERVER.message})
