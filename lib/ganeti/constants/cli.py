"""Commands: the published exit codes."""

from __future__ import annotations

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOTCLUSTER = 5
EXIT_NOTMASTER = 11
EXIT_CONFIRMATION = 13
EXIT_UNKNOWN_FIELD = 14
