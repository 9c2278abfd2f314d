"""What a reply means for its row: an answer, a failure, or a reason to ask once more."""

from __future__ import annotations

from dataclasses import dataclass

from batchkit._logic.prompting import repair_turns
from batchkit._logic.tasks import Task
from batchkit.records import Answer, Completion, Failure, Finish, Question, Structured, Text, Turn

__all__ = ["Again", "judge"]

_GROWTH = 4
"""A reply cut at its cap is asked for once more with so many times the room."""


@dataclass(frozen=True, slots=True)
class Again:
    """Ask at once, this time so."""

    question: Question


def judge(task: Task, question: Question, completion: Completion) -> Answer | Failure | Again:
    """Read a reply.

    A reply cut at its cap is asked for once more with the same messages and more room; content
    that is no valid answer once more with the complaint. Refusals and filtered replies are final:
    the same model would say the same.
    """
    if completion.finish is not Finish.STOP:
        return _ended_early(question, completion)
    verdict = task.check(completion.reply)
    if isinstance(verdict, Answer):
        return verdict
    if question.complaint is not None:
        return Failure("invalid_answer", _excerpt("no valid answer, asked twice", completion))
    said = completion.reply.text if isinstance(completion.reply, Text) else ""
    turns = tuple(Turn(*turn) for turn in repair_turns(said, verdict.text, question.row))
    return Again(question._replace(turns=turns, complaint=verdict.text))


def _ended_early(question: Question, completion: Completion) -> Failure | Again:
    match completion.finish:
        case Finish.REFUSED:
            return Failure("refused", _excerpt("the model refused", completion))
        case Finish.FILTERED:
            return Failure("filtered", _excerpt("a content filter stopped the reply", completion))
    if question.room > 1:
        return Failure("truncated", _excerpt("cut at its output cap twice", completion))
    return Again(question._replace(room=_GROWTH))


def _excerpt(what: str, completion: Completion) -> str:
    """Say what happened, with the beginning of what the model said."""
    reply = completion.reply
    if isinstance(reply, Structured) and reply.value is None:
        return f"{what}: None was returned"
    said = reply.text if isinstance(reply, Text) else getattr(reply, "value", "")
    said = " ".join((said if isinstance(said, str) else repr(said)).split())
    return f"{what}: {said[:120]!r}" if said else f"{what}: the reply was empty"
