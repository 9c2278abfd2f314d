"""The embedded model judges each text by itself, whatever the text is and whatever stands beside it."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._engine.embedded import MAX_CHARACTERS, LabelModel
from batchkit.errors import ConfigError, InputError

ROOT = Path(__file__).parents[2]
BANKING77 = ROOT.parent / "shared" / "data"

LABELS = ["delivery", "payment", "password"]
MODEL = LabelModel(LABELS)


def test_the_label_that_fits_gets_most():
    """A text about a topic is given the label of that topic."""
    texts = ["where is my parcel?", "which payment methods do you take?", "I forgot my password"]
    assert MODEL.probabilities(texts).argmax(axis=1).tolist() == [0, 1, 2]


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=5))
def test_probabilities_are_probabilities(texts):
    """Any text, lone surrogates included, gets probabilities that sum to 1."""
    found = MODEL.probabilities(texts)
    assert found.shape == (len(texts), 3)
    assert found.dtype == np.float64
    assert (found >= 0).all()
    assert np.allclose(found.sum(axis=1), 1)


@given(st.text(max_size=60), st.lists(st.text(max_size=300), max_size=8), st.integers(0, 8))
def test_a_text_does_not_see_its_neighbours(text, others, position):
    """A text has bit for bit the same probabilities alone and anywhere in a batch."""
    batch = [*others[:position], text, *others[position:]]
    row = MODEL.probabilities(batch)[min(position, len(others))]
    assert row.tolist() == MODEL.probabilities([text])[0].tolist()


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800"])
def test_nothing_to_read_is_undecided(text):
    """Where nothing is left to read all labels are equally likely."""
    assert MODEL.probabilities([text])[0].tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("dirt", [0x00, 0xD800, 0xDFFF, 0xFFFD])
def test_unreadable_characters_count_as_spaces(dirt):
    """A NUL or half a surrogate pair changes no more than a space would."""
    dirty, clean = MODEL.probabilities([f"where is{chr(dirt)}my parcel", "where is my parcel"])
    assert dirty.tolist() == clean.tolist()


def test_a_megabyte_is_cut():
    """Of a very long text only the first characters count."""
    text = "where is my parcel " * 60_000
    whole, beginning = MODEL.probabilities([text, text[:MAX_CHARACTERS]])
    assert whole.tolist() == beginning.tolist()


@pytest.mark.parametrize(
    ("label", "same"), [("log_in", "log in"), ("Log-In", "log in"), ("a__b", "a b"), ("a \n b", "a b")]
)
def test_joined_words_are_words(label, same):
    """Underscores, hyphens, white space and case in a label make no difference."""
    text = ["I cannot log in"]
    assert LabelModel([label, "x"]).probabilities(text).tolist() == LabelModel([same, "x"]).probabilities(text).tolist()


def test_descriptions_count():
    """A description says what a label's name does not."""
    text = ["the screen is cracked"]
    labels, descriptions = ["A", "B"], [None, "a broken or damaged product"]
    described = LabelModel(labels, descriptions).probabilities(text)[0]
    assert described[1] > LabelModel(labels).probabilities(text)[0][1]
    assert described[1] > 0.5


def test_examples_count():
    """An example teaches a label that its name does not explain."""
    labels = ["A", "B"]
    taught = LabelModel(labels, examples=[("where is my parcel", 0), ("the screen is cracked", 1)])
    assert taught.probabilities(["a crack in the display", "my parcel is late"]).argmax(axis=1).tolist() == [1, 0]


def test_equal_labels_tie_at_the_first():
    """Labels that read the same are equally likely, so that the first is chosen."""
    found = LabelModel(["in progress", "in_progress"]).probabilities(["still working on it"])[0]
    assert found.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([],), "at least one label"),
        ((["a", "b"], ["only one"]), "2 labels but 1 descriptions"),
        ((["a", "b"], (), [("text", 2)]), "names label 2"),
        ((["a", "b"], (), [("text", -1)]), "names label -1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, says):
    """Labels, descriptions and examples that do not fit together are an InputError that says how."""
    with pytest.raises(InputError, match=says):
        LabelModel(*arguments)


def test_many_threads_load_one_model():
    """The model may be used first from several threads at once."""
    script = (
        "from concurrent.futures import ThreadPoolExecutor as T\n"
        "from batchkit._engine.embedded import LabelModel\n"
        "made = list(T(8).map(lambda _: LabelModel(['a', 'b']), range(8)))\n"
        "print(len({id(model._embed._table) for model in made}))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_threads_agree():
    """The same text has the same probabilities in every thread."""
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda _: MODEL.probabilities(["where is my parcel?"]).tolist(), range(100)))
    assert rows == [rows[0]] * 100


def test_logging_is_left_alone():
    """Loading the model sets up no logging."""
    script = (
        "import logging\n"
        "from batchkit._engine.embedded import LabelModel\n"
        "LabelModel(['a'])\n"
        "print(logging.getLogger().handlers, logging.getLogger().level)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"[] {logging.WARNING}\n", "")


def test_without_wordllama_the_error_says_what_to_install():
    """Where wordllama is missing the error names the extra that brings it."""
    script = (
        "import sys\n"
        "sys.modules['wordllama'] = None\n"
        "from batchkit._engine.embedded import LabelModel\n"
        "try:\n"
        "    LabelModel(['a'])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith(ConfigError.__name__)
    assert 'pip install "batchkit-notebook[embedded]"' in done.stdout


@pytest.mark.skipif(not BANKING77.exists(), reason="needs banking77 beside the repository")
@pytest.mark.parametrize(("examples_per_label", "accuracy"), [(0, 0.56), (3, 0.67)])
def test_banking77(examples_per_label, accuracy):
    """On 77 intents the model is as accurate as its docstring says."""
    test = pd.read_csv(BANKING77 / "banking77_test.csv")
    train = pd.read_csv(BANKING77 / "banking77_train.csv")
    labels = sorted(test["category"].unique())
    taught = train.groupby("category").head(examples_per_label)
    examples = [(text, labels.index(label)) for text, label in zip(taught["text"], taught["category"], strict=True)]
    found = LabelModel(labels, (), examples).probabilities(test["text"].tolist()).argmax(axis=1)
    assert np.mean([labels[position] for position in found] == test["category"]) >= accuracy
