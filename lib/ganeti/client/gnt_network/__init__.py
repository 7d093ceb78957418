"""The program ``gnt-network``: networks, the pools of addresses for instances."""
