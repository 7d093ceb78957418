"""What the ``gnt-*`` programs have in common.

A program is a table of commands (:mod:`ganeti.client`); this room reads its command line, sends the
opcodes, waits for jobs, prints tables and turns errors into texts and exit codes. It holds no
knowledge of clusters beyond that.

======================= ==========================================================================
:mod:`~.values`         the types an option value may have, from text
:mod:`~.options`        what an option is, and the options several programs share
:mod:`~.parser`         argv to values; usage and help texts
:mod:`~.command`        what a command, an argument and a program is
:mod:`~.main`           runs a program: the one place where every error is caught
:mod:`~.failures`       error to text and exit code
:mod:`~.terminal`       writing, colours, questions
:mod:`~.table`          aligned columns
:mod:`~.output`         ``--output json|yaml|table`` and the indented text of the info commands
:mod:`~.listing`        the list and list-fields commands
:mod:`~.jobs`           submitting jobs and waiting for them
======================= ==========================================================================

Everything is imported where it is used: from start to the first request a command has 100 ms.
"""
