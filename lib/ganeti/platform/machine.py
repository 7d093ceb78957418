"""Choosing the machine that this program runs on: a real one, or a node of a virtual cluster.

Three environment variables decide, which the starters of a virtual cluster set: ``GANETI_ROOTDIR``
(directory of the node; without it the machine is real), ``GANETI_HOSTNAME`` (name of the node) and
``GANETI_VCLUSTER`` (directory of the virtual cluster, with its ``hosts`` file). The choice is made
at the first question, and again only when a test changes one of them.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from ganeti import TYPE_CHECKING, errors
from ganeti.platform import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ganeti.platform.base import Machine

_chosen: tuple[paths.Paths, str, str, Machine] | None = None
_overrides: list[Machine] = []


def current() -> Machine:
    """Return the machine that this program runs on.

    :raises ConfigurationError: ``GANETI_ROOTDIR`` or ``GANETI_VCLUSTER`` is not an absolute path.
    """
    global _chosen
    if _overrides:
        return _overrides[-1]
    here = paths.current()
    name = os.environ.get(paths.ENV_HOSTNAME, "")
    directory = os.environ.get(paths.ENV_VCLUSTER, "")
    if _chosen is None or _chosen[:3] != (here, name, directory):
        _chosen = (here, name, directory, _choose(here, name, directory))
    return _chosen[3]


def _choose(here: paths.Paths, name: str, directory: str) -> Machine:
    # A program needs only one of the two.
    if not here.root:
        from ganeti.platform.real import RealMachine

        return RealMachine(here, name)
    from ganeti.platform.virtual import VirtualNode

    if directory and not os.path.isabs(directory):
        raise errors.ConfigurationError(
            f"{paths.ENV_VCLUSTER} must be an absolute path, not '{directory}'"
        )
    return VirtualNode(here, name, os.path.normpath(directory) if directory else None)


@contextmanager
def override(other: Machine) -> Iterator[Machine]:
    """Let :func:`current` answer with another machine inside the block; for tests."""
    _overrides.append(other)
    try:
        yield other
    finally:
        _overrides.remove(other)
