"""From an operator and a device to a plan: packing, candidates, cost, search."""
