"""Routes on frames: each row gets its provider, or the route is refused before anything is sent."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.itinerary import NOBODY, Nobody, Seat
from batchkit.columns import Table, read
from batchkit.errors import ConfigError, RouteError
from batchkit.providers import Provider
from batchkit.routes import Compiled, balance, by, compile_route, split, when


class Named(Provider):
    """A provider that is nothing but a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class OfPlayground:
    """A server that has a provider and is none."""

    def provider(self) -> Provider:
        return A


A, B, C = Named("a"), Named("b"), Named("c")


def resolve(target: object) -> Provider:
    if isinstance(target, str) and target.startswith("spec:"):
        return Named(target)
    if isinstance(target, Provider):
        return target
    raise ConfigError(f"{target!r} is no provider spec.")


def frame_of(**columns: Any) -> pd.DataFrame:
    # As objects in every version of pandas, so that messages name the same dtype.
    lang = pd.Series(["zh", "en", "en", None], dtype=object)
    return pd.DataFrame({"text": ["one", "two", "", "four"], "lang": lang, **columns})


def compiled(route: Any, frame: pd.DataFrame) -> Compiled:
    return compile_route(route, read(frame, "text"), resolve)


def names(route: Any, frame: pd.DataFrame) -> list[str | None]:
    """Who is asked, row by row; several names where they share a queue."""
    found = compiled(route, frame)
    return [_asked(found, code) for code in found.codes]


def _asked(found: Compiled, code: int) -> str | None:
    node = found.itineraries[code]
    if isinstance(node, Nobody):
        return None
    assert isinstance(node, Seat)
    assert node.number == 0
    return "+".join(found.providers[number].name for number in sorted(node.providers))


def refusal(route: Any, frame: pd.DataFrame) -> str:
    with pytest.raises(RouteError) as caught:
        compiled(route, frame)
    return str(caught.value)


# ---- who is asked -----------------------------------------------------------------------------

CASES = [
    (A, ["a", "a", "a", "a"]),
    ("spec:m", ["spec:m"] * 4),
    (None, [None] * 4),
    (balance(A, B), ["a+b"] * 4),
    (when("lang == 'zh'", A).otherwise(B), ["a", "b", "b", "b"]),
    (when("lang == 'zh'", A).when("lang == 'en'", None).otherwise(B), ["a", None, None, "b"]),
    (when("lang == 'zh'", A).when("text != ''", B), ["a", "b", None, "b"]),
    (when(lambda frame: frame["lang"].isna(), A).otherwise(balance(A, B)), ["a+b", "a+b", "a+b", "a"]),
    (by("lang", {"zh": A, "en": B}, default=C), ["a", "b", "b", "c"]),
    (by("lang", {"zh": A, "en": None}, default=C), ["a", None, None, "c"]),
    (by(lambda frame: frame["text"].str.len(), {3: A, 4: B}), ["a", "a", None, "b"]),
    (split({A: 1, B: 3}), ["a", "b", "b", "b"]),
    (split({A: 1, B: ..., C: 1}), ["a", "b", "b", "c"]),
    (split({A: 4, B: ...}), ["a", "a", "a", "a"]),
    (split({A: 1.0, B: 0.0}), ["a", "a", "a", "a"]),
    (split({A: 0.0, B: 1.0}), ["b", "b", "b", "b"]),
    (split({A: 0, None: np.int64(4)}), [None] * 4),
    (when("lang == 'en'", split({A: 1, B: 1})).otherwise(C), ["c", "a", "b", "c"]),
    (by("lang", {"en": when("text == ''", A).otherwise(B)}, default=split({C: 2})), ["c", "b", "a", "c"]),
]


@pytest.mark.parametrize(("route", "expected"), CASES, ids=repr)
def test_every_row_goes_where_the_route_says(route: Any, expected: list[str | None]) -> None:
    """Rules, keys, counts, shares and queues, alone and nested, lead each row to its provider."""
    assert names(route, frame_of()) == expected


