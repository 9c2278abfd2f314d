"""What was measured, a JSON line each in build/bench.jsonl, for plot.py. The latest line of a name counts."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "build" / "bench.jsonl"


def machine() -> str:
    """What it was measured on."""
    names = ["aiohttp", "orjson", "pandas", *(["uvloop"] if find_spec("uvloop") else [])]
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}"


def load() -> str:
    """How many processes wanted a core in the last minute, these benchmarks' own included."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def promise(name: str, measured: float, target: float, *, at_least: bool = False) -> None:
    """Keep a number that has a target: at most that, or with ``at_least`` at least."""
    _keep("promise", name, measured=measured, target=target, at_least=at_least)


def client(name: str, role: str, micros: float, rows_a_request: float) -> None:
    """Keep the CPU microseconds per request of ``"ours"``, the ``"floor"`` or a ``"peer"``."""
    _keep("client", name, role=role, micros=micros, rows_a_request=rows_a_request)


def latest(kind: str) -> list[dict[str, Any]]:
    """The lines of a kind, each name's latest, in the order in which the names first came."""
    lines: dict[str, dict[str, Any]] = {}
    if FILE.exists():
        for text in FILE.read_text("utf-8").splitlines():
            line = json.loads(text)
            if line["kind"] == kind:
                lines[line["name"]] = line
    return list(lines.values())


def _keep(kind: str, name: str, **values: Any) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"kind": kind, "name": name, **values, "at": at, "machine": machine(), "load": load()}
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
