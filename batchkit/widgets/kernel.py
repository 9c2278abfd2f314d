"""What the notebook's kernel, if there is one, can do for a view."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["appear", "has_widgets", "notebook", "takes_clicks", "unpin"]


def notebook() -> Any:
    """The kernel this process is, None in a script or a terminal. Loads nothing."""
    shell_of = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return getattr(shell_of(), "kernel", None) if shell_of is not None else None


def has_widgets() -> bool:
    """Whether widgets can be made. Whether anybody can draw them no kernel knows."""
    return importlib.util.find_spec("ipywidgets") is not None


def takes_clicks() -> bool:
    """Whether a click arrives while a cell runs: only over a subshell, which the front end must have opened."""
    try:
        return bool(notebook().shell_channel_thread.manager.list_subshell())
    except AttributeError:  # ipykernel 6, or something that is no ipykernel
        return False


def appear(data: Mapping[str, Any]) -> Any:
    """Show data, by MIME type, in the output of the cell that runs now; returns the handle that updates it."""
    from IPython.display import display

    show: Any = display
    return show(data, raw=True, display_id=True)


def unpin(widget: Any) -> None:
    """Let a widget's messages take the way that the front end chose.

    ipykernel 7.4 sends them to the shell that last wrote to the widget, which is the busy one.
    """
    with contextlib.suppress(AttributeError):
        del widget.comm._reply_subshell_id
