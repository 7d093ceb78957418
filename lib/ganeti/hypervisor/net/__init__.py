"""The host's side of the network interfaces of guests, for every hypervisor which leaves it to us.

A hypervisor says what it needs as arguments: a :class:`~ganeti.hypervisor.net.tap.TapFeatures` or a
:class:`~ganeti.hypervisor.net.veth.VethPair`, and
a :class:`~ganeti.hypervisor.net.connect.GuestNetwork` with the names and files of the guest. This
package imports no hypervisor.

===================== ===============================================================
:mod:`.addresses`     reads the addresses of the network interfaces of this node
:mod:`.neighbours`    the addresses of guests which this node knows by their MAC addresses
:mod:`.vlan`          the parameter ``vlan`` of a NIC
:mod:`.bridge`        commands of the mode ``bridged``
:mod:`.openvswitch`   commands of the mode ``openvswitch``
:mod:`.route`         commands and kernel settings of the mode ``routed``
:mod:`.communication` the NIC through which a guest asks the metadata daemon
:mod:`.script`        runs the administrator's program, which replaces these commands
:mod:`.tap`           creates, opens and deletes tap devices
:mod:`.veth`          creates the pairs of interfaces of containers
:mod:`.connect`       connects one interface in its mode, and disconnects it
:mod:`.interfaces`    does all of that for the NICs of a guest
===================== ===============================================================

A NIC is a mapping as the master sends it: ``mac``, ``ip``, ``name``, ``uuid``, ``nicparams``
(filled) and ``netinfo`` (its network, or None).
"""
