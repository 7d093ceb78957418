"""Turning a cluster of the original Ganeti into one of this project, in place, and back.

The program ``ganeti-takeover`` runs on the master. It works on files, packages and daemons, never
on guests: they run on, and the daemons of either program find them by their runtime files.

==================== ==========================================================
``doc/takeover.rst`` says what is taken over, and what can be taken back.
"""
