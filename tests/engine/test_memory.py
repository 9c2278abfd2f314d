"""Which question is the same as one asked before, and which kept answer serves it."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from virtual import Script, Shelf, at_once, completion, execute, lane, plan_of, run, start

from batchkit._engine import memory as module
from batchkit._engine.memory import Memory
from batchkit._logic.itinerary import Cascade, Seat
from batchkit.records import Answer, Usage

A, B = Seat(frozenset({0})), Seat(frozenset({1}))
BOTH = Seat(frozenset({0, 1}))


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    """Look-ups happen at once: virtual time waits for no thread."""
    monkeypatch.setattr(module, "in_thread", at_once)


def known(script=None, *, name="p", fingerprint=b"f"):
    return lane(script or Script(), name=name, fingerprint=fingerprint)


def asked(script):
    return [row for request in script.requests for row in request.rows]


def recalled(shelf, plan):
    """A memory that has looked everything up."""
    memory = Memory(shelf, plan)
    memory.recall_now()
    return memory


@pytest.mark.parametrize("text", ["plain", "", "\ud800", "你好", "a\0b", "a" * 10_000])
def test_any_text_is_recognised(text):
    """An answer is found again under its text, lone surrogates, NUL and all."""
    shelf = Shelf()
    execute(plan_of([text], [known(Script(lambda question, times: (1.0, completion("said"))))]), shelf=shelf)
    script = Script()
    ledger = execute(plan_of([text, f"{text}x"], [known(script)]), shelf=shelf)
    assert ledger.values[0] == "said"
    assert asked(script) == [f"{text}x"]


def test_the_fingerprint_tells_providers_apart():
    """Another fingerprint is another question; another name is not, and the answer goes by the new one."""
    shelf = Shelf()
    execute(plan_of(["t"], [known(name="old name")]), shelf=shelf)
    execute(plan_of(["t"], [known(other := Script(), fingerprint=b"g")]), shelf=shelf)
    ledger = execute(plan_of(["t"], [known(same := Script(), name="new name")]), shelf=shelf)
    assert (asked(other), asked(same)) == (["t"], [])
    assert ledger.snapshot().lanes[0].name == "new name"
    assert ledger.snapshot().lanes[0].answered == 1


def test_the_first_in_route_order_answers():
    """Where several answered the same text before, the first of the route is taken."""
    shelf, lanes = Shelf(), [known(name="a", fingerprint=b"a"), known(name="b", fingerprint=b"b")]
    for node in (B, A):
        execute(plan_of(["t"], [replace(spec, caller=Script()) for spec in lanes], node), shelf=shelf)
    ledger = execute(plan_of(["t"], lanes, BOTH), shelf=shelf)
    assert list(ledger.lane) == [0]


@pytest.mark.parametrize("who", [0, 1])
def test_any_of_a_set_may_have_answered_before(who):
    """A row that one of a balance answered is asked of none of them again."""
    shelf, names = Shelf(), (b"a", b"b")
    execute(plan_of(["t"], [known(name="x", fingerprint=names[who])]), shelf=shelf)
    scripts = [Script(), Script()]
    lanes = [known(script, name=name.decode(), fingerprint=name) for script, name in zip(scripts, names, strict=True)]
    ledger = execute(plan_of(["t"], lanes, BOTH), shelf=shelf)
    assert (list(ledger.lane), asked(scripts[0]), asked(scripts[1])) == ([who], [], [])


def test_the_same_text_under_several_itineraries_is_one_answer():
    """Units of one text find what a common provider answered, by whichever route it was asked."""
    shelf = Shelf()
    execute(plan_of(["t"], [known(name="a", fingerprint=b"a")]), shelf=shelf)
    scripts = [Script(), Script()]
    lanes = [known(scripts[0], name="a", fingerprint=b"a"), known(scripts[1], name="b", fingerprint=b"b")]
    ledger = execute(plan_of(["t", "t", "t"], lanes, A, B, BOTH, codes=[0, 1, 2]), shelf=shelf)
    assert ledger.values == ["t"] * 3
    assert (asked(scripts[0]), asked(scripts[1])) == ([], ["t"])


def test_equal_texts_asked_apart_have_answers_of_their_own():
    """The n-th of equal units finds the n-th answer, and only what is missing is asked."""
    shelf, said = Shelf(), iter("abc")
    plan = plan_of(["t", "t"], [known(Script(lambda question, times: (1.0, completion(next(said)))))], samples={1: 1})
    assert sorted(execute(plan, shelf=shelf).values) == ["a", "b"]
    script = Script(lambda question, times: (1.0, completion(next(said))))
    ledger = execute(plan_of(["t", "t", "t"], [known(script)], samples={1: 1, 2: 2}), shelf=shelf)
    assert sorted(ledger.values) == ["a", "b", "c"]
    assert asked(script) == ["t"]


@pytest.mark.parametrize(("then", "now", "used", "reuses"), [
    (100, 100, 100, True), (100, 400, 90, True), (400, 100, 90, True), (400, 100, 101, False), (100, 100, 380, True),
])  # fmt: skip
def test_an_answer_serves_under_any_cap_that_it_fits(then, now, used, reuses):
    """A larger cap takes the answer as it is, a smaller one if it could have come under it."""
    # The last reply was cut once and then had four times the room: under the same cap that happens again.
    shelf, reply = Shelf(), completion("t")._replace(usage=Usage(9, used))
    for cap in (then, now):
        script = Script(lambda question, times: (1.0, reply))
        script.reply_tokens = cap
        execute(plan_of(["t"], [known(script)]), shelf=shelf)
    assert bool(asked(script)) is not reuses


def test_an_answer_that_cannot_be_read_is_asked_again():
    """A kept value that the task does not know any more is as good as none."""
    shelf = Shelf()
    plan = plan_of(["t"], [known(script := Script())])
    execute(plan, shelf=shelf)
    for key, entry in shelf.entries.items():
        shelf.entries[key] = entry._replace(value=b"no JSON")
    assert recalled(shelf, plan).find(0, [0]) is None
    script.state = "new"
    ledger = execute(plan, shelf=shelf)
    assert (asked(script), ledger.values) == (["t", "t"], ["t"])


def test_confidence_comes_back_with_the_answer():
    """A remembered confidence leads a cascade on, or not, as it did when it was new."""
    shelf = Shelf()
    for confidence in (0.9, 0.9):
        scripts = [Script(), Script()]
        lanes = [
            known(script, name=name, fingerprint=name.encode()) for script, name in zip(scripts, "ab", strict=True)
        ]
        ledger = execute(plan_of(["t"], lanes, Cascade((A, B), (0.95,)), confidence=confidence), shelf=shelf)
        assert list(ledger.confidence) == [0.9]
    assert [asked(script) for script in scripts] == [[], []]


def test_an_entry_says_what_it_cost_and_who_gave_it():
    """Beside the value stand task, provider, model, tokens, cap and the moment."""
    shelf = Shelf()
    reply = completion("t", model="m-1")._replace(usage=Usage(12, 3))
    execute(plan_of(["t"], [known(Script(lambda question, times: (1.0, reply)), name="who")]), shelf=shelf)
    [entry] = shelf.entries.values()
    assert entry[1:-1] == ("echo", "who", "m-1", b'"t"', None, "stated", "stop", 12, 3, 100)
    assert abs(entry.at - time.time()) < 60
    assert len(entry.key) == 16


def test_an_answer_that_cannot_be_written_is_not_waited_for():
    """A value that no JSON holds is its row's error, and the run ends."""
    ledger = execute(plan_of(["t"], [known(Script(lambda question, times: (1.0, completion({1, 2}))))]), shelf=Shelf())
    assert "please report" in ledger.messages[0]


