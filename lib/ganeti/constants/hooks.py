"""Hooks: version of their environment, results of scripts, special names."""

from __future__ import annotations

VERSION = 2
PHASE_PRE = "pre"
NAME_WATCHER = "watcher"

# Results of a script.
RESULT_SKIP = 0
RESULT_FAIL = 1
RESULT_OK = 2
RESULTS = frozenset((RESULT_SKIP, RESULT_FAIL, RESULT_OK))
