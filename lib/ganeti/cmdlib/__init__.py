"""Logical units: each checks and executes one kind of opcode on the master.

There is a folder per subject and a file per unit; :mod:`ganeti.cmdlib.ops` has the parts which
several units share. The processor calls :func:`lookup`. All units are imported when the first
opcode arrives, or when the master daemon calls :func:`load` at its start.

=============== ==============================================================
``base``        the base class of all units, and the context in which they run
``hooks``       runs the scripts of the administrator around an operation
``locks``       sets of locks which several units need
``node_checks`` asks the questions of several checks at once
``prereq``      checks which refuse an operation before anything is changed
``ops``         what several units share, a package for each subject
``cluster``     units about the cluster as a whole, a file for each unit
``group``       units about node groups
``node``        units about nodes
``instance``    units about instances
``network``     units about networks
``backup``      units about exports of instances
``os``          units about OS definitions and external storage
``tags``        units about tags of all objects
``query``       units which answer queries
``test``        units which serve tests
``dry_run``     shows the plan of an operation which is not carried out
``processor``   executes one opcode with its unit
=============== ==============================================================
"""

from __future__ import annotations

import importlib
import pkgutil

from ganeti import errors
from ganeti.cmdlib.base import UNITS, AnyUnit

_loaded = False


def load() -> None:
    """Import all modules of this package, so that every unit is registered."""
    global _loaded
    if _loaded:
        return
    for module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
        importlib.import_module(module.name)
    _loaded = True


def lookup(op_id: str) -> type[AnyUnit]:
    """Find the unit which executes an opcode.

    :raises errors.OpCodeUnknown: there is no such unit.
    """
    load()
    try:
        return UNITS[op_id]
    except KeyError:
        raise errors.OpCodeUnknown(f"opcode {op_id} is not executed by this version") from None
