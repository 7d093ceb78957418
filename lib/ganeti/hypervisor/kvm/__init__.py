"""The hypervisor ``kvm``: guests are processes of QEMU, which are controlled over QMP.

========================= ==============================================================
:mod:`.layout`            names the files of a guest: sockets, logs, state
:mod:`.argv`              builds the command line of QEMU; pure functions
:mod:`.devices`           options of disks and NICs, for the command line and for QMP
:mod:`.buses`             addresses of devices on the buses of a guest
:mod:`.display`           VNC, SPICE, or no display
:mod:`.firmware`          the UEFI firmware and the TPM of a guest
:mod:`.parse`             reads the output of QEMU and of ``/proc``; pure functions
:mod:`.facts`             version and options of the installed QEMU
:mod:`.accelerator`       probes whether KVM works on this machine
:mod:`.probe`             probes whether QEMU knows the hardware which parameters name
:mod:`.parameters`        whether this node can use all parameters of a guest
:mod:`.node`              what this node has for guests: capacity, and a QEMU that works
:mod:`.runtime`           the file which says how a running guest was started
:mod:`.qmp`               QMP, the protocol of the control socket
:mod:`.nics`              what KVM passes to :mod:`ganeti.hypervisor.net` for a guest
:mod:`.user_network`      QEMU's user networking, which needs no privileges
:mod:`.pinning`           on which processors a guest may run
:mod:`.privileges`        the user of QEMU after it has dropped privileges
:mod:`.guests`            the files and processes of guests, and the end of a process
:mod:`.start`             starts a guest
:mod:`.stop`              stops a guest
:mod:`.states`            the states in which QEMU lives and its guest does not run
:mod:`.status`            which guests run, their facts, and what they use
:mod:`.guest_agent`       asks the QEMU guest agent inside of a guest
:mod:`.migration`         sends a guest to a QEMU which waits on the target
:mod:`.migration_channel` encryption of the connection for a migration
:mod:`.migration_connection` connects the nodes of a migration, before QEMU does
:mod:`.hardware`          the hardware of a guest which another node sends
:mod:`.incoming`          the end of a migration, in which QEMU is still busy
:mod:`.hotplug`           plugs devices into a running guest, and unplugs them
:mod:`.guest_devices`     the operations which do that, over QMP and in the runtime file
:mod:`.user_shutdown`     notices that a guest has switched itself off
:mod:`.driver`            the driver: which module carries out which operation
========================= ==============================================================

The state of a guest is in files below ``RUN_DIR/kvm-hypervisor`` and in its process, so that guests
outlive the node daemon.
"""
