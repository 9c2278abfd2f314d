"""Sync work beside the loop, in daemon threads: one that never ends must not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_thread", "tamed"]


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run a sync function in a daemon thread of its own and wait for its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def run() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = (context.run(function, *args), None)
        except BaseException as error:  # noqa: BLE001
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="batchkit-function", daemon=True).start()
    result, error = await done
    if error is not None:
        raise error if isinstance(error, Exception) else tamed(error)
    return result


def tamed(error: BaseException) -> RuntimeError:
    """What a function raised that would end a task, or the whole loop, as an error of its row."""
    return RuntimeError(f"{type(error).__name__}: {error}")
