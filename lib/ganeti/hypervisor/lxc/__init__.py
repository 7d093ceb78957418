"""The driver of the hypervisor ``lxc``: containers, driven with the programs of LXC.

* :mod:`~ganeti.hypervisor.lxc.layout` names the files of a container;
* :mod:`~ganeti.hypervisor.lxc.config` writes its configuration, a pure function;
* :mod:`~ganeti.hypervisor.lxc.cgroups` reads and changes what the kernel counts and limits;
* :mod:`~ganeti.hypervisor.lxc.parse` reads what LXC and the kernel say;
* :mod:`~ganeti.hypervisor.lxc.record` is what is known of a container which was started;
* :mod:`~ganeti.hypervisor.lxc.driver` has the operations.

The monitor of LXC (one process for each container) and the container itself are in control groups
of their own, so both go on when the node daemon is restarted. The root file system is mounted in
the container's own mount namespace by a hook, so no mount and no loop device remains when it ends,
however it ends.
"""
