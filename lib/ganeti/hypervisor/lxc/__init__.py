"""The driver of the hypervisor ``lxc``: containers, driven with the programs of LXC.

================== =======================================================
:mod:`.layout`     names the files of a container
:mod:`.config`     writes its configuration; pure functions
:mod:`.parameters` whether this node can use the parameters of a container
:mod:`.cgroups`    reads and changes what the kernel counts and limits
:mod:`.disks`      the disks besides the one with the root file system
:mod:`.parse`      reads what LXC and the kernel say; pure functions
:mod:`.record`     what is known of a container which was started
:mod:`.guests`     which containers run, and what is known of each
:mod:`.hotplug`    plugs NICs into a running container, and unplugs them
:mod:`.driver`     the operations on guests
================== =======================================================

The monitor of LXC (one process for each container) and the container itself are in control groups
of their own, so both go on when the node daemon is restarted. The root file system is mounted in
the container's own mount namespace by a hook, so no mount and no loop device remains when it ends,
however it ends.
"""