CONDITIONS = [
    pd.Series([True, False, True, False]),
    pd.Series([False, True, False, True], index=[3, 2, 1, 0]),
    pd.Series([True, False, True, False, True], index=[0, 1, 2, 3, 9]),
    np.array([True, False, True, False]),
    [True, False, True, False],
    [True, None, True, False],
    pd.Series([True, None, True, np.nan], dtype=object),
    pd.Series([True, None, True, pd.NA], dtype="boolean"),
    pd.array([True, None, True, False], dtype="boolean"),
    pd.Series(pd.Categorical([True, None, True, False])),
    pd.Series(pd.arrays.SparseArray([True, False, True, False])),
    pd.Index([True, False, True, False]),
    lambda frame: frame["ok"],
    lambda frame: frame["ok"].to_numpy(),
    lambda frame: frame.sort_values("ok")["ok"],
    "ok",
    "ok and index != 9",
    "`a name` > 1",
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: type(condition).__name__)
def test_every_kind_of_condition_selects_its_rows(condition: Any) -> None:
    """Expressions, Series in any order, arrays and functions select the same rows, missing being False."""
    frame = frame_of(ok=[True, False, True, False], **{"a name": [2, 1, 2, 1]})
    assert names(when(condition, A).otherwise(B), frame) == ["a", "b", "a", "b"]


def test_a_condition_sees_the_whole_frame() -> None:
    """A condition inside another rule is computed on all rows and applied to those that got there."""
    above_mean = when(lambda frame: frame["size"] > frame["size"].mean(), A).otherwise(B)
    frame = frame_of(size=[1, 2, 3, 100])
    assert names(when("size < 50", above_mean).otherwise(C), frame) == ["b", "b", "b", "c"]


def test_a_function_cannot_add_columns_to_the_frame() -> None:
    """A function that helps itself to a new column leaves the user's frame as it was."""

    def long(frame: pd.DataFrame) -> Any:
        frame["length"] = frame["text"].str.len()
        return frame["length"] > 3

    frame = frame_of()
    assert names(when(long, A).otherwise(B), frame) == ["b", "b", "b", "a"]
    assert "length" not in frame


def test_equal_itineraries_share_one_code() -> None:
    """A provider reached by two rules, or one queue written in two orders, is one itinerary."""
    assert len(compiled(when("lang == 'zh'", A).otherwise(A), frame_of()).itineraries) == 1
    found = compiled(when("lang == 'zh'", balance(A, B)).otherwise(balance(B, A)), frame_of())
    assert found.itineraries == (Seat(frozenset({0, 1}), 0),)
    assert found.codes.dtype == np.int32


def test_providers_come_in_order_of_first_mention() -> None:
    """Providers are listed as the route names them, those without a row included."""
    route = (
        when("lang == 'xx'", C).when("lang == 'yy'", split({B: 0, "spec:m": ...})).otherwise(by("lang", {"zh": A}, C))
    )
    assert [provider.name for provider in compiled(route, frame_of()).providers] == ["c", "b", "spec:m", "a"]


def test_equal_specs_are_one_provider() -> None:
    """A spec written twice in a route means one provider, resolved once."""
    found = compiled(when("lang == 'zh'", "spec:m").otherwise("spec:m"), frame_of())
    assert len(found.providers) == len(found.itineraries) == 1


def test_routes_are_frozen_against_later_changes() -> None:
    """A mapping changed after the route was made does not change the route."""
    arms: dict[Any, Any] = {"zh": A, "en": B}
    route = by("lang", arms, default=None)
    arms["en"] = C
    assert names(route, frame_of()) == ["a", "b", "b", None]


@pytest.mark.parametrize(
    ("route", "text"),
    [
        (
            when("lang == 'zh'", A).when(len, None).otherwise("m"),
            "when(\"lang == 'zh'\", a).when(len, None).otherwise('m')",
        ),
        (when(pd.Series([True], name="x"), A).when([True], B), "when(Series 'x', a).when(list, b)"),
        (
            by("lang", {"zh": A, 1: None}, default=balance(A, B)),
            "by('lang', {'zh': a, 1: None}, default=balance(a, b))",
        ),
        (split({A: 0.5, "m": 0.5}), "split({a: 0.5, 'm': 0.5})"),
        (split({A: 1, by("lang", {"zh": B}): ...}), "split({a: 1, by('lang', {'zh': b}): ...})"),
    ],
    ids=repr,
)
def test_a_route_reads_as_it_was_written(route: Any, text: str) -> None:
    """The repr is one line, in the words of the user."""
    assert repr(route) == text


# ---- against a row-by-row reference -----------------------------------------------------------

TEXTS = st.sampled_from(["", " ", "a", "bb", "ccc", "a\0b", "a\0c", "\ud800", "你好"])
LANGS = st.sampled_from(["zh", "en", "xx", None])


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64


