"""Programs which other programs start: transfers of disks, consoles, forwarding of metadata.

The administrator does not run them. Each module with a function ``main`` is one program.

============================ =======================================================================
:mod:`.import_export`        ``import-export``: one end of the transfer of a disk
:mod:`.import_export_status` the status file of one end of a transfer
:mod:`.limited`              runs a program on a file that nobody trusts
:mod:`.pam_check`            asks PAM about a password for the REST daemon
:mod:`.placement`            answers a question about placement for the REST daemon
:mod:`.tls_pipe`             a TLS connection which tells a proper end from a broken connection
:mod:`.kvm_console`          ``kvm-console-wrapper``: a terminal at the serial port of a guest
:mod:`.kvm_incoming`         accepts the connection over which a guest is sent to this node
:mod:`.xen_console`          ``xen-console-wrapper``: a terminal at the console of a guest under Xen
:mod:`.xen_transfer`         sends a guest under Xen to another node, or receives one
:mod:`.metad_forward`        forwards a connection of a guest to the metadata daemon
============================ =======================================================================
"""
