"""The hypervisor ``kvm``: guests are processes of QEMU, which are controlled over QMP.

* pure functions: :mod:`~ganeti.hypervisor.kvm.argv` builds command lines from
  :mod:`~ganeti.hypervisor.kvm.devices`, their addresses on :mod:`~ganeti.hypervisor.kvm.buses` and
  a :mod:`~ganeti.hypervisor.kvm.display`; :mod:`~ganeti.hypervisor.kvm.parse` reads the output of
  QEMU and of ``/proc``;
* the installed programs: :mod:`~ganeti.hypervisor.kvm.facts` about QEMU,
  :mod:`~ganeti.hypervisor.kvm.accelerator` probes whether KVM works,
  :mod:`~ganeti.hypervisor.kvm.probe` whether QEMU knows a device,
  :mod:`~ganeti.hypervisor.kvm.parameters` checks all of a guest's parameters;
* one guest: :mod:`~ganeti.hypervisor.kvm.layout` names its files, and
  :mod:`~ganeti.hypervisor.kvm.runtime` is the file with its hardware;
  :mod:`~ganeti.hypervisor.kvm.qmp` is its control socket, :mod:`~ganeti.hypervisor.kvm.nics` its
  network, :mod:`~ganeti.hypervisor.kvm.firmware` its UEFI and TPM;
* the operations: :mod:`~ganeti.hypervisor.kvm.start`, :mod:`~ganeti.hypervisor.kvm.migration`,
  :mod:`~ganeti.hypervisor.kvm.hotplug`, and :mod:`~ganeti.hypervisor.kvm.driver` with all of them.

The state of a guest is in files below ``RUN_DIR/kvm-hypervisor`` and in its process, so that guests
outlive the node daemon.
"""
