"""Handlers of the node calls about instances, their OS scripts and helper guests.

=================== ========================================================================
:mod:`.lifecycle`   start, stop, reboot, migrate, and lists of guests
:mod:`.guests`      what running guests use, and what they have written to their consoles
:mod:`.hotplug`     changes to the devices of a running guest
:mod:`.metadata`    descriptions of guests for the metadata daemon of this node
:mod:`.os`          finds and checks the OS definitions of this node, and runs their scripts
:mod:`.helper`      helper guests, which carry out a task on the disks of a stopped instance
:mod:`.helper_disk` the first disk of a helper guest: a copy of its image
=================== ========================================================================
"""
