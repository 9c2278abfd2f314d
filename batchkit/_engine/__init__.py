"""All I/O and all time: one loop in one thread, lanes, limits, callers and the ledger. Shows nothing."""

__all__: list[str] = []
