"""The node that a program runs on: a real machine, or a node of a virtual cluster.

======================= ==================================================================
:mod:`.machine`         chooses between a real machine and a node of a virtual cluster
:mod:`.base`            the questions which both answer
:mod:`.real`            a real machine
:mod:`.virtual`         a node of a virtual cluster
:mod:`.paths`           where every file of the cluster is
:mod:`.hosts`           names of hosts: ``/etc/hosts``, and what the resolver knows
:mod:`.users`           the users and groups under which daemons run
:mod:`.systemd`         units of systemd: those of the daemons, and a scope for each guest
:mod:`.versions`        the versions of this project which are installed side by side
:mod:`.ssh_keygen`      makes SSH keys with ``ssh-keygen``
:mod:`.ssh_keys`        files with SSH keys
:mod:`.master_epoch`    the highest epoch of a master that this node has seen
:mod:`.failover_report` what ``ganeti-failoverd`` of this node has seen and done
:mod:`.watchdog_files`  the promise of a node to restart by its hardware watchdog
:mod:`.watcher_files`   which runs of the watcher work here, and when one was complete
======================= ==================================================================

Other packages ask :mod:`.machine`; its answers are all that they need to know about the difference.
"""
