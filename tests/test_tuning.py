"""`bk.tune`: what each setting asks, what is measured, and how it ends."""

from __future__ import annotations

import _thread
import doctest
import threading
from collections import Counter

import pandas as pd
import pytest
from matplotlib.figure import Figure

import batchkit as bk

LABELS = ["billing", "delivery"]


def texts(count):
    return pd.Series([f"message {number}" for number in range(count)], name="text")


def tune(provider, sample, labels=None, concurrency=(1, 4), **settings):
    return bk.tune(provider, sample, labels, concurrency, **{"progress": False, **settings})


def first(text, labels):
    return labels[0]


@pytest.fixture
def play():
    with bk.playground(answer=first, one={}, narrow={"max_concurrency": 2, "latency": 0.02}) as play:
        yield play


# ---- what is asked and measured --------------------------------------------------------------------


def test_every_setting_asks_every_row(play, tmp_path):
    """Neither the journal nor equal rows spare a request, the settings come in their order, and nothing is kept."""
    sample = pd.Series(["the same"] * 8 + ["another", "", None])
    with bk.use(journal=tmp_path / "journal.sqlite"):
        tuning = tune(play.one.provider(), sample, LABELS, (4, 1, 2))
        tune(play.one.provider(), sample, LABELS, (1,))
        assert bk.journal().entries.empty
    assert play.one.counts == Counter(answered=4 * 9)
    assert Counter(request.text for request in play.one.requests) == {"the same": 4 * 8, "another": 4}
    assert tuning.table["setting"].tolist() == ["4 at once", "serial", "2 at once"]
    assert tuning.table["concurrency"].tolist() == [4, 1, 2]
    assert tuning.table["failures"].tolist() == [0, 0, 0]
    assert [run.snapshot.answered for run in tuning.runs] == [9, 9, 9]


def test_the_table_has_what_was_promised(play):
    """The columns are those written down, numbers are numbers, and what does not apply or is unknown is missing."""
    table = tune(play.one.provider(), texts(6), LABELS).table
    assert list(table) == [
        "setting", "concurrency", "batch_size", "batch_time", "seconds", "rows_per_second", "failures",
        "rate_limited", "overloaded", "in_flight", "p50", "p90", "p99", "cost",
    ]  # fmt: skip
    assert (table["seconds"] > 0).all()
    assert ((table["rows_per_second"] * table["seconds"]).round(6) == 6).all()
    assert (table["p50"] <= table["p90"]).all()
    assert (table["p90"] <= table["p99"]).all()
    assert table[["batch_size", "batch_time", "cost"]].isna().all(axis=None)
    assert table["batch_size"].dtype == "Int64"


def test_what_is_tuned_goes_beyond_the_providers_own_limit():
    """A setting may be higher than ``max_concurrency``, is never exceeded, and the provider stays as it was."""
    with bk.playground(answer=first, one={"latency": 0.05}) as play:
        provider = play.one.provider(max_concurrency=2)
        table = tune(provider, texts(24), LABELS, (1, 6)).table
    assert table["in_flight"].tolist() == [1, 6]
    assert provider.limits.max_concurrency == 2


def test_a_setting_that_is_rate_limited_is_counted_and_not_recommended(play):
    """Attempts that met HTTP 429 stand in the table, their rows are answered all the same, and the rest wins."""
    tuning = tune(play.narrow.provider(), texts(24), LABELS, (1, 8))
    limited = tuning.table["rate_limited"].tolist()
    assert limited[0] == 0
    assert limited[1] == sum(count for name, count in play.narrow.counts.items() if name != "answered") > 0
    assert tuning.table["failures"].tolist() == [0, 0]
    assert tuning.recommended == {"max_concurrency": 1}
    assert f"8 at once had {limited[1]} rate limit" in tuning.reason


def test_failed_rows_are_counted():
    """Rows that got no answer are failures of their setting; replies that were no use are asked once more as usual."""
    rules = bk.FunctionProvider(lambda text: "billing" if text.endswith("0") else "what?", name="rules")
    table = tune(rules, texts(20), LABELS).table
    assert table["failures"].tolist() == [18, 18]
    assert table["rate_limited"].tolist() == [0, 0]


def test_without_labels_any_reply_counts():
    """A function that knows nothing of labels can be tuned without naming any."""
    asked = []
    chatty = bk.FunctionProvider(lambda prompt: asked.append(prompt) or "well, who knows", name="chatty")
    tuning = tune(chatty, texts(5))
    assert tuning.table["failures"].tolist() == [0, 0]
    assert len(asked) == 10
    assert asked[0].labels == ("positive", "negative")