@st.composite
def indexes(draw: st.DrawFn, size: int) -> pd.Index:
    def values(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(strategy, min_size=size, max_size=size))

    match draw(st.sampled_from(["range", "duplicates", "strings", "dates", "levels"])):
        case "duplicates":
            return pd.Index(values(st.integers(0, 3)), dtype="int64")
        case "strings":
            return pd.Index(values(st.text(max_size=3)), dtype=object, name="key")
        case "dates":
            days = st.sampled_from([pd.NaT, pd.Timestamp("2024-01-01"), pd.Timestamp("2024-02-29")])
            return pd.DatetimeIndex(values(days))
        case "levels":
            return pd.MultiIndex.from_arrays([values(st.integers(0, 2)), values(st.sampled_from(["x", "y", None]))])
        case _:
            return pd.RangeIndex(5, 5 + size)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.lists(st.tuples(TEXTS, LANGS, st.booleans()), max_size=12))
    texts, langs, flags = (
        (pd.Series(list(column), dtype=object) for column in zip(*rows, strict=True)) if rows else [[]] * 3
    )
    frame = pd.DataFrame({"text": texts, "lang": langs, "flag": np.array(flags, dtype=bool)})
    return frame.set_axis(draw(indexes(len(rows))), axis=0)


@given(frame=frames(), form=st.sampled_from(["expression", "series", "array", "function"]))
def test_rows_go_as_a_reader_of_the_route_would_send_them(frame: pd.DataFrame, form: str) -> None:
    """For any index and any form of the condition, each row goes where reading the route row by row sends it."""
    condition = {
        "expression": "flag",
        "series": frame["flag"],
        "array": frame["flag"].to_numpy(),
        "function": lambda seen: seen["flag"],
    }[form]
    shares = split({A: 0.25, B: 0.5, C: 0.25})
    route = when(condition, by("lang", {"zh": balance(A, B), "en": None}, default=C)).otherwise(shares)

    def reference(text: str, lang: str | None, flag: bool) -> str | None:
        if flag:
            return {"zh": "a+b", "en": None}.get(lang or "", "c")
        fraction = _fraction(text)
        return "a" if fraction < 0.25 else "b" if fraction < 0.75 else "c"

    table = read(frame, "text")
    found = compile_route(route, table, resolve)
    asked = [_asked(found, code) for code in found.codes]
    assert asked == [
        reference(text, lang, flag) for text, lang, flag in zip(table.texts, frame["lang"], frame["flag"], strict=True)
    ]


@given(
    rows=st.permutations(range(10)), condition=st.lists(st.sampled_from([True, False, None]), min_size=10, max_size=10)
)
def test_a_series_is_matched_by_its_labels(rows: list[int], condition: list[bool | None]) -> None:
    """A condition in any order, with rows to spare and values missing, is matched by label and not by place."""
    frame = pd.DataFrame({"text": [f"row {row}" for row in rows[:6]]}, index=rows[:6])
    asked = names(when(pd.Series(condition, dtype=object), A).otherwise(B), frame)
    assert asked == ["a" if condition[row] else "b" for row in rows[:6]]


@given(texts=st.lists(TEXTS, max_size=20), extra=st.lists(TEXTS, max_size=5), random=st.randoms())
def test_shares_depend_on_the_text_alone(texts: list[str], extra: list[str], random: Any) -> None:
    """Shuffling, appending and another index leave every text at its provider."""
    route = split({A: 0.3, B: 0.3, C: 0.4})
    before = _by_text(route, texts)
    shuffled = texts + extra
    random.shuffle(shuffled)
    after = _by_text(route, shuffled)
    assert {text: after[text] for text in before} == before


def _by_text(route: Any, texts: list[str]) -> dict[str, str | None]:
    frame = pd.DataFrame({"text": pd.Series(texts, dtype=object)})
    found: dict[str, str | None] = {}
    for text, name in zip(read(frame, "text").texts, names(route, frame), strict=True):
        assert found.setdefault(text, name) == name
    return found


@pytest.mark.parametrize(
    "route", [split({A: 0.2, B: 0.8}), split({split({A: 0.2, B: 0.8}): 0.5, split({A: 0.2, C: 0.8}): 0.5})]
)
def test_shares_hold_in_expectation(route: Any) -> None:
    """About the given share of many texts goes to each provider, within another split too."""
    asked = names(route, pd.DataFrame({"text": [f"message {number}" for number in range(5_000)]}))
    assert abs(asked.count("a") / len(asked) - 0.2) < 0.03


