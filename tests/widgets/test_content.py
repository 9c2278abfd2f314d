"""What is shown of a run, and that it can be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.progress import LaneSnapshot, Snapshot
from batchkit.records import ERROR_KINDS, Failure, Scope
from batchkit.widgets.content import COLOURS, Pace, bundle, picture, render_html, render_line, render_text

WHITE, DARK = "#ffffff", "#111111"


def lane(name="fast", **values):
    needed = {"in_flight": 0, "requests": 0, "answered": 0, "failed": 0, "tokens_in": 0, "tokens_out": 0}
    return LaneSnapshot(name, **{**needed, "paused_until": None, "stopped": None, **values})


def snapshot(*lanes, rows=100, finished=None, errors=(), **values):
    errors = dict(errors)
    answered = sum(lane.answered for lane in lanes)
    return Snapshot(rows, answered, sum(errors.values()), errors, lanes, finished, **values)


def text(*lanes, pace=None, **values):
    return render_text(picture("label", snapshot(*lanes, **values), pace))


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


BUSY = lane(
    answered=40, failed=2, retrying=3, in_flight=4, requests=48, tokens_in=4800, tokens_out=400, cost=0.02,
    p50=0.21, p99=1.5, open_rows=58, open_units=58, expected=58.0, slots=4,
)  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "label: 42 of 100 rows (42 %), 4.0 s",
        "fast: 42 of 100 rows (40 answered, 2 failed, 3 retrying, 4 of 4 in flight)",
        "10.5 rows/s",
        "about 5.5 s left",
        "p50 0.21 s, p99 1.50 s",
        "4,800 tokens in, 400 out",
        "$0.0200 of about $0.0476",
        "2 rows failed (timeout), e.g. no answer within 60 s",
        "7 of 100 already answered",
        "5 of 100 are duplicates",
    ],
)
def test_all_of_it_is_said_in_html_and_in_text(said):
    """Text and HTML hold the same: counts, pace, latency, time left, tokens, cost, errors and what was saved."""
    now = snapshot(
        BUSY, elapsed=4.0, errors={"timeout": 2}, examples={"timeout": "no answer within 60 s"}, reused=7, duplicates=5
    )
    shown = picture("label", now)
    assert said in render_text(shown)
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", render_html(shown)).replace("&nbsp;", " "))
    for part in re.split(r"[():;,]| of about ", said):
        assert part.strip() in plain


def test_what_a_provider_waits_for():
    """A pause, a limit, a retry and a start are told apart, and a provider that works waits for nothing."""
    waits = {
        "waiting 12 s: it asked for fewer requests": lane(requests=1, paused_until=112.0),
        "waiting for its limit: 240 requests a minute": lane(
            requests=9, in_flight=1, open_units=50, held_by="240 requests a minute"
        ),
        "waiting a moment before asking again": lane(requests=9, retrying=2, open_units=2),
        "getting ready": lane(open_rows=9, open_units=9),
        "stopped (auth): wrong key": lane(stopped=Failure("auth", "wrong key", Scope.PROVIDER)),
    }
    for said, waiting in waits.items():
        assert f"fast: {said}" in text(waiting, now=100.0)
    busy = lane(requests=9, in_flight=4, open_units=50, paused_until=99.0)
    assert picture("label", snapshot(busy, now=100.0)).bars[0].notes == ()


def test_an_unknown_price_is_unknown():
    """Neither nothing nor a guess is shown where the price is not known."""
    unknown = lane(answered=5, requests=5, open_rows=95, expected=95.0, cost=None, cost_is_partial=True)
    assert "price unknown" in text(unknown)
    assert "$" not in text(unknown)
    partly = text(lane(answered=5, requests=5, open_rows=95, expected=95.0, cost=0.5, cost_is_partial=True))
    assert "$0.5000 and some unknown" in partly
    assert "of about $" not in partly


def test_rows_that_several_share_are_estimated():
    """A provider's part of shared rows is called an estimate, rows of its own are not."""
    assert "10 of about 40 rows" in text(lane(answered=10, open_rows=90, expected=30.0), lane("other"))
    assert "10 of 40 rows" in text(lane(answered=10, open_rows=30, expected=30.0), lane("other"))


