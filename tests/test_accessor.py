"""`df.llm` and `series.llm`."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import traceback
import warnings
from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk
from batchkit import accessor, settings, verbs

FACES = [(pd.DataFrame, accessor.FrameLLM), (pd.Series, accessor.SeriesLLM)]


@pytest.fixture
def rules():
    return bk.FunctionProvider(lambda text: "billing" if "charged" in text else "other", name="rules")


@pytest.fixture
def df():
    return pd.DataFrame({"text": ["I was charged twice", "Lovely shop"]}, index=[7, 7])


@pytest.fixture
def registered():
    """Put the accessors back as they were, whatever a test makes of them."""
    before = {kind: kind.__dict__["llm"] for kind, _ in FACES}
    yield
    for kind, face in before.items():
        kind.llm = face


# ---- what can be seen -------------------------------------------------------------------------


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_methods_have_the_verbs_real_signature(df, verb):
    """The methods show the verb's own parameters: on a frame all, on a Series all but `column` and `overwrite`."""
    own = inspect.signature(verbs.VERBS[verb]).parameters
    on_frame = inspect.signature(getattr(df.llm, verb)).parameters
    on_series = inspect.signature(getattr(df["text"].llm, verb)).parameters
    assert list(on_frame.values()) == list(own.values())[1:]
    assert list(on_series) == [name for name in on_frame if name not in ("column", "overwrite")]
    assert all(on_series[name] == on_frame[name] for name in on_series)


def test_classify_takes_what_the_contract_names(df):
    """`classify` takes column and labels by place and the contract's keywords by name."""
    parameters = inspect.signature(df.llm.classify).parameters
    assert list(parameters)[:2] == ["column", "labels"]
    named = {name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert named >= {
        "route", "instructions", "examples", "multi_label", "output_column", "overwrite", "details",
        "on_error", "confidence", "dedupe", "progress", "journal",
    }  # fmt: skip
    assert named | {"column", "labels"} == set(parameters)


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_docstrings_describe_the_parameters(df, verb):
    """Every parameter of a method has its entry in the method's docstring, and none that it lacks has."""
    for method in (getattr(df.llm, verb), getattr(df["text"].llm, verb)):
        doc = inspect.getdoc(method)
        for name in inspect.signature(getattr(df.llm, verb)).parameters:
            assert (f"\n{name} : " in doc) is (name in inspect.signature(method).parameters)
        assert [doc.count(f"\n{head}\n---") for head in ("Parameters", "Returns", "Raises", "Examples")] == [1] * 4
        assert method.__name__ == verb


@pytest.mark.parametrize(("face", "written"), [(accessor.FrameLLM, "df.llm."), (accessor.SeriesLLM, 'df["text"].llm.')])
def test_the_examples_run(face, written):
    """The examples in the docstrings of both faces do what they show."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for verb in verbs.VERBS:
        doc = inspect.getdoc(getattr(face, verb))
        found = parser.get_doctest(doc, {}, verb, None, None)
        assert found.examples
        assert f"{written}{verb}(" in doc
        assert runner.run(found).failed == 0


@pytest.mark.parametrize(("kind", "face"), FACES)
def test_the_class_shows_its_verbs(kind, face):
    """Without a frame at hand, `pd.DataFrame.llm` is the class that has the verbs, with docstrings."""
    assert kind.llm is face
    assert face.__doc__
    assert all(inspect.isfunction(getattr(face, verb)) for verb in verbs.VERBS)


def test_reprs_name_the_verbs(df):
    """Shown in a cell, an accessor says what it can do."""
    assert repr(df.llm) == "<df.llm: classify>"
    assert repr(df["text"].llm) == "<series.llm: classify>"


# ---- what it holds and gives --------------------------------------------------------------------


def test_the_accessor_holds_no_state(df, rules):
    """An accessor holds its frame and nothing else, before and after a verb."""
    series = df["text"]
    for held, llm in ((df, df.llm), (series, series.llm)):
        llm.classify(*["text"] * (held is df), ["billing", "other"], route=rules, progress=False)
        assert [value is held for value in vars(llm).values()] == [True]


def test_a_column_called_llm(rules):
    """A column of that name keeps its cells and hides no verb."""
    df = pd.DataFrame({"llm": ["I was charged twice"]})
    out = df.llm.classify("llm", ["billing", "other"], route=rules, progress=False)
    assert out["llm"].tolist() == ["I was charged twice"]
    assert out["label"].tolist() == ["billing"]


@pytest.mark.parametrize("name", ["text", "label", "label_error", None, 5, ("a", "b")])
def test_a_series_of_any_name_gives_its_answers(name, df, rules):
    """Whatever a Series is called, its answers come back under its index and the output's name."""
    series = df["text"].rename(name)
    out = series.llm.classify(["billing", "other"], route=rules, progress=False)
    assert out.name == "label"
    assert out.index.identical(series.index)
    assert out.tolist() == ["billing", "other"]
    assert series.name == name
    other = series.llm.classify(["billing", "other"], route=rules, output_column="topic", progress=False)
    assert other.name == "topic"


@pytest.mark.parametrize("keyword", [{"column": "text"}, {"overwrite": True}])
def test_a_series_has_no_column_to_name(df, rules, keyword):
    """Keywords about columns are unknown on a Series, and the error says why."""
    with pytest.raises(bk.UnknownKeyword, match=r"series\.llm\.classify has no keyword.*own values"):
        df["text"].llm.classify(["billing", "other"], route=rules, **keyword)


@pytest.mark.parametrize("face", [lambda df: df.llm.classify, lambda df: df["text"].llm.classify])
def test_an_unknown_keyword_names_the_nearest(df, face):
    """A misspelt keyword is refused on both faces."""
    with pytest.raises(TypeError, match=r"no keyword 'instruction'\. Did you mean 'instructions'") as caught:
        face(df)(labels=["a"], instruction="x")
    assert isinstance(caught.value, bk.ConfigError)


@pytest.mark.parametrize("name", sorted(settings.PROVIDER_SETTINGS))
def test_a_setting_of_the_provider_is_not_one_of_the_verb(df, name):
    """What belongs to a provider is refused with where it belongs."""
    with pytest.raises(bk.UnknownKeyword, match="it is a setting of the provider, as in route=") as caught:
        df.llm.classify("text", labels=["a"], **{name: 1})
    assert ("'gpt-6-luna'" if name == "model" else f"{name}=...") in str(caught.value)
    with pytest.raises(bk.UnknownKeyword, match=f"use has no keyword '{name}': it is a setting of the provider"):
        bk.use(**{name: 1})


def test_the_settings_of_providers_are_those_they_take():
    """None is missing among those that a verb says belong to a provider."""
    taken = {name for kind in (bk.OpenAI, bk.OpenAICompatible) for name in inspect.signature(kind).parameters}
    of_verbs = {*inspect.signature(pd.DataFrame({"a": []}).llm.classify).parameters, "name", "vendor", "dialect"}
    assert taken - of_verbs == settings.PROVIDER_SETTINGS


@pytest.mark.parametrize("way", ["call", "aio", "background", "plan"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"column": "txet"},
        {"labels": ["a", "a"]},
        {"route": "openai"},
        {"rout": 1},
        {"route": bk.when("lnag == 'zh'", None).otherwise(None)},
    ],
    ids=str,
)
def test_a_refusal_shows_the_users_line_and_little_else(df, rules, way, wrong):
    """Of a traceback, which a notebook prints in full, one line is the package's, and none is another library's."""
    face = {"call": df.llm, "aio": df.llm.aio, "background": df.llm.background, "plan": df.llm.plan}[way]
    settings = {"column": "text", "labels": ["a", "b"], "route": rules, **wrong}
    with pytest.raises((bk.ConfigError, bk.InputError)) as caught:
        asyncio.run(face.classify(**settings)) if way == "aio" else face.classify(**settings)
    files = [Path(entry.filename).name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-1] == "accessor.py"
    assert files.count("accessor.py") == 1
    assert caught.value.__cause__ is None


