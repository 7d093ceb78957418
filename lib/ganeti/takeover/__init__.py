"""Turning a cluster of the original Ganeti into one of this project, in place, and back.

The program ``ganeti-takeover`` runs on the master. It works on files, packages and daemons, never
on guests: they run on, and the daemons of either program find them by their runtime files.

- :mod:`~ganeti.takeover.probe` is sent to each node and reads facts about it,
- :mod:`~ganeti.takeover.findings` judges these facts and the configuration,
- :mod:`~ganeti.takeover.node` has the steps which change one node, and runs on that node,
- :mod:`~ganeti.takeover.steps` has the order of the steps, and :mod:`~ganeti.takeover.state` the
  record of those which are complete,
- :mod:`~ganeti.takeover.command` is the program.

``doc/takeover.rst`` says what is taken over, and what can be taken back.
"""
