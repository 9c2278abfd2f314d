"""What all pictures share: how they show themselves, their colours, their letters."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from invented import PNG, requests_of, run_of
from matplotlib import font_manager
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from batchkit.plots import _canvas, compare, dashboard, latency, throughput, timeline
from batchkit.plots._canvas import COLOURS, PROVIDERS, drawable, families, number

REQUESTS = requests_of(30, failed=3)
KINDS = ["server", "timeout", "connection", "rate_limited", "function", "internal"]
CROWDED = requests_of(40_000, providers=("openrouter:a-vendor/a-long-name-of-a-model", "b"))
CROWDED.loc[::7, "error"] = [KINDS[i % 6] for i in range(len(CROWDED.loc[::7]))]
PICTURES = {
    "timeline": lambda requests, **more: timeline(requests, **more),
    "latency": lambda requests, **more: latency(requests, **more),
    "throughput": lambda requests, **more: throughput(requests, **more),
    "dashboard": lambda requests, **more: dashboard(requests, **more),
}
SEEN = {
    "all cones": np.eye(3),
    "no red cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""How colours look to other eyes, in linear RGB (Machado, Oliveira and Fernandes 2009)."""


def lab(colour, eyes):
    """A colour in CIE Lab, where distances are about as large as they look."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(SEEN[eyes]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("palette", [list(COLOURS.values()), list(PROVIDERS)], ids=["outcomes", "providers"])
def test_colours_are_told_apart_by_any_eyes(palette, eyes):
    """No two colours of a palette look alike, with any kind of colour blindness."""
    for one, other in itertools.combinations(palette, 2):
        assert np.linalg.norm(lab(one, eyes) - lab(other, eyes)) > 12, (one, other)


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_names_are_text_and_not_formulas(draw):
    """A dollar sign, a backslash or a line break in a name or title is drawn as it is."""
    requests = requests_of(8, providers=("$bad_{", "\\frac\n" * 40))
    assert draw(requests, title=r"$\nope" + "\n").savefig is not None
    assert draw(requests, title=r"$\nope")._repr_png_().startswith(PNG)


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_chinese_is_drawn_or_boxed_without_a_warning(draw, monkeypatch):
    """Without a font for them, characters are boxes and nobody is warned; warnings are errors here."""
    monkeypatch.setattr(_canvas, "families", lambda: ["DejaVu Sans"])
    _canvas._characters.cache_clear()
    try:
        assert drawable("通义 qwen 🙂") == "□□ qwen □"
        assert draw(requests_of(8, providers=("通义千问", "b")), title="标题")._repr_png_().startswith(PNG)
    finally:
        _canvas._characters.cache_clear()


@pytest.mark.skipif(len(families()) < 2, reason="no font with Chinese characters here")
@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_chinese_is_drawn_where_a_font_has_it(draw):
    """Where a font is installed, Chinese names stay as they are."""
    assert drawable("通义千问") == "通义千问"
    picture = draw(requests_of(8, providers=("通义千问", "b")), title="标题")
    assert picture._repr_png_().startswith(PNG)


def test_a_font_installed_after_matplotlibs_list_is_found(monkeypatch):
    """A list of fonts older than the font is no reason for boxes."""
    (path,) = [font.fname for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans Mono"][:1]
    added = []
    monkeypatch.setattr(_canvas, "_CHINESE", ("no such font",))
    monkeypatch.setattr(_canvas, "_FILES", ("dejavusansmono",))
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [path, "/nowhere/other.ttf"])
    monkeypatch.setattr(font_manager.fontManager, "addfont", added.append)
    assert families.__wrapped__() == ["DejaVu Sans"]
    assert all("dejavusansmono" in str(name).lower() for name in added)


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), "–"), (0.0, "0"), (3.0, "3"), (0.01234, "0.0123"), (1234.5, "1,234")]
)
def test_numbers_are_short(value, text):
    """Numbers have three digits, thousands are grouped, and a missing one is a dash."""
    assert number(value) == text


@pytest.mark.parametrize("draw", [timeline, latency, throughput])
def test_axes_of_ones_own_are_drawn_into(draw):
    """``ax=`` draws there and returns it."""
    figure = Figure()
    ax = figure.subplots()
    assert draw(REQUESTS, ax=ax, title="Mine") is ax
    assert ax.get_title(loc="left") == "Mine"


@pytest.mark.parametrize(
    "picture", [*PICTURES.values(), lambda _: compare({"a": run_of(3, 1.0)})], ids=[*PICTURES, "compare"]
)
def test_letters_lie_within_the_picture(picture):
    """No text is cut off at the edge of a picture."""
    drawn = picture(CROWDED)
    drawn._repr_png_()
    for ax in drawn.axes:
        for text in [*ax.texts, ax.title, ax.xaxis.label]:
            box = text.get_window_extent()
            assert not text.get_text() or (box.x0 >= 0 and box.x1 <= drawn.bbox.x1)


def test_no_picture_needs_pyplot():
    """Drawing imports no pyplot, chooses no backend and leaves matplotlib's settings as they were."""
    probe = (
        "import sys, matplotlib\n"
        "names = [name for name in matplotlib.rcParams if name != 'backend']\n"
        "def settings(): return [repr(matplotlib.rcParams[name]) for name in names]\n"
        "before = settings()\n"
        "import pandas as pd; from batchkit.plots import dashboard\n"
        "f = pd.DataFrame({'row': [0], 'provider': ['a'], 'started': [0.0], 'ended': [1.0], 'error': [None]})\n"
        "dashboard(f)._repr_png_(); assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert settings() == before"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
