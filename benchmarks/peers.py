"""CPU per request of the same zero-latency job by other tools, on a rig that is not part of this repository.

``RIG`` in the environment is the rig's folder: a server, a client per tool, and what measures one run. ``PEERS`` is
the folder of the tools' virtual environments (build/peers by default); ``python benchmarks/peers.py install`` makes
them from the rig's lists of versions.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import results

HERE = Path(__file__).parent
ROWS, IN_FLIGHT, ROUNDS = 2_000, 64, 3
TARGET = 0.25


class Client(NamedTuple):
    """A way to do the job: a script and its variant, run in an environment of the same name as the tool's."""

    environment: str
    script: str
    variant: str
    package: str


OURS = Client("batchkit", "rig_client.py", "classify", "batchkit-notebook")
OURS_ON_UVLOOP = OURS._replace(variant="classify on uvloop")
FLOOR = Client("floor", "floor.py", "aiohttp", "aiohttp")
CLIENTS = (
    FLOOR,
    OURS,
    *([OURS_ON_UVLOOP] if find_spec("uvloop") else []),
    Client("openai", "c_openai.py", "chat", "openai"),
    Client("openai", "c_openai.py", "sync+threads", "openai"),
    Client("langchain", "c_langchain.py", "batch", "langchain-openai"),
    Client("langchain", "c_langchain.py", "abatch", "langchain-openai"),
    Client("chatlas", "c_chatlas.py", "structured", "chatlas"),
    Client("litellm", "c_litellm.py", "acompletion", "litellm"),
    Client("mall", "c_mall.py", "ollama no cache", "mlverse-mall"),
    Client("openaivec", "c_openaivec.py", "aio batch=1", "openaivec"),
    Client("openaivec", "c_openaivec.py", "aio batch=auto", "openaivec"),
)
SERVER = "mock"


def environments() -> Path:
    return Path(os.environ.get("PEERS") or HERE.parent / "build" / "peers").resolve()


def python_of(environment: str) -> str:
    return str(environments() / environment / "bin" / "python")


def is_ours(client: Client) -> bool:
    return client.environment == OURS.environment


def is_installed(client: Client) -> bool:
    return is_ours(client) or Path(python_of(client.environment)).exists()


