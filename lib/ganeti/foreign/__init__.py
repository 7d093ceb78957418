"""Virtual machines of other programs: their descriptions, and their disk images.

A module for each kind of description reads it and returns a
:class:`~ganeti.foreign.machine.Machine`: ``libvirt`` (the XML of a domain), ``proxmox`` (a file of
``/etc/pve/qemu-server``) and ``ovf`` (OVF and OVA). :mod:`~ganeti.foreign.images` converts disk
images with **qemu-img**, and :mod:`~ganeti.foreign.export` writes an export from which the cluster
makes an instance. ``gnt-instance import`` and **ovfconverter** use this package; no daemon does.
"""
