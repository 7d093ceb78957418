"""The node's own work: what a node daemon does when a call arrives.

One module per subject; every function that answers a call is marked with
:func:`ganeti.backend.registry.serves`. The room knows this machine (its disks, guests, files and
scripts) and nothing of the cluster's defaults: the master sends filled parameters. Handlers raise;
the node daemon turns the error into the answer.
"""