@given(shares=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any))
def test_no_text_falls_between_shares(shares: list[int]) -> None:
    """However rounding falls, every row gets a provider, and none with a share of zero."""
    total = sum(shares)
    route = split({Named(f"{place}:{share}"): share / total for place, share in enumerate(shares)})
    asked = names(route, pd.DataFrame({"text": [str(number) for number in range(50)]}))
    assert not [name for name in asked if name is None or name.endswith(":0")]


# ---- what is refused on a frame ---------------------------------------------------------------


def _fails(frame: pd.DataFrame) -> Any:
    return frame["no such column"]


BAD_CONDITIONS = [
    ("lang ==", ["SyntaxError", "'text', 'lang'"]),
    ("langs == 'zh'", ["langs", "The columns are 'text', 'lang'."]),
    ("size > @limit", ["limit", "use a function of the frame"]),
    ("@frame.shape[0] > 1", ["frame", "use a function of the frame"]),
    ("1 == 1", ["not one value per row"]),
    ("x = lang == 'zh'", ["a single = assigns. Write == to compare."]),
    ("lang = 'zh'", ["a single = assigns. Write == to compare."]),
    ("lang == zh", ["A text stands in quotes: 'zh'."]),
    ("lnag == 'zh'", ["Did you mean 'lang'?"]),
    ("df.lang == 'zh'", ["names the columns alone"]),
    ("lang == 'zh' AND text == ''", ["Write and, or, not."]),
    ("lang == 'zh' && text == ''", ["Write and, or, not."]),
    ("lang is None", ["Write column.isna()"]),
    ("my lang == 'zh'", ["Write the column as `my lang`, between backticks."]),
    ("len(text) > 3", ["a function of the frame can: lambda df:"]),
    (lambda row: "a" if row["lang"] == "zh" else "b", ["whole DataFrame and not a row"]),
    ("lang", ["this gives 'zh' at position 0 (dtype object), not a boolean"]),
    (_fails, ["when(_fails)", "KeyError", "no such column", "'text', 'lang'"]),
    (lambda frame: True, ["when(<lambda>)", "this gives True, not one value per row"]),
    (lambda frame: frame, ["this gives a DataFrame, not one value per row"]),
    (lambda frame: frame["text"].str.len(), ["int64", "3, 3, 0, 4", "not booleans"]),
    (lambda frame: [True, "yes", None, 1], ["'yes' at position 1", "object", "not a boolean"]),
    (lambda frame: frame["text"].str.len() / 2, ["float64"]),
    ([True], ["1 values for 4 rows"]),
    (np.ones((4, 1), dtype=bool), ["shape (4, 1)"]),
    (
        pd.Series([True] * 4, index=[0, 1, 2, 5], name="mine"),
        ["Series 'mine'", "no value for 1 of 4 rows", "labels 3)"],
    ),
    (pd.Series([True] * 5, index=[0, 1, 2, 3, 3]), ["duplicates", "5 values", "4 rows"]),
    (pd.Series([True] * 4, index=list("abcd")), ["no value for 4 of 4 rows"]),
    (pd.Series([True], index=pd.MultiIndex.from_tuples([(0, 1)])), ["has 2 levels, the frame's 1"]),
    (pd.Series([True, True], index=pd.IntervalIndex.from_tuples([(0, 2), (1, 3)])), ["cannot be matched"]),
]


@pytest.mark.parametrize(("condition", "parts"), BAD_CONDITIONS, ids=[str(parts[0]) for _, parts in BAD_CONDITIONS])
def test_a_condition_that_gives_no_booleans_is_refused(condition: Any, parts: list[str]) -> None:
    """A condition that fails, or gives anything but one boolean per row, is refused naming rule and reason."""
    frame = frame_of(**{"my lang": "en"} if "my lang" in str(condition) else {})
    message = refusal(when("lang == 'zh'", A).when(condition, B).otherwise(C), frame)
    for part in ["(condition 2 of the route): ", *parts]:
        assert part in message


