"""Pure logic: no clock, randomness, network, disk or pandas. What needs `now` or `rng` is handed them."""

__all__: list[str] = []
