"""The program ``ganeti-watcher``: what is done on every node without being asked.

A timer starts it every few minutes. Each run looks at the present state, does what is missing, and
ends. On every node it runs the hooks of the administrator, starts the daemons which should run,
and, where the cluster wants it, stops the guests of a node that is marked offline
(:mod:`ganeti.watcher.node`). On the master it also archives old jobs and starts one process of its
own for each node group (:mod:`ganeti.watcher.cluster`). Such a process restarts instances which
should be up, and activates disks (:mod:`ganeti.watcher.group`).

================== ==========================================================
:mod:`.command`    options, locks, log, exit codes
:mod:`.node`       the duties on every node
:mod:`.cluster`    the duties on the master
:mod:`.group`      the duties for one node group: observe, decide, act
:mod:`.decisions`  what to do with each instance; pure functions
:mod:`.balance`    moves which balance the cluster, where that is switched on
:mod:`.memory`     what a run remembers for the next one
:mod:`.restarting` submits jobs, a limited number at the same time
================== ==========================================================

Everything that changes an instance is a job of the master. So the locks, the checks and the records
of jobs hold for the watcher as for a user.

Source: ganeti-watcher(8); Ganeti design 2.0, *LVM self-repair* and *offline flag*; Ganeti design
2.2, *Removing instances pending a move from another cluster*.
"""
