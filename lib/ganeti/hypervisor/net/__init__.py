"""The host's side of the network interfaces of guests, for every hypervisor which leaves it to us.

A hypervisor says what it needs as arguments: a :class:`~ganeti.hypervisor.net.tap.TapFeatures` or a
:class:`~ganeti.hypervisor.net.veth.VethPair`, and
a :class:`~ganeti.hypervisor.net.connect.GuestNetwork` with the names and files of the guest. This
package imports no hypervisor.

* :mod:`~ganeti.hypervisor.net.vlan`, :mod:`~ganeti.hypervisor.net.bridge`,
  :mod:`~ganeti.hypervisor.net.openvswitch`, :mod:`~ganeti.hypervisor.net.route` and
  :mod:`~ganeti.hypervisor.net.communication` build the commands and kernel settings of one mode
  each; they run nothing;
* :mod:`~ganeti.hypervisor.net.script` runs the administrator's program, which replaces them;
* :mod:`~ganeti.hypervisor.net.connect` connects one interface in its mode, and disconnects it;
* :mod:`~ganeti.hypervisor.net.tap` creates, opens and deletes tap devices;
* :mod:`~ganeti.hypervisor.net.veth` creates the pairs of interfaces of containers;
* :mod:`~ganeti.hypervisor.net.interfaces` does all of that for the NICs of a guest.

A NIC is a mapping as the master sends it: ``mac``, ``ip``, ``name``, ``uuid``, ``nicparams``
(filled) and ``netinfo`` (its network, or None).
"""
