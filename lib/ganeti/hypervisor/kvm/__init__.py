"""Guests under QEMU, each a process that this room starts and talks to over QMP.

* :mod:`~ganeti.hypervisor.kvm.argv` builds command lines, of
  :mod:`~ganeti.hypervisor.kvm.devices` at the places that :mod:`~ganeti.hypervisor.kvm.buses` gives
  them and of a :mod:`~ganeti.hypervisor.kvm.display`; :mod:`~ganeti.hypervisor.kvm.parse` reads
  what QEMU prints and ``/proc`` shows: pure functions;
* :mod:`~ganeti.hypervisor.kvm.facts` knows the installed QEMU, and by trial whether KVM works here;
* :mod:`~ganeti.hypervisor.kvm.runtime` is the file that remembers how a guest was started;
* :mod:`~ganeti.hypervisor.kvm.qmp` is the control socket, :mod:`~ganeti.hypervisor.net.tap` the
  guest's network on the host;
* :mod:`~ganeti.hypervisor.kvm.driver` puts them together as the verbs of a hypervisor.

Everything about a running guest is in files below ``RUN_DIR/kvm-hypervisor`` and in its process, so
guests outlive the daemon.
"""
