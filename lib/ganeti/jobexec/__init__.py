"""Jobs in processes of their own: how they start, what they may ask, and how their end is noticed.

The modules of both sides, from the bottom:

======================== ===========================================================================
:mod:`.messages`         messages over a unix socket, with objects of the configuration and errors
:mod:`.livelock`         the file which shows that a job process lives, and what the process holds
:mod:`.changes`          what changed in the configuration since a state which a process has
:mod:`.forms`            how values travel in messages, by their annotations
:mod:`.methods`          all requests of a job process, and the proxies which send them
======================== ===========================================================================

In a job process:

======================== ===========================================================================
:mod:`.link`             the connection to the master daemon: requests, reconnection after a restart
:mod:`.remote`           those services of which the process keeps a part: configuration, locks, log
:mod:`.node_calls`       node calls, under the epoch of the present master daemon of this node
:mod:`.process`          executes the opcodes of one job
:mod:`.fork_server`      the process which makes job processes
======================== ===========================================================================

In the master daemon:

======================== ===========================================================================
:mod:`.leftovers`        what an interrupted opcode may leave, and the command which cleans up
:mod:`.forker`           starts the fork server, and asks it for processes
:mod:`.requests`         carries out the requests of a job process, or has them carried out
:mod:`.process_handle`   the process of one job: its opcodes, kill and death
:mod:`.executor`         all job processes: start, connection, and adoption after a restart
======================== ===========================================================================

``doc/design-job-processes.rst`` explains why. Source: Ganeti daemons design, *Job death detection*,
*Job execution*, *WConfD details*.
"""
