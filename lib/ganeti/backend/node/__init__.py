"""Handlers of the node calls about the machine itself: facts, verification, power, hooks, files.

====================== =======================================================================
:mod:`.info`           facts about this machine, and the pause of its watcher
:mod:`.verify`         checks of this machine for ``gnt-cluster verify``
:mod:`.verify_storage` checks of LVM and DRBD on this node
:mod:`.master_status`  what this node knows about the master daemon
:mod:`.work`           which calls this node carries out now
:mod:`.files`          writes files which the master sends
:mod:`.hooks`          runs scripts of the administrator around operations
:mod:`.restricted`     runs restricted commands, which the administrator has prepared
:mod:`.oob`            runs the out-of-band helper, which controls the power of machines
:mod:`.power`          power-cycles this machine
:mod:`.watchdog`       what the daemon of the hardware watchdog reports, and its release
:mod:`.netmask`        changes the netmask of the address of the master while it is configured
:mod:`.openvswitch`    sets up and checks the Open vSwitch of this node
:mod:`.test`           handlers which exist for tests
====================== =======================================================================
"""
