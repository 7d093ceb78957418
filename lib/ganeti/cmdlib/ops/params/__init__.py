"""Checks of parameters, and how a change is merged with the present ones.

=================== ========================================================
``cluster``         computes the cluster after a change of its parameters
``devices``         changes to disks and NICs, as opcodes carry them
``group``           parameters of node groups
``instance``        backend and hypervisor parameters of instances
``new_instance``    completes the parameters of a new instance
``modify_instance`` changes of an existing instance, and of its marked state
``node``            node parameters
``os``              OS parameters, with private and secret ones
=================== ========================================================
"""
