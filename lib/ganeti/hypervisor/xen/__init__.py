"""The hypervisors ``xen-pvm`` and ``xen-hvm``, driven by the program ``xl``.

================== =================================================================
:mod:`.xl`         runs ``xl``, the program which drives Xen
:mod:`.parse`      reads the output of ``xl``; pure functions
:mod:`.record`     what this node remembers of a guest
:mod:`.config`     makes the configuration file for ``xl`` from it
:mod:`.parameters` whether this node can use the parameters of a guest
:mod:`.disks`      the block devices which a guest gets as its disks
:mod:`.nics`       what the drivers pass to :mod:`ganeti.hypervisor.net` for a guest
:mod:`.vif`        the program which Xen runs for the NICs of guests
:mod:`.guests`     finds the domains of this node, and ends them
:mod:`.monitored`  the domains of this machine, for the monitoring daemon
:mod:`.adoption`   makes the record of a guest which another program has started
:mod:`.start`      starts a guest
:mod:`.hotplug`    plugs disks and NICs into a running guest, and unplugs them
:mod:`.transfer`   the state of a migration on one node, in files
:mod:`.migration`  sends a guest to another node
:mod:`.states`     the states in which Xen keeps a domain and its guest does not run
:mod:`.driver`     the two drivers
================== =================================================================
"""