def test_the_cause_of_a_refusal_is_kept() -> None:
    """The exception a condition raised is the refusal's cause."""
    with pytest.raises(RouteError) as caught:
        compiled(when(_fails, A).otherwise(B), frame_of())
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("route", "parts"),
    [
        (
            when("lang == 'zh'", A),
            ["when(\"lang == 'zh'\", a): 2 of 4 rows", "positions 1, 3 ", "labels 11, 13", ".otherwise("],
        ),
        (by("lang", {"zh": A}), ["by(lang): 2 of 4 rows", "('en', None)", "positions 1, 3 ", "default="]),
        (by("lng", {"zh": A}), ["by(lng): ", "Did you mean 'lang'?"]),
        (by(_fails, {"zh": A}), ["by(_fails): KeyError", "'text', 'lang'"]),
        (by(lambda frame: ["zh"], {"zh": A}), ["1 values for 4 rows"]),
        (by(lambda frame: pd.Series(["zh"] * 4), {"zh": A}), ["no value for 4 of 4 rows"]),
        (by(lambda frame: [["zh"]] * 4, {"zh": A}), ["3 of 4 rows", "(['zh'])"]),
        (split({A: 1, B: 2}), ["split({a: 1, b: 2})", "add up to 3", "4 rows"]),
        (split({A: 3, B: 2}), ["add up to 5", "4 rows"]),
        (split({A: 5, B: ...}), ["add up to 5", "4 rows"]),
        (when("lang == 'zh'", split({A: 2})).otherwise(B), ["split({a: 2})", "add up to 2", "1 rows"]),
        (when("lang == 'zh'", "spec").otherwise(B), ["when(lang == 'zh') (condition 1 of the route): 'spec'"]),
        (by("lang", {"zh": "spec"}, default=B), ["by(lang)['zh']: 'spec'"]),
        (split({A: 2, Named("a"): 2}), ["split({a: 2, a: 2})", "two different providers are called 'a'", "name="]),
        (balance(A, Named("a")), ["balance(a, a): two different providers are called 'a'"]),
        (5, ["route: 5 is no route"]),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_route_that_does_not_fit_the_frame_is_refused(route: Any, parts: list[str]) -> None:
    """Rows without a route, unknown keys, counts that do not add up and equal names are refused with the numbers."""
    message = refusal(route, frame_of().set_axis([10, 11, 12, 13], axis=0))
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("key", "arms", "near"),
    [
        ("lang", {"ZH": A}, "1 whose key is nearly one of the route's: 'zh' is not 'ZH'."),
        ("lang", {" zh": A, "En": B}, "3 whose key is nearly one of the route's: 'zh' is not ' zh', 'en' is not 'En'."),
        ("stars", {"1": A, "2": B}, "4 whose key is nearly one of the route's: 1 is not '1', 2 is not '2'."),
        ("lang", {"zh": A, "ZH": B}, None),
        ("lang", {"fr": A}, None),
        (lambda frame: [["zh"]] * 4, {"zh": A}, None),
    ],
)
def test_a_key_that_is_nearly_one_of_the_routes_is_told(key: Any, arms: Any, near: str | None) -> None:
    """Rows that go to the default for a letter's case, a blank or a type are said to; others are not."""
    news = compiled(by(key, arms, default=C), frame_of(stars=[1, 1, 2, 2])).news
    assert len(news) == (near is not None)
    assert all(near in said for said in news if near is not None)


def test_a_long_list_of_rows_is_cut() -> None:
    """A refusal over many rows shows the first few and counts the others."""
    message = refusal(when("text == ''", A), pd.DataFrame({"text": ["x"] * 100}))
    assert "100 of 100 rows match no condition: positions 0, 1, 2, 3, 4 and 95 more" in message


def test_a_bad_spec_alone_keeps_its_own_words() -> None:
    """Where the whole route is a spec that names no provider, the resolver's refusal comes through."""
    with pytest.raises(ConfigError, match=r"^'spec' is no provider spec"):
        compiled("spec", frame_of())


def test_blank_rows_need_no_route() -> None:
    """Rows with nothing to ask may match nothing, and are asked of nobody."""
    found = compiled(when("text != ''", A), frame_of())
    assert found.itineraries[found.codes[2]] is NOBODY


@pytest.mark.parametrize(
    "route",
    [
        when("lang == 'zh'", A),
        by("lang", {"zh": A}),
        split({A: 0}),
        split({A: 0.5, B: 0.5}),
        when([], A),
        balance(A, B),
    ],
    ids=repr,
)
def test_an_empty_frame_fits_any_route(route: Any) -> None:
    """A frame without rows has nothing to refuse, and the route's providers all the same."""
    table = Table(frame_of().iloc[:0], ("text",), np.array([], dtype=object), np.array([], dtype=bool))
    found = compile_route(route, table, resolve)
    assert len(found.codes) == 0
    assert found.providers[0] is A