@pytest.mark.parametrize(
    ("finished", "said"),
    [
        ("done", "label: 60 of 100 rows answered, 40 not answered, in 3.0 s"),
        ("cancelled", "label: Cancelled: 60 of 100 rows answered"),
        ("interrupted", "label: Interrupted: 60 of"),
        ("raised", "label: Ended at the first row that failed: 60 of"),
        ("max_cost", "label: Ended, for max_cost was reached: 60 of"),
        ("max_seconds", "label: Ended, for max_seconds were over: 60 of"),
    ],
)
def test_how_a_run_ended(finished, said):
    """The summary begins with how the run ended, and speaks of nothing that is still to come."""
    shown = text(lane(answered=60, open_rows=40, expected=40.0), finished=finished, elapsed=3.0)
    assert shown.startswith(said)
    assert "fast: 60 of 100 rows" in shown
    assert "left" not in shown
    assert "about" not in shown


@given(st.integers(1, 10**7), st.floats(0, 1))
def test_no_hundred_percent_before_the_end(rows, share):
    """However many rows there are, 100 % is said when all are done and not before."""
    done = int(rows * share)
    said = re.search(r"\((\d+) %\)", text(lane(answered=done, expected=float(rows - done)), rows=rows)).group(1)
    assert (said == "100") == (done == rows)


counts = st.integers(0, 10**6)
lanes = st.builds(
    lane,
    st.text(max_size=20),
    in_flight=counts, requests=counts, answered=counts, failed=counts, retrying=counts,
    tokens_in=counts, tokens_out=counts, open_rows=counts, open_units=counts, expected=st.floats(0, 1e6),
    paused_until=st.none() | st.floats(0, 1e6), cost=st.none() | st.floats(0, 1e6), cost_is_partial=st.booleans(),
    stopped=st.none() | st.builds(Failure, st.sampled_from(ERROR_KINDS), st.text()),
    adapted=st.tuples(st.text()), p50=st.floats(0, 1e4), p99=st.floats(0, 1e4),
    slots=st.none() | st.integers(1, 64),
)  # fmt: skip
snapshots = st.builds(
    lambda several, finished, elapsed, errors: snapshot(
        *several, rows=10**7, finished=finished, elapsed=elapsed, errors=dict.fromkeys(errors, 3), examples=errors
    ),
    st.lists(lanes, max_size=3),
    st.none() | st.sampled_from(["done", "cancelled", "raised", "something new"]),
    st.floats(0, 1e6),
    st.dictionaries(st.sampled_from(ERROR_KINDS), st.text()),
)


class Tags(HTMLParser):
    """Collects what is no text, and how many tags stay open."""

    def __init__(self):
        super().__init__()
        self.names, self.attributes, self.open = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@given(st.text(), snapshots, st.text())
def test_nothing_but_our_own_markup(title, now, note):
    """Whatever titles, names and errors hold, the HTML has our tags and inline styles only, all closed."""
    tags = Tags()
    tags.feed(render_html(picture(title, now, notes=(note,))))
    tags.close()
    assert tags.names <= {"div", "b", "span"}
    assert tags.attributes <= {"style", "role", "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow"}
    assert tags.open == []


@given(snapshots)
def test_a_bar_is_never_more_than_full(now):
    """The parts of a bar never come to more than the whole."""
    for bar in picture("label", now).bars:
        assert sum(part.share for part in bar.parts) <= 1 + 1e-9
        assert all(part.share >= 0 for part in bar.parts)


@given(snapshots)
def test_a_line_is_one_line(now):
    """The line for a log has no break in it."""
    assert len(render_line(picture("label", now)).splitlines()) == 1