def test_a_run_that_is_gone_stops_nobody():
    """When a run's loop has ended, what the writer reports to it is dropped."""
    shelf = Shelf(delay=1.0)
    plan = plan_of(["t"], [known()])
    memory = Memory(shelf, plan)

    async def main():
        memory.begin(asyncio.get_running_loop(), lambda tokens: pytest.fail("nobody is there to hear of it"))
        memory.keep(0, 0, Answer("t"), completion("t"), None)

    run(main())
    assert shelf.flush(1)
    assert memory.unwritten == 1


def test_an_answer_that_the_disk_does_not_take_is_shown_when_the_run_is_stopped():
    """What was paid for stands in the frame, the user is told how much is not written, and no later word changes it."""
    shelf = Shelf(delay=1_000.0)
    shelf.flush = lambda timeout: False

    async def main():
        execution, ledger = start(plan_of(["a", "b"], [known()]), shelf=shelf)
        loop = asyncio.get_running_loop()
        loop.call_later(1.5, execution.halt, "interrupted", 2.0)
        await execution.run()
        ended = loop.time()
        await asyncio.sleep(2_000)  # the writer comes at last
        return ledger, ended

    ledger, ended = run(main())
    assert (ledger.values, ended) == (["a", "b"], 3.5)
    assert (ledger.snapshot().answered, ledger.snapshot().finished) == (2, "interrupted")
    assert shelf.late == 2


def test_tokens_come_back_on_the_loop():
    """Whatever thread writes, the run hears of it in its own."""
    heard = []

    class Writer(Shelf):
        def put(self, entry, token, done):
            self.done = done

    async def main():
        loop, shelf = asyncio.get_running_loop(), Writer()
        memory = Memory(shelf, plan_of(["t"], [known()]))
        memory.begin(loop, lambda tokens: heard.append((tokens, threading.current_thread())))
        memory.keep(0, 0, Answer("t"), completion("t"), "token")
        writer = threading.Thread(target=shelf.done, args=(["token"],))
        writer.start()
        writer.join()
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert heard == [(["token"], threading.main_thread())]