# ---- what is refused as it is written ---------------------------------------------------------

BAD_ROUTES = [
    (lambda: when("x", 5), "when(x): 5 is no route"),
    (lambda: when("x", Provider), "when(x): Provider is a class. Give one of its providers: Provider(...)."),
    (lambda: when("x", int), "is no route"),
    (lambda: when(True, A), "when(True): True is no condition"),
    (lambda: when(pd.DataFrame({"x": [True]}), A), "is no condition"),
    (lambda: when("x", A).otherwise([A]), "otherwise: [a]"),
    (lambda: when("x", [A, B]), "Several providers share the rows in balance(a, b)."),
    (lambda: when("x", {"zh": A}), "A dict of key -> route goes into by(column, {...})"),
    (lambda: when("x", lambda text: "a"), "bk.FunctionProvider(fn), one that chooses into by(fn, {...})"),
    (lambda: when("x", when("y", A).otherwise), "when('y', a).otherwise stands there without its brackets"),
    (lambda: when("x", OfPlayground()), "A playground's server gives one with .provider()."),
    (lambda: when(A, "x"), "It comes first, then the route."),
    (lambda: balance([A, B]), "give them one by one and not as a list: balance(a, b)"),
    (
        lambda: when("x", A).otherwise(B).otherwise(C),
        "when('x', a).otherwise(b): .otherwise() comes after .otherwise()",
    ),
    (lambda: when("x", A).otherwise(None).when("y", C), ".when() comes after .otherwise()"),
    (lambda: by("lang", {}), "by(lang): give a dict of key -> route with at least one key, not {}"),
    (lambda: by("lang", [("zh", A)]), "give a dict"),
    (lambda: by(["lang"], {"zh": A}), "the key is a column label or a function"),
    (lambda: by("lang", {"zh": 5}), "by(lang)['zh']: 5 is no route"),
    (lambda: by("lang", {"zh": A}, default=5), "by(lang), default: 5 is no route"),
    (lambda: by("lang", {None: A}), "None is no key"),
    (lambda: by("lang", {float("nan"): A}), "nan is no key"),
    (lambda: split({}), "at least one route, not {}"),
    (lambda: split([A, B]), "give a dict"),
    (lambda: split({A: 1, 5: 2}), "split: 5 is no route"),
    (lambda: split({A: True, B: ...}), "True for a is neither a count"),
    (lambda: split({A: -1, B: ...}), "-1 for a is neither a count"),
    (lambda: split({A: -0.5, B: 1.5}), "-0.5 for a"),
    (lambda: split({A: float("nan"), B: 1.0}), "nan for a"),
    (lambda: split({A: "half"}), "'half' for a"),
    (lambda: split({A: "70%", B: "30%"}), "a share (a float such as 0.7)"),
    (lambda: split({A: 0.5, B: 0.4}), "the shares sum to 0.9, not to 1"),
    (lambda: split({A: float("inf")}), "the shares sum to inf, not to 1"),
    (lambda: split({A: 0.5, B: 1}), "are mixed"),
    (lambda: split({A: 0.5, B: ...}), "are mixed"),
    (lambda: split({A: ..., B: ...}), "only one part can be ..."),
    (lambda: balance(A), "balance(a): give at least two providers, each once"),
    (lambda: balance(A, A), "each once"),
    (lambda: balance(A, B, A), "each once"),
    (lambda: balance("spec:m", "spec:m"), "each once"),
    (lambda: balance(A, None), "not None"),
    (lambda: balance(A, when("x", B)), "not when('x', b)"),
]


@pytest.mark.parametrize(("build", "part"), BAD_ROUTES, ids=[part for _, part in BAD_ROUTES])
def test_what_no_frame_could_make_good_is_refused_at_once(build: Any, part: str) -> None:
    """A route that is wrong on every frame is refused where it is written."""
    with pytest.raises(RouteError) as caught:
        build()
    assert part in str(caught.value)


@pytest.mark.parametrize("prefer", ["cheaper", "faster"])
def test_a_preference_is_not_ignored(prefer: Any) -> None:
    """A preference that nothing could honour yet is refused, saying why."""
    with pytest.raises(ConfigError, match=f"prefer='{prefer}'.*prices"):
        balance(A, B, prefer=prefer)
