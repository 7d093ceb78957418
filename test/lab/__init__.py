"""The laboratory: small virtual machines under QEMU, with real LVM, DRBD and network.

``image`` builds the system of the machines once, ``qemu`` builds their command lines, ``machines``
runs them, and ``cluster`` creates a cluster of them. ``devel/lab`` starts the laboratory, for make
and for developers.
"""
