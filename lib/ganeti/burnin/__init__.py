"""The program ``burnin``: tests a cluster with all operations on instances.

It is a client of the master daemon, as the commands are (Ganeti design 2.0,
*ganeti-2.0-architecture*): it submits jobs through LUXI, and looks at the results. It creates its
own instances, carries out its steps on them one after the other, and removes them.

=============== ========================================================================
:mod:`.options` the command line
:mod:`.jobs`    submits jobs, waits for them, repeats what failed, and keeps their times
:mod:`.cluster` what the program asks about nodes, instances and guests
:mod:`.steps`   the table of steps, and what decides whether a step can be done here
:mod:`.work`    the jobs of each step
:mod:`.report`  what was done and how long it took, for people and for programs
:mod:`.program` the run from the first check to the removal of the instances
=============== ========================================================================
"""