def test_a_refusal_shows_where_the_users_function_failed(df, rules):
    """What a condition's own function raised stays beside the refusal, with its line."""

    def condition(frame):
        return frame["no such column"]

    with pytest.raises(bk.RouteError) as caught:
        df.llm.classify("text", ["a"], route=bk.when(condition, rules).otherwise(None))
    assert "condition" in [entry.name for entry in traceback.extract_tb(caught.value.__cause__.__traceback__)]


@pytest.mark.parametrize("details", ["some", 1, 0, ["confidence"], "FULL"])
def test_odd_details_are_refused(df, rules, details):
    """`details` that are none of the choices are an error before anything is asked."""
    with pytest.raises(bk.ConfigError, match="details="):
        df.llm.classify("text", ["billing", "other"], route=rules, details=details, progress=False)


@pytest.mark.parametrize("journal", [True, 0, 1])
def test_a_journal_that_is_no_place_is_refused(df, rules, journal):
    """A journal is a path or False."""
    with pytest.raises(bk.ConfigError, match="neither a path nor 'off'"):
        df.llm.classify("text", ["billing", "other"], route=rules, journal=journal, progress=False)
    out = df.llm.classify("text", ["billing", "other"], route=rules, journal=False, progress=False)
    assert out["label"].tolist() == ["billing", "other"]


# ---- registering --------------------------------------------------------------------------------


def test_registering_again_is_silent(registered):
    """Registering twice changes nothing and warns of nothing."""
    before = [kind.__dict__["llm"] for kind, _ in FACES]
    accessor.register()
    assert [kind.__dict__["llm"] for kind, _ in FACES] == before


def test_reloading_is_silent(registered, df, rules):
    """A reloaded module, as autoreload makes them, takes its own place without a warning."""
    names = dict(vars(accessor))
    try:
        again = importlib.reload(accessor)
        again.register()
        assert pd.DataFrame.llm is again.FrameLLM is not names["FrameLLM"]
        out = df.llm.classify("text", ["billing", "other"], route=rules, progress=False)
        assert out["label"].tolist() == ["billing", "other"]
    finally:
        vars(accessor).update(names)


def test_somebody_elses_accessor_is_not_replaced_in_silence(registered):
    """If another package has taken the name, pandas says that it is taken over."""

    class Other:
        def __init__(self, frame):
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pd.api.extensions.register_dataframe_accessor("llm")(Other)
    with pytest.warns(UserWarning, match="overriding a preexisting attribute"):
        accessor.register()
    assert pd.DataFrame.llm is accessor.FrameLLM
