"""What every test gets: no keys, no settings from outside, and no way to the internet."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

patient = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # the machine may be busy
settings.register_profile("local", **patient)
settings.register_profile("ci", derandomize=True, print_blob=True, **patient)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A shell has what it starts in the background ignore Ctrl-C, and tests that send one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_set_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the keys and settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("BATCHKIT_")]:
        monkeypatch.delenv(name)
    # Answers of one test are not another's, and nobody's journal is written to.
    monkeypatch.setenv("BATCHKIT_JOURNAL", "off")


@pytest.fixture(autouse=True, scope="session")
def no_internet() -> Iterator[None]:
    """Refuse every address but loopback, as a machine without a network would."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connect_nearby(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple):
            _refuse_far(address[0])
        connect(self, address)

    def look_up_nearby(host: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_far(host)
        return look_up(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_nearby)
        patch.setattr(socket, "getaddrinfo", look_up_nearby)
        yield


def _refuse_far(host: Any) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name not in {None, "localhost", "::1"} and not name.startswith("127."):
        raise socket.gaierror(socket.EAI_NONAME, f"tests stay on this machine, {name!r} is elsewhere")
