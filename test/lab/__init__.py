"""The laboratory: small virtual machines under QEMU, with real LVM, DRBD and network.

``image`` builds their system once, ``qemu`` says how they are started, ``machines`` runs them,
``cluster`` makes a cluster of them. ``devel/lab`` is the door for people and for make.
"""
