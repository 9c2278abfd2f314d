"""The notebooks run from top to bottom, offline, and hold what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

# Warnings of Jupyter's own are none of ours.
pytestmark = [pytest.mark.notebook, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 300_000
PROMISES = {
    "04_background_and_async": [
        "(True, 120)", "(80, 8)", "['cancelled']", "'120 requests for 120 labels'", "slow 60 other 60",
    ],
    "06_single_calls_in_batches": [
        "['RED', 'BLUE', 'GREEN', 'WHITE', 'BLACK', 'PINK', 'GREY', 'BROWN', 'GOLD', 'TEAL'] (3, 3, 3, 1)",
        "['RED', 'BLUE', 'GREEN', 'WHITE', 'BLACK'] (5,)",
        "2 calls for batches of (5, 5)",
        "green ValueError('green is too long') ?",
        "(True, 10, (3, 3, 3, 1))",
        "openai 10 (5, 5) anthropic 10 (3, 3, 3, 1)",
        "(True, (2, 1), (4,))",
        "30 20 10 30", "60 40 20 60", "120 80 40 120",
    ],
}  # fmt: skip
"""What their texts say of their outputs, in these words, whatever the white space."""


@pytest.fixture(autouse=True, scope="module")
def no_way_out():
    """Send whatever a notebook would say to other machines to a port where nobody listens."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        yield


def read(path):
    """The notebook in a file."""
    return nbformat.read(path, as_version=4)


def execute(notebook):
    """The same notebook, executed in a fresh kernel in its own folder; a failing cell raises."""
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", store_widget_state=False, resources=resources
    )
    return client.execute()


def outputs(notebook, kind):
    """All outputs that have a representation of a kind."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def words(notebook):
    """All text it shows, in order, with single spaces."""
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in shown]
    return " ".join(" ".join(texts).split())


def pictures_and_tables(notebook):
    """How many pictures and how many tables it shows."""
    tables = [output for output in outputs(notebook, "text/html") if "<table" in output.data["text/html"]]
    return len(outputs(notebook, "image/png")), len(tables)


@pytest.fixture(scope="module")
def fresh():
    """Every notebook by its name, executed now."""
    return {path.name: execute(read(path)) for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_its_stored_outputs_show(path, fresh):
    """From a fresh kernel without a network every cell works, and there are as many pictures and tables as stored."""
    shown = pictures_and_tables(fresh[path.name])
    assert shown == pictures_and_tables(read(path))
    assert min(shown) >= 1


@pytest.mark.parametrize(
    ("name", "promise"), [(name, promise) for name, promises in PROMISES.items() for promise in promises]
)
def test_a_notebook_shows_what_its_text_says(name, promise, fresh):
    """Counts, batch sizes and answers that the text names are the same in the stored outputs and in fresh ones."""
    file = f"{name}.ipynb"
    assert promise in words(read(ROOT / "notebooks" / file))
    assert promise in words(fresh[file])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_are_clean(path):
    """A stored notebook is valid, small, ran in order without an error, and names nothing of the machine it ran on."""
    notebook, text = read(path), path.read_text("utf-8")
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert len(text.encode()) <= MOST_BYTES
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
    assert "widgets" not in notebook.metadata


def test_a_picture_appears_exactly_once():
    """A picture that ends a cell is one image, before and after pyplot was used, and none when it is given a name."""
    requests = "pd.DataFrame({'row': [0], 'provider': ['a'], 'started': [0.0], 'ended': [1.0], 'error': [None]})"
    cells = [
        f"import pandas as pd\nfrom batchkit import plots\nrequests = {requests}\nplots.timeline(requests)",
        "named = plots.dashboard(requests)",
        "import matplotlib.pyplot as plt\nplt.figure();",
        "plots.latency(requests)",
        "plots.throughput(requests)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    executed = execute(notebook)
    images = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in executed.cells]
    assert [images[0], images[1], images[3], images[4]] == [1, 0, 1, 1]