@pytest.mark.parametrize("sample", [list("abc"), tuple("abc"), pd.Series(list("abc"), index=[7, 7, 7], name=3)])
def test_samples_of_any_kind(sample):
    """Lists, tuples and Series are samples; what is asked is their texts, in their order."""
    asked = []
    tune(bk.FunctionProvider(lambda text: asked.append(str(text)) or "a", name="f"), sample, concurrency=1)
    assert asked == ["a", "b", "c"]


def test_a_frame_names_its_column():
    """Of a DataFrame one column or several are asked about, whatever else it holds, and it is left as it is."""
    frame = pd.DataFrame({"text": ["a", "b"], "stars": [1, 2], "label": ["mine", "mine"]})
    before = frame.copy()
    asked = []
    provider = bk.FunctionProvider(lambda text: asked.append(str(text)) or "a", name="f")
    tune(provider, frame, concurrency=1, column="text")
    tune(provider, frame, concurrency=1, column=["text", "stars"])
    assert asked == ["a", "b", "text: a\nstars: 1", "text: b\nstars: 2"]
    pd.testing.assert_frame_equal(frame, before)


def test_a_string_spec_will_do(monkeypatch):
    """A provider may be named by a spec; a key that is missing is noticed before anything is sent."""
    with pytest.raises(bk.ConfigError, match="OPENAI_API_KEY"):
        tune("openai:gpt-6-luna", texts(3))


def test_instructions_and_examples_reach_the_model():
    """What ``classify`` would be told, the model is told here."""
    asked = []
    provider = bk.FunctionProvider(lambda prompt: asked.append(prompt) or "billing", name="f")
    told = {"instructions": "Be brief.", "examples": [("a dear invoice", "billing")]}
    tune(provider, texts(2), LABELS, 1, **told)
    texts(2).llm.classify(LABELS, route=provider, progress=False, **told)
    assert "Be brief." in asked[0].system
    assert "a dear invoice" in asked[0].system
    assert len({prompt.system for prompt in asked}) == 1


# ---- batches ---------------------------------------------------------------------------------------


def test_batches_are_single_calls_collected():
    """Each pair is a setting of its own, in which the rows come as calls and leave in batches of that size at most."""
    seen = []

    def answer(prompts):
        seen.append(len(prompts))
        return ["billing"] * len(prompts)

    provider = bk.FunctionProvider(answer, batched=True, name="model")
    tuning = tune(provider, texts(24), LABELS, (), batches=[(8, 50), (24, 5)])
    assert tuning.table["setting"].tolist() == ["batches of 8, 50 s", "batches of 24, 5 s"]
    assert sorted(seen) == [8, 8, 8, 24]
    assert tuning.table["batch_size"].tolist() == [8, 24]
    assert tuning.table["batch_time"].tolist() == [50.0, 5.0]
    assert tuning.table["concurrency"].tolist() == [24, 24]
    assert tuning.table["failures"].tolist() == [0, 0]
    assert set(tuning.recommended) == {"max_batch_size", "max_batch_time"}
    assert bk.RunnableBatch(batch_fn=answer, **tuning.recommended).stats.calls == 0


def test_answers_of_collected_calls_reach_their_rows():
    """Whatever batch a row was in, the answer is its own, and a failure in the list is that row's."""

    def answer(prompts):
        return [ValueError("odd") if prompt.endswith("3") else "ab"[int(prompt[-1]) % 2] for prompt in prompts]

    tuning = tune(bk.FunctionProvider(answer, batched=True, name="f"), texts(10), ["a", "b"], (), batches=[(3, 0.05)])
    assert tuning.table["failures"].tolist() == [1]
    assert tuning.runs[0].frame["label"].drop(3).tolist() == ["a", "b", "a", "a", "b", "a", "b", "a", "b"]
    assert "odd" in tuning.runs[0].failed["label_message"].iloc[0]


def test_a_runnable_is_collected_as_runnable_batch_would():
    """A LangChain Runnable with a ``batch`` of its own gets lists, and its single calls beside them."""
    runnables = pytest.importorskip("langchain_core.runnables")

    class Model(runnables.Runnable):
        def __init__(self):
            self.sizes = []

        def invoke(self, input, config=None, **kwargs):
            self.sizes.append(1)
            return "billing"

        def batch(self, inputs, config=None, *, return_exceptions=False, **kwargs):
            self.sizes.append(len(inputs))
            return ["billing"] * len(inputs)

    model = Model()
    tuning = tune(bk.LangChain(model), texts(12), LABELS, 2, batches=[(6, 5.0)])
    assert model.sizes == [1] * 12 + [6, 6]
    assert tuning.table["failures"].tolist() == [0, 0]
    assert tuning.table["setting"].tolist() == ["2 at once", "batches of 6, 5 s"]


