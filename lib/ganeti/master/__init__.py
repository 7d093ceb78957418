"""The services of the master daemon: LUXI, queries, events, history, and the fence.

The configuration, the locks and the job queue have packages of their own;
:mod:`ganeti.server.mastering` starts all of them.
"""
