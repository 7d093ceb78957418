"""Crash points: a process dies at each of its writes, flushes, renames and node calls.

A *subject* (:class:`.engine.Subject`) is a piece of work of one process, with the promise which
must hold when that process dies in the midst of it. The engine lets a child process do the work
once and counts its *points*: each call of the system which changes a disk or flushes it, each node
call before it arrives and after it was carried out, each commit of the configuration. Then, for
each point, a child does the work again and dies there (``os._exit``: nothing is cleaned up, no
``finally`` runs, locks of files end). What would outlive the process (files, guests, other nodes)
is handed to another child, which starts as after a real crash, sets right what an administrator
would, and checks the promise.

``python -m crash_points`` prints the table (``doc/fault-injection.rst``); ``recorded.json`` has the
numbers, which may not fall.
"""