@pytest.mark.parametrize("make", [lambda: bk.OpenAI("m"), lambda: bk.FunctionProvider(len, name="f")])
def test_who_takes_one_row_a_request_takes_no_batches(make):
    """Providers that know no lists refuse batches, and say who takes them."""
    with pytest.raises(bk.ConfigError, match=r"bk\.LangChain.*batched=True.*takes one row a request"):
        tune(make(), texts(3), batches=[(8, 0.1)])


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"sample": []}, bk.InputError, "no text to ask about"),
        ({"sample": ["", None, " "]}, bk.InputError, "no text to ask about"),
        ({"sample": "one text"}, bk.InputError, "a Series, a list of texts or a DataFrame"),
        ({"sample": 7}, bk.InputError, "a Series, a list of texts or a DataFrame"),
        ({"sample": pd.DataFrame({"text": ["a"]})}, bk.InputError, "column=, one of 'text'"),
        ({"sample": pd.DataFrame({"text": ["a"]}), "column": "txt"}, bk.ColumnError, "Did you mean 'text'"),
        ({"column": "text"}, bk.InputError, "column='text' is for a DataFrame"),
        ({"labels": []}, bk.LabelError, "label"),
        ({"concurrency": ()}, bk.ConfigError, "nothing to try"),
        ({"concurrency": (1, 0)}, bk.ConfigError, "concurrency=0 must be a whole number of at least 1"),
        ({"concurrency": 2.5}, bk.ConfigError, "concurrency=2.5"),
        ({"concurrency": True}, bk.ConfigError, "concurrency=True"),
        ({"concurrency": "10"}, bk.ConfigError, "concurrency='10'"),
        ({"concurrency": None}, bk.ConfigError, "concurrency=None"),
        ({"concurrency": (5, 5)}, bk.ConfigError, "concurrency holds 5 twice"),
        ({"batches": 16}, bk.ConfigError, "batches=16 must be"),
        ({"batches": [16]}, bk.ConfigError, "batches holds 16, not a"),
        ({"batches": [(0, 0.1)]}, bk.ConfigError, "max_batch_size=0"),
        ({"batches": [(8, -1)]}, bk.ConfigError, "max_batch_time=-1"),
        ({"batches": [(8, 1), (8, 1.0)]}, bk.ConfigError, "twice"),
        ({"max_cost": 1.0}, bk.ConfigError, "price of f is not known"),
        ({"max_cost": 0}, bk.ConfigError, "max_cost=0"),
        ({"progress": "loud"}, bk.ConfigError, "progress='loud'"),
        ({"concurency": (1,)}, bk.UnknownKeyword, "Did you mean 'concurrency'"),
    ],
)
def test_mistakes_are_refused_before_anything_is_sent(settings, error, words):
    """What can be known beforehand is an error of our own tree, with the value and what it must be."""
    asked = []
    provider = bk.FunctionProvider(lambda prompts: asked.append(prompts) or ["a"], batched=True, name="f")
    with pytest.raises(error, match=words):
        bk.tune(provider, **{"sample": ["a", "b"], "progress": False, **settings})
    assert asked == []


def test_only_a_provider_is_tuned(play):
    """A route is no provider: who would get which row is not what is tuned."""
    with pytest.raises(bk.ConfigError, match="is no provider"):
        tune(bk.balance(play.one.provider(), play.narrow.provider()), texts(3))


def test_the_embedded_model_has_nothing_to_tune():
    """What computes in this process takes no requests at once, and says so."""
    with pytest.raises(bk.ConfigError, match="nothing to tune"):
        tune(bk.Embedded(), texts(3))


# ---- how it ends -----------------------------------------------------------------------------------


def test_max_cost_holds_for_all_settings_together(play):
    """Once the money is spent nothing is sent, the setting that was cut short is left out, and the reason says so."""
    price = {"price": (3.0, 15.0)}
    cost = tune(play.one.provider(**price), texts(20), LABELS, 1).table["cost"].iloc[0]
    assert cost > 0
    tuning = tune(play.one.provider(**price), texts(20), LABELS, (1, 2, 3, 4), max_cost=2.5 * cost)
    assert tuning.table["setting"].tolist() == ["serial", "2 at once"]
    assert tuning.table["cost"].tolist() == [pytest.approx(cost)] * 2
    assert tuning.reason.endswith("; not measured, for max_cost was reached: 3 at once, 4 at once.")
    assert 20 * cost / 20 * 3 <= play.one.counts["answered"] * cost / 20 <= 3.5 * cost
    assert tuning.recommended is not None


