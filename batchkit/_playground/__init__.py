"""The playground: real servers on this machine, for demos, notebooks and tests without key or internet."""

from __future__ import annotations

from batchkit._playground.hosting import Playground, playground
from batchkit._playground.server import RunningServer, Server

__all__ = ["Playground", "RunningServer", "Server", "playground"]
