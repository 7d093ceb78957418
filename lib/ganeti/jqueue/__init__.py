"""The job queue: jobs which clients submitted to the master, their execution and their results.

The modules, from the bottom:

===================== ===================================================================
:mod:`.job`           one job and its opcodes: states, legal moves, the job file
:mod:`.dependencies`  whether the jobs on which an opcode depends have ended as wanted
:mod:`.filters`       which jobs the filter rules reject or keep back
:mod:`.rate_meter`    counts the events of the last minute
:mod:`.pause`         the pause of the queue when jobs cannot be executed
:mod:`.worker`        the pool of threads which execute jobs
:mod:`.commit`        writes changes of jobs, many jobs at a time
:mod:`.outbox`        what a candidate lacks, cut into messages
:mod:`.replication`   sends the queue to the other master candidates
:mod:`.catch_up`      compares the copy of a candidate with the queue of this node
:mod:`.restore`       restores jobs which the master lacks from the copies of candidates
:mod:`.subscriptions` clients which wait for a change of a job
:mod:`.explain`       why a job waits; pure functions
:mod:`.overview`      the whole queue in the predicted order, with the locks; pure functions
:mod:`.table`         the live jobs, and the lock which guards them
:mod:`.publisher`     shows committed states to clients
:mod:`.callbacks`     what a running opcode may ask of the queue
:mod:`.execution`     where opcodes are executed: in a worker, or in a process of the job
:mod:`.job_trace`     the spans of a job and of its opcodes, in traces
:mod:`.scheduler`     which job may start, its execution, its end
:mod:`.recovery`      what an earlier run of the daemon left
:mod:`.operations`    cancel, kill, priority, archive, waiting for a change
:mod:`.queue`         the class ``JobQueue``, which the rest of the master daemon uses
:mod:`.facts`         gathers what an explanation works on
===================== ===================================================================

The files on disk belong to :mod:`ganeti.jobstore`.

Promises (each with a test that tries to break it): an acknowledged job is never lost and never run
twice; every file is whole at every moment; a published state has been committed.
"""
