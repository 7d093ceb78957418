"""Checks of parameters and devices, how a change is merged, and how a running guest gets it.

=================== ========================================================
``cluster``         computes the cluster after a change of its parameters
``devices``         changes to disks and NICs, as opcodes carry them
``group``           parameters of node groups
``hotplug``         changes the devices of a running guest
``instance``        backend and hypervisor parameters of instances
``new_instance``    completes the parameters of a new instance
``modify_instance`` changes of an existing instance, and of its marked state
``node``            node parameters
``pending``         what a running guest gets only at its next start
``os``              OS parameters, with private and secret ones
=================== ========================================================
"""
