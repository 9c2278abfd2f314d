"""What follows a reply: an answer, a failure, or asking once more."""

from __future__ import annotations

import pytest

from batchkit._logic.judging import Again, judge
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.records import Answer, Completion, Failure, Finish, Question, Structured, Text

TASK = Classify(LabelSet(("billing", "delivery")))
QUESTION = Question(TASK.brief(), "the row")


def test_a_valid_reply_is_an_answer():
    """A reply that names a label is an answer."""
    assert judge(TASK, QUESTION, Completion(Text('{"label": "billing"}'))) == Answer("billing")


def test_a_cut_reply_is_asked_again_with_the_same_messages_and_more_room():
    """A reply cut at its cap is never read, but asked for once more; the second time it is final."""
    cut = Completion(Text('{"label": "billing"}'), finish=Finish.TRUNCATED)
    again = judge(TASK, QUESTION, cut)
    assert isinstance(again, Again)
    assert again.question == QUESTION._replace(room=again.question.room)
    assert again.question.room > 1
    final = judge(TASK, again.question, cut)
    assert isinstance(final, Failure)
    assert final.kind == "truncated"


def test_an_invalid_reply_is_asked_again_with_the_complaint():
    """Content that is no answer is asked for once more with the reply, the complaint and the row; then it is final."""
    bad = Completion(Text("neither"))
    again = judge(TASK, QUESTION, bad)
    assert isinstance(again, Again)
    assert [turn.role for turn in again.question.turns] == ["assistant", "user"]
    assert again.question.turns[0].text == "neither"
    assert "the row" in again.question.turns[1].text
    assert again.question.complaint in again.question.turns[1].text
    final = judge(TASK, again.question, bad)
    assert isinstance(final, Failure)
    assert (final.kind, final.message) == ("invalid_answer", "no valid answer, asked twice: 'neither'")


def test_a_function_that_forgets_to_return_is_told():
    """Where None comes back the message says so, and not 'None' as if it were a text."""
    asked = QUESTION._replace(complaint="not that")
    final = judge(TASK, asked, Completion(Structured(None), finish=Finish.STOP))
    assert isinstance(final, Failure)
    assert final.message == "no valid answer, asked twice: None was returned"


@pytest.mark.parametrize(("finish", "kind"), [(Finish.REFUSED, "refused"), (Finish.FILTERED, "filtered")])
def test_refusals_are_final(finish, kind):
    """A refused or filtered reply is not asked again, even where its text names a label."""
    verdict = judge(TASK, QUESTION, Completion(Text("billing"), finish=finish))
    assert isinstance(verdict, Failure)
    assert verdict.kind == kind


@pytest.mark.parametrize("value", ["", None, {}, [], "x" * 10_000, {"label": "\ud800"}])
def test_messages_stay_short(value):
    """The message of a failure shows the beginning of what was said, on one line."""
    question = QUESTION._replace(complaint="no label")
    verdict = judge(TASK, question, Completion(Structured(value)))
    assert isinstance(verdict, Failure)
    assert len(verdict.message) < 200
    assert "\n" not in verdict.message