def install(rig: Path) -> int:
    """Make the environments that are missing; the number of those that could not be made."""
    failures = 0
    for name in dict.fromkeys([SERVER, *(client.environment for client in CLIENTS if not is_ours(client))]):
        if Path(python_of(name)).exists():
            continue
        folder = environments() / name
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        versions = str(rig / "requirements" / f"{name}.lock")
        command = [python_of(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", versions]
        done = subprocess.run(command, check=False).returncode == 0
        print(f"{name}: {'installed' if done else 'could not be installed'}", flush=True)
        if not done:
            shutil.rmtree(folder)
        failures += not done
    return failures


def lay_out(rig: Path, folder: Path) -> None:
    """Put together in ``folder`` what the rig looks for beside its own file: it also writes there."""
    (folder / "clients").mkdir()
    (folder / "venvs").mkdir()
    for file in (rig / "run_one.py", rig / "mock_provider.py", *rig.glob("clients/*.py")):
        shutil.copyfile(file, folder / file.relative_to(rig))
    shutil.copyfile(HERE / OURS.script, folder / "clients" / OURS.script)
    (folder / "venvs" / OURS.environment).symlink_to(sys.prefix)
    for environment in environments().iterdir():
        (folder / "venvs" / environment.name).symlink_to(environment)


def measure(folder: Path, client: Client) -> dict[str, Any]:
    """One run by one client, as the rig reports it."""
    options = shlex.join(["--n", str(ROWS), "--concurrency", str(IN_FLIGHT), "--scenario", "zero"])
    command = [sys.executable, str(folder / "run_one.py"), client.environment, client.script, client.variant]
    done = subprocess.run([*command, "--client", options], check=False, stdout=subprocess.PIPE, text=True)
    run: dict[str, Any] = json.loads(done.stdout)
    return run


def title(client: Client) -> str:
    program = f"from importlib.metadata import version; print(version({client.package!r}))"
    python = sys.executable if is_ours(client) else python_of(client.environment)
    version = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    return f"{client.package} {version}: {client.variant}"


def compare(rig: Path) -> None:
    able = [client for client in CLIENTS if is_installed(client)]
    for client in CLIENTS:
        if not is_installed(client):
            print(f"Skipped: {client.package}, {client.variant}: no environment. `make peers RIG=<folder>` makes it.\n")
    runs: dict[Client, list[dict[str, Any]]] = {client: [] for client in able}
    with tempfile.TemporaryDirectory() as name:
        lay_out(rig, Path(name))
        for _ in range(ROUNDS):
            for client in able:
                runs[client].append(measure(Path(name), client))
    done = {}
    for client, its in runs.items():
        failed = next((run for run in its if run.get("correct") != ROWS), None)
        if failed is None:
            done[client] = Figures(its)
        else:
            print(f"Left out: {title(client)}: {failed.get('error') or 'not all rows were right'}.\n")
    show(done)
    keep(done)


class Figures:
    """What the rounds of a client come to."""

    def __init__(self, runs: list[dict[str, Any]]) -> None:
        requests = runs[0]["server"]["requests"]
        self.micros = [run["cpu_s"] / run["server"]["requests"] * 1e6 for run in runs]
        self.median = statistics.median(self.micros)
        self.a_row = statistics.median(run["cpu_s"] for run in runs) / ROWS * 1e6
        self.wall = statistics.median(run["wall_s"] for run in runs)
        self.rows_a_request = ROWS / requests
        self.connections = runs[0]["server"]["max_connections_open"]
        self.others = max(run["foreign_cpu"]["client_core"] for run in runs)

    def against(self, other: Figures) -> float:
        """The median of the rounds' ratios."""
        ratio: float = statistics.median(mine / its for mine, its in zip(self.micros, other.micros, strict=True))
        return ratio


def show(done: dict[Client, Figures]) -> None:
    print(
        "| client | rows a request | connections | µs a request | least to most | to floor | to ours | µs a row | s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for client, figures in sorted(done.items(), key=lambda item: item[1].median):
        ratios = [f"{figures.against(done[other]):.2f}" if other in done else "" for other in (FLOOR, OURS)]
        cells = [
            title(client), f"{figures.rows_a_request:.3g}", str(figures.connections), f"{figures.median:,.0f}",
            f"{min(figures.micros):,.0f} to {max(figures.micros):,.0f}", *ratios, f"{figures.a_row:,.0f}",
            f"{figures.wall:.2f}",
        ]  # fmt: skip
        print("|", " | ".join(cells), "|")
    others = max(figures.others for figures in done.values())
    print(f"\nOther processes had at most {others:.0%} of the clients' core, which the runs had at raised priority.")


def keep(done: dict[Client, Figures]) -> None:
    """Write down each client's figure, and ours against the leanest peer's that asks one row at a time."""
    for client, figures in done.items():
        role = "ours" if is_ours(client) else "floor" if client is FLOOR else "peer"
        results.client(title(client), role, figures.median, figures.rows_a_request)
    others = [figures for client, figures in done.items() if client is not FLOOR and not is_ours(client)]
    peers = [figures for figures in others if figures.rows_a_request == 1]
    for what, able in {
        "the leanest peer": peers,
        "the leanest peer with several in flight": [figures for figures in peers if figures.connections > 1],
    }.items():
        if OURS in done and able:
            ratio = max(done[OURS].against(figures) for figures in able)
            print(f"Ours against {what} at one row a request: **{ratio:.2f}**, target at most {TARGET}.")
            results.promise(f"CPU per request, against {what}", ratio, TARGET)


def main() -> int:
    if not os.environ.get("RIG"):
        print("\nOther tools: skipped. `make bench RIG=<folder>` measures them on the rig in that folder.")
        return 0
    rig = Path(os.environ["RIG"]).resolve()
    if not (rig / "run_one.py").is_file():
        print(f"\nOther tools: there is no rig in {rig}, which has no run_one.py.")
        return 1
    if sys.argv[1:] == ["install"]:
        return install(rig)
    print(f"\n## CPU per request of other tools: {ROWS:,} rows, {IN_FLIGHT} in flight, zero latency\n")
    if not Path(python_of(SERVER)).exists():
        print("Skipped: the rig's server has no environment. `make peers RIG=<folder>` makes it.")
        return 0
    print(
        "User and system time of the whole client process, from the rows to their labels. Each run has a server and\n"
        "an interpreter of its own, on a core each. Imports are not counted, but for what a tool imports at its\n"
        f"first call. Medians of {ROUNDS} interleaved rounds; ratios are medians of those of the rounds.\n",
        flush=True,
    )
    compare(rig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
