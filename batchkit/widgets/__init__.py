"""Views: they draw snapshots of a run, and never touch it but to cancel it."""

from batchkit.widgets.choice import choose
from batchkit.widgets.text import TextView

__all__ = ["TextView", "choose"]
