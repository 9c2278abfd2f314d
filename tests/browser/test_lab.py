"""Progress, Cancel and Interrupt in a real JupyterLab, over every kernel whose Cancel takes another way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from kernels import BUILD, path_for

import batchkit as bk

nbformat = pytest.importorskip("nbformat")
playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("jupyterlab")
expect = playwright.expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = "/usr/bin/chromium"
KERNELS = {"newest": None, "7.3.0": "7.3.0", "6.31.0": "6.31.0"}
"""Names of kernels, and the ipykernel that stands before the installed one in their path."""

SETUP = """
import pandas as pd, batchkit as bk
df = pd.DataFrame({{"text": [f"row {{number}}" for number in range({rows})]}})
def provider(name="slow"):
    return bk.OpenAICompatible("m", base_url={url!r}, api_key="not-a-real-key", name=name, max_concurrency=4)
print("ready")
"""
BLOCKING = 'out = df.llm.classify("text", ["a", "b"], route=provider(), journal=False)'
AWAITED = 'out = await df.llm.aio.classify("text", ["a", "b"], route=provider(), journal=False)'
BACKGROUND = 'job = df.llm.background.classify("text", ["a", "b"], route=provider(), journal=False)'
ANSWERED = 'print("answered", bk.last_run().rows["label"].notna().sum())'


def kernelspec(folder, name, version):
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "env": {"PYTHONPATH": path_for(version)},
        "interrupt_mode": "signal",
    }
    place = folder / "kernels" / name
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(spec), "utf-8")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_up(url):
    try:
        urllib.request.urlopen(f"{url}/api").read()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(folder):
    own = folder / "jupyter"
    for name, version in KERNELS.items():
        kernelspec(own, name, version)
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    env = {**os.environ, **{name: str(own / name) for name in places}, "JUPYTER_PATH": str(own)}
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
        "--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    log = (folder / "lab.log").open("w")
    server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not is_up(url) and time.monotonic() < until:
            server.poll()
        yield url
    finally:
        server.terminate()
        server.wait(30)
        log.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def play():
    with bk.playground(answer=lambda text, labels: labels[0], slow={"latency": 0.2}) as running:
        yield running


class Notebook:
    """A notebook that is open in the browser."""

    def __init__(self, page, lab, folder, name):
        self.page, self.lab, self.folder, self.name = page, lab, folder, name

    def open(self, kernel, cells):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
        stem = self.name
        for attempt in range(3):  # now and then JupyterLab never hears a kernel's first words; those of another it does
            self.name = f"{attempt}_{stem}"
            nbformat.write(notebook, self.folder / self.name)
            self.look()
            if becomes_visible(self.page.get_by_text(f"{kernel} | Idle"), 30_000):
                self.run(0)
                if becomes_visible(self.output(0).get_by_text("ready"), 30_000):
                    break
        expect(self.output(0)).to_contain_text("ready")

    def look(self):
        self.page.goto(f"{self.lab}/lab/tree/{self.name}?reset")
        expect(self.cell(0)).to_be_visible(timeout=60_000)
        self.wait_until_idle()

    def cell(self, number):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def output(self, number):
        return self.cell(number).locator(".jp-Cell-outputArea")

    def wait_until_idle(self, seconds=60):
        idle = self.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first
        expect(idle).to_be_visible(timeout=seconds * 1000)

    def run(self, number):
        self.cell(number).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def command(self, name):
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{name}')")

    def button(self, number):
        return self.output(number).get_by_role("button", name="Cancel")

    def snap(self, name):
        (BUILD / "screenshots").mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(BUILD / "screenshots" / f"{name}.png"))

    def save(self):
        # Resolves once the file is written.
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.folder / self.name, 4)


def becomes_visible(locator, milliseconds):
    try:
        locator.wait_for(timeout=milliseconds)
    except playwright.TimeoutError:
        return False
    return True


@pytest.fixture
def notebook(browser, lab, folder, request):
    page = browser.new_page(viewport={"width": 1200, "height": 760})
    yield Notebook(page, lab, folder, f"{abs(hash(request.node.nodeid))}.ipynb")
    page.close()


def pictures(notebook, number, count):
    """Wait for so many different texts of an output, and return them."""
    seen = []
    for _ in range(count * 20):
        text = notebook.output(number).inner_text()
        if text and text not in seen:
            seen.append(text)
        if len(seen) >= count:
            break
        notebook.page.wait_for_timeout(50)
    return seen


def no_more_requests(notebook, server):
    """Whether the server sees nothing new any more two seconds after now."""
    notebook.page.wait_for_timeout(2000)
    before = len(server.requests) + server.in_flight
    notebook.page.wait_for_timeout(1000)
    return len(server.requests) + server.in_flight == before


WAYS = {"blocking": BLOCKING, "await": AWAITED, "background": BACKGROUND}
CANCELS = [
    ("newest", "blocking"), ("newest", "await"), ("newest", "background"),
    ("7.3.0", "blocking"), ("7.3.0", "await"), ("6.31.0", "background"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "way"), CANCELS)
def test_cancel(notebook, play, kernel, way):
    """Progress moves at least five times, Cancel stops new requests within 2 s, and the notebook goes on."""
    notebook.open(kernel, [SETUP.format(rows=400, url=play.slow.base_url), WAYS[way], ANSWERED])
    notebook.run(1)
    assert len(pictures(notebook, 1, 6)) == 6
    expect(notebook.button(1)).to_be_visible(timeout=5_000)
    expect(notebook.output(1)).to_contain_text("keeps finished rows")
    notebook.snap(f"running_{way}_{kernel}")
    notebook.button(1).click()
    assert no_more_requests(notebook, play.slow)
    assert 0 < len(play.slow.requests) < 400
    expect(notebook.output(1)).to_contain_text("Cancelled:", timeout=5_000)
    expect(notebook.button(1)).to_have_count(0)
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text(f"answered {play.slow.counts['answered']}", timeout=10_000)
    notebook.snap(f"cancelled_{way}_{kernel}")


@pytest.mark.parametrize("kernel", KERNELS)
def test_interrupt(notebook, play, kernel):
    """The stop button ends a blocking cell within 2 s, finished rows are there, and the next cell runs."""
    notebook.open(kernel, [SETUP.format(rows=400, url=play.slow.base_url), BLOCKING, ANSWERED])
    notebook.run(1)
    pictures(notebook, 1, 6)
    if kernel == "6.31.0":
        expect(notebook.button(1)).not_to_be_visible()
        expect(notebook.output(1)).to_contain_text("The stop button keeps finished rows.")
    notebook.command("notebook:interrupt-kernel")
    assert no_more_requests(notebook, play.slow)
    expect(notebook.output(1)).to_contain_text("Interrupted: ", timeout=5_000)
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text(f"answered {play.slow.counts['answered']}", timeout=10_000)
    notebook.snap(f"interrupted_{kernel}")


def test_each_run_shows_its_own_view(notebook, play):
    """A second run shows its own view, and so does each of two jobs at once."""
    two = "\n".join(f"job{n} = {BACKGROUND.removeprefix('job = ')}" for n in (1, 2))
    notebook.open("newest", [SETUP.format(rows=12, url=play.slow.base_url), BLOCKING, BLOCKING, two])
    for number in (1, 2):
        notebook.run(number)
        expect(notebook.output(number)).to_contain_text("12 of 12 rows answered", timeout=20_000)
    notebook.run(3)
    summaries = notebook.output(3).get_by_text("12 of 12 rows answered")
    expect(summaries).to_have_count(2, timeout=20_000)


def test_a_saved_notebook_reopens_with_the_summary(notebook, play):
    """The saved notebook holds the summary as HTML and text, no widget, and shows it without a kernel's help."""
    notebook.open("newest", [SETUP.format(rows=40, url=play.slow.base_url), BLOCKING])
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("40 of 40 rows answered", timeout=30_000)
    saved = notebook.save()
    assert [sorted(output["data"]) for output in saved.cells[1].outputs] == [["text/html", "text/plain"]]
    # Another one's notebook: not trusted here, and its kernel is not ours.
    saved.metadata.pop("signature", None)
    notebook.name = f"copy_{notebook.name}"
    saved.cells[1].metadata.pop("trusted", None)
    saved.cells[1].outputs[0]["data"]["text/plain"] += " "
    nbformat.write(saved, notebook.folder / notebook.name)
    notebook.look()
    expect(notebook.output(1)).to_contain_text("40 of 40 rows answered")
    notebook.snap("reopened_untrusted")


