"""Views: they draw snapshots of a run, in the thread that waits for it."""

from batchkit.widgets.text import TextView

__all__ = ["TextView"]
