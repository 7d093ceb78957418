"""Programs of the administrator beside the ``gnt-*`` commands.

Each module is one program with a function ``main``; the starters are in the top-level ``tools/``,
``daemons/`` and ``scripts/``.
"""