def test_nothing_in_a_text_is_executed(notebook, play):
    """Markup in names and errors is shown as text, while the run goes on and in its summary."""
    evil = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
    code = f"""
evil = {evil!r}
def answer(prompt):
    import time
    time.sleep(0.05)
    raise ValueError(evil)
route = bk.FunctionProvider(answer, name=evil, max_concurrency=1)
out = df.llm.classify("text", ["a", "b"], route=route, output_column=evil, journal=False)"""
    notebook.open("newest", [SETUP.format(rows=30, url=play.slow.base_url), code])
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("30 failed", timeout=30_000)
    notebook.page.wait_for_timeout(500)
    assert notebook.output(1).locator("img, script").count() == 0
    assert "pwned" not in notebook.page.title()
    expect(notebook.output(1)).to_contain_text("<script>")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_how_it_looks(notebook, theme):
    """Two providers with faults and a limit are drawn legibly in either theme."""
    faults = {"latency": 0.15, "jitter": 0.1, "server_errors": 0.15, "garbage": 0.05}
    with bk.playground(
        answer=lambda text, labels: labels[0], quick=faults, careful={"latency": 0.4, "rpm": 240}
    ) as play:
        code = f"""
quick = bk.OpenAICompatible("quick", base_url={play.quick.base_url!r}, api_key="not-a-real-key", name="quick",
                            max_concurrency=8, max_retries=1, price=(0.2, 0.8))
careful = bk.OpenAICompatible("careful", base_url={play.careful.base_url!r}, api_key="not-a-real-key", name="careful",
                              max_concurrency=4, rpm=240, price=(1, 5))
more = pd.concat([df, df.head(20)], ignore_index=True)
out = more.llm.classify("text", ["a", "b"], route=bk.balance(quick, careful), journal=False)"""
        notebook.open("newest", [SETUP.format(rows=400, url=play.quick.base_url), code])
        notebook.page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})")
        notebook.run(1)
        expect(notebook.output(1)).to_contain_text("p99", timeout=20_000)
        expect(notebook.button(1)).to_be_visible(timeout=5_000)
        notebook.page.wait_for_timeout(1500)
        notebook.snap(f"live_{theme.split()[-1].lower()}")
        expect(notebook.output(1)).to_contain_text("rows answered", timeout=60_000)
        notebook.snap(f"summary_{theme.split()[-1].lower()}")
