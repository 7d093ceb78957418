"""The program ``gnt-instance``: virtual machines."""
