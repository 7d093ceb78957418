"""The job queue: what the master was asked to do, what it does now, what became of it.

Read from the bottom: :mod:`.job` is one job and its states, :mod:`ganeti.jobstore.store` its file
and the journal, :mod:`.commit` writes what changed, many jobs at a time, :mod:`.replicate` sends it
to the master candidates, :mod:`.catch_up` finds out what one of them lacks, :mod:`.depend` and
:mod:`.filters` decide whether a job may start, :mod:`.explain` says why it does not, :mod:`.worker`
is the pool of threads. :mod:`.engine` puts them together: the jobs, their execution and their ends.
:mod:`.queue` is what clients may ask of it, :mod:`.watch` how they wait, :mod:`.callbacks` what a
running opcode may ask.

Promises (each with a test that tries to break it): an acknowledged job is never lost and never run
twice; every file is whole at every moment; what is told has been committed.
"""
