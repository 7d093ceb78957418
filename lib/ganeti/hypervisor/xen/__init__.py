"""The hypervisors ``xen-pvm`` and ``xen-hvm``, driven by the program ``xl``.

* :mod:`~ganeti.hypervisor.xen.driver` has the two drivers; :mod:`~ganeti.hypervisor.xen.start` and
  :mod:`~ganeti.hypervisor.xen.migration` have the operations which begin and move a guest,
  :mod:`~ganeti.hypervisor.xen.hotplug` changes the devices of a running one;
* :mod:`~ganeti.hypervisor.xen.guests` finds the domains of this node;
* :mod:`~ganeti.hypervisor.xen.record` is what this node remembers of a guest, and
  :mod:`~ganeti.hypervisor.xen.config` makes the configuration file for ``xl`` from it;
* :mod:`~ganeti.hypervisor.xen.parse` reads the output of ``xl``, :mod:`~ganeti.hypervisor.xen.xl`
  runs it;
* :mod:`~ganeti.hypervisor.xen.vif` is the program which Xen runs for the NICs of guests.
"""