@pytest.mark.parametrize("concurrency", [(1, 2), (2,)])
def test_a_fault_of_every_row_ends_it(concurrency):
    """After a wrong key no other setting is tried, nothing is recommended, and the reason names the fault."""
    with bk.playground(answer=first, one={"api_key": "right"}) as play:
        with pytest.warns(bk.BatchkitWarning, match="auth"):
            tuning = tune(play.one.provider(api_key="wrong-key-for-tests"), texts(9), LABELS, concurrency)
        assert len(play.one.requests) <= 3
    assert tuning.recommended is None
    assert len(tuning.table) == 1
    assert tuning.table["failures"].tolist() == [9]
    assert tuning.reason.startswith("No row was answered at any setting")
    assert ("was stopped (auth)" in tuning.reason) is (len(concurrency) > 1)


def _acting_at(count, act):
    """A provider that does something while it answers the n-th prompt, and holds that one back."""
    asked, release = [], threading.Event()

    def answer(prompt):
        asked.append(str(prompt))
        if len(asked) == count:
            act()
            release.wait(10)
        return "a"

    return bk.FunctionProvider(answer, name="f"), asked, release


def test_an_interrupt_keeps_what_was_measured():
    """Ctrl-C raises `Interrupted` with the settings measured by then, and nothing more is asked."""
    provider, asked, release = _acting_at(25, _thread.interrupt_main)
    with pytest.raises(bk.Interrupted, match=r"2 of 4 settings are measured \(serial, 2 at once\)") as stopped:
        tune(provider, texts(10), None, (1, 2, 1_000, 4))
    release.set()
    tuning = stopped.value.tuning
    assert isinstance(tuning, bk.Tuning)
    assert tuning.table["setting"].tolist() == ["serial", "2 at once"]
    assert "not measured, for it was interrupted: 1000 at once, 4 at once" in tuning.reason
    assert len(asked) <= 30


def test_an_interrupt_in_the_first_setting_leaves_nothing():
    """Before the first setting is over there is nothing to keep, and the message says so."""
    provider, _, release = _acting_at(2, _thread.interrupt_main)
    with pytest.raises(bk.Interrupted, match="none of 2 settings is measured") as stopped:
        tune(provider, texts(10))
    release.set()
    assert stopped.value.tuning.table.empty
    assert stopped.value.tuning.recommended is None
    assert "Recommended: none" in repr(stopped.value.tuning)


def test_cancel_returns_what_was_measured():
    """The Cancel button ends the setting that goes on and those after it; the others are returned."""
    provider, _, release = _acting_at(15, lambda: (bk.last_run().cancel(), release.set()))
    tuning = tune(provider, texts(10), None, (1, 2, 4))
    assert tuning.table["setting"].tolist() == ["serial"]
    assert tuning.reason.endswith("not measured, for it was cancelled: 2 at once, 4 at once.")


# ---- how it looks ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tuned():
    def answer(prompts):
        return ["a"] * len(prompts)

    provider = bk.FunctionProvider(answer, batched=True, name="<b>model</b>")
    return tune(provider, texts(12), batches=[(4, 0.01), (12, 0.01)])


def test_it_shows_table_recommendation_and_reason(tuned):
    """In a terminal and in a notebook the same stands there; names are escaped, and no colour is set."""
    text, html = repr(tuned), tuned._repr_html_()
    for shown in (text, html):
        assert "12 rows at 4 settings" in shown
        assert "Recommended: max_" in shown
        assert "batches of 4, 0.01 s" in shown
        assert "→" in shown
    assert tuned.reason in text
    assert "<b>model</b>" not in html
    assert "&lt;b&gt;model&lt;/b&gt;" in html
    assert "color" not in html
    assert "overloaded" not in text


def test_progress_names_the_setting(capsys):
    """Each setting has a summary of its own, under its name."""
    tune(bk.FunctionProvider(lambda _: "a", name="f"), texts(3), progress="text")
    said = capsys.readouterr().err
    assert "tune, serial: 3 of 3 rows answered" in said
    assert "tune, 4 at once: 3 of 3 rows answered" in said


def test_it_draws_itself(tuned):
    """The plot is a picture that shows itself, or is drawn into axes of one's own."""
    assert tuned.plot(title="Mine")._repr_png_().startswith(b"\x89PNG")
    ax = Figure().subplots()
    assert tuned.plot(ax=ax) is ax
    assert len(ax.child_axes) == 4
    assert bk.compare(*tuned.runs)._repr_png_().startswith(b"\x89PNG")


def test_the_example_runs():
    """The example in the docstring does what it shows."""
    found = doctest.DocTestFinder().find(bk.tune, "tune")
    assert found
    assert found[0].examples
    assert all(doctest.DocTestRunner().run(test).failed == 0 for test in found)