def test_markup_in_errors_and_names_is_text():
    """Script tags in a title, a provider's name, an error or a note are shown as they are written."""
    evil = "<script>alert('x')</script>"
    stopped = Failure("auth", evil, Scope.PROVIDER)
    now = snapshot(lane(evil, stopped=stopped, adapted=(evil,)), errors={"auth": 1}, examples={"auth": evil})
    html = render_html(picture(evil, now, notes=(evil,)))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 8


def test_a_long_error_is_cut():
    """An error of many lines and characters takes one line of 200."""
    said = picture("label", snapshot(lane(), errors={"server": 1}, examples={"server": "long\n" * 1000})).errors[0]
    assert "\n" not in said
    assert len(said) < 250
    assert said.endswith("…")


@pytest.mark.parametrize("colour", COLOURS.values(), ids=COLOURS)
@pytest.mark.parametrize("ground", [WHITE, DARK])
def test_colours_stand_out_in_light_and_dark(colour, ground):
    """Bars and legends have the contrast of 3 : 1 that graphics need, on white and on near black."""
    assert contrast(colour, ground) >= 3


def test_text_takes_the_colour_of_its_page():
    """No text has a colour of its own, for none is legible on white and on near black alike."""
    html = render_html(picture("label", snapshot(BUSY, elapsed=4.0)))
    assert not re.search(r"(?<!background-)(?<!border-)color:", html)
    best = max(
        min(contrast(f"#{grey:02x}{grey:02x}{grey:02x}", ground) for ground in (WHITE, DARK)) for grey in range(256)
    )
    assert best < 4.5


@pytest.mark.parametrize("html", [True, False])
def test_what_a_notebook_stores(html):
    """A notebook gets text, and HTML where it is wanted."""
    assert sorted(bundle(picture("label", snapshot(BUSY)), html=html)) == ["text/html", "text/plain"][not html :]


def test_the_pace_is_that_of_the_last_seconds():
    """A run that was fast and is slow now is called slow; rows that cost nothing do not count."""
    pace = Pace()
    assert pace.by_lane() == ()
    for second in range(40):
        done = 100 * min(second, 20) + max(0, second - 20)
        pace.add(snapshot(lane(answered=done + 5000, reused=5000), elapsed=float(second)))
    assert pace.by_lane() == (1.0,)


@pytest.mark.parametrize("stop", [90.0, 5000.0])
def test_the_time_left_is_true_after_a_standstill(stop):
    """A process that stood still shows the pace and the time left that are true, but for a moment."""
    paces, pace, rows = [], Pace(), 0
    for tick in range(300):  # five looks a second at ten rows a second, and in the middle none for a while
        rows += 2
        elapsed = tick / 5 + (stop if tick >= 150 else 0.0)
        pace.add(snapshot(lane(answered=rows), elapsed=elapsed))
        shown = text(lane(answered=rows, expected=1000.0 - rows), pace=pace, elapsed=elapsed)
        paces.append(re.search(r"([0-9.]+) rows/s; about (.+?) left", shown))
    assert [found[1] for found in paces[1:150] + paces[151:]] == ["10.0"] * 298
    assert 0 <= float(paces[150][1]) < 10
    assert paces[-1][2] == "40 s"


def test_a_pace_of_no_time_is_unknown():
    """Two looks at the same moment tell no pace."""
    pace = Pace()
    for _ in range(2):
        pace.add(snapshot(lane(answered=3), elapsed=0.0))
    assert pace.by_lane() == ()
    assert "rows/s" not in text(lane(answered=3, expected=97.0), pace=pace)


def test_a_run_that_stands_still():
    """With nothing done lately the time left is unknown, not infinite."""
    pace = Pace()
    for second in (0.0, 5.0):
        pace.add(snapshot(BUSY, elapsed=second))
    assert "0.0 rows/s; time left unknown" in text(BUSY, pace=pace, elapsed=5.0)


def test_an_error_commands_no_terminal():
    """Control characters of an error, a name or a title do not reach the terminal."""
    evil = "red \x1b[31m\x07\r\nline"
    shown = picture(evil, snapshot(lane(evil), errors={"server": 1}, examples={"server": evil}))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", render_text(shown))
