"""The start of every program in ``scripts/``, ``daemons/`` and ``tools/``.

A starter there finds this package and calls :func:`start` with the function of its program. In a
checkout the packages of ``.venv`` are found too; an installed program uses those of its machine.
"""

import os
import sys

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    import _signal as signal  # without the underscore it takes milliseconds to load


def start(entry_point: str) -> "NoReturn":
    """Run a program and end the process with its exit code.

    An interrupt ends it without a traceback, also while it is being loaded.

    :param entry_point: the function of the program, as ``MODULE:FUNCTION``.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    ignored = on_interrupt == signal.SIG_IGN
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.isfile(f"{top}/lib/ganeti/launcher.py"):
        _use_virtual_environment(f"{top}/.venv")
    name, _, function = entry_point.partition(":")
    run = getattr(__import__(name, fromlist=[function]), function)
    try:
        signal.signal(signal.SIGINT, on_interrupt)
        code = run()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _use_virtual_environment(venv: str) -> None:
    """Find the packages of the virtual environment of a checkout, or run its Python instead."""
    python = f"{venv}/bin/python"
    packages = f"{venv}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    if os.path.isdir(packages):
        sys.path.insert(1, packages)  # behind this package
        sys.executable = python  # for the programs that this one starts
    elif os.path.exists(python) and sys.executable != python:
        os.execv(python, [python, *sys.argv])
    else:
        try:
            import pycurl  # noqa: F401  without .venv, the packages of the machine must do
        except ImportError:
            program = os.path.basename(sys.argv[0])
            sys.exit(f"{program}: no virtual environment. Run 'make venv' first.")
