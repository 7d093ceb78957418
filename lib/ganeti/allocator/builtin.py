"""The allocator ``hail`` inside the master daemon: no program is started and no JSON is written.

The name :data:`~ganeti.constants.instance.IALLOC_HAIL` always means this allocator. The program
**hail** reads the same description of the cluster from a file and calls the same code
(:mod:`ganeti.htools.answer`), so both give the same answer.

Source: manual pages **hail** and **ganeti-iallocator**.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.allocator.answers import Answer
from ganeti.constants.instance import IALLOC_HAIL
from ganeti.htools import answer as htools
from ganeti.htools import place
from ganeti.htools.loading import request as loading

# Options of the program which change only what it prints for people, or nothing.
_NO_EFFECT = frozenset(("verbose", "quiet", "print-nodes", "ignore-dynu"))
_FLAGS = ("ignore-soft-errors", "no-capacity-checks")
_RESTRICT = "restrict-allocation-to"


def is_builtin(name: str) -> bool:
    """Return True if an allocator of this name is answered by the master daemon itself."""
    return name == IALLOC_HAIL


def options(parameters: Mapping[str, Any]) -> place.Options:
    """Read the parameters of the allocator, which are named like the options of the program.

    :raises AllocatorError: a parameter is unknown, or is one which only the program has.
    """
    for key in parameters:
        if key not in (*_FLAGS, _RESTRICT) and key not in _NO_EFFECT:
            raise errors.AllocatorError(
                f"instance allocator {IALLOC_HAIL} has no parameter {key!r} in the master daemon."
                f" It has {', '.join((*_FLAGS, _RESTRICT))}."
            )
    names = parameters.get(_RESTRICT)
    return place.Options(
        ignore_soft_errors=_given(parameters, _FLAGS[0]),
        capacity_checks=not _given(parameters, _FLAGS[1]),
        restrict_to=None if names is None else tuple(str(names).split(",")),
    )


def _given(parameters: Mapping[str, Any], key: str) -> bool:
    # As on the command line of a program: None and True are an option, False is none.
    return key in parameters and parameters[key] is not False


@dataclass(frozen=True, slots=True)
class Known:
    """What the input of an allocator does not have, for the reasons.

    :ivar closed: name of a node -> why the request excludes it.
    :ivar networks: UUID of a network -> its name.
    """

    closed: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, str] = field(default_factory=dict)


def answer(
    description: Mapping[str, Any], parameters: Mapping[str, Any], known: Known | None = None
) -> Answer:
    """Answer a request.

    :param description: the input of an allocator (:func:`ganeti.allocator.ask.prepare`).
    :param parameters: parameters of the cluster and of the request.
    :raises AllocatorError: a parameter is unknown, or the description cannot be used.
    """
    chosen, known = options(parameters), known or Known()
    reasons: dict[str, str] = {}
    with _failing():
        request = _read(description, known)
        tell = htools.Tell(
            reasons=lambda name, lines: reasons.update({name: "; ".join(lines)}),
            networks=known.networks,
        )
        found = htools.answer(request, request.cluster, chosen, tell)
    return Answer(found.success, found.info, found.result, reasons)


def _read(description: Mapping[str, Any], known: Known) -> loading.Request:
    request = loading.from_dict(description)
    request.closed = {**known.closed, **request.closed}
    htools.prepare(request)
    return request


def explain(
    description: Mapping[str, Any], parameters: Mapping[str, Any], known: Known | None = None
) -> list[dict[str, Any]]:
    """Explain for each node why it is or is not chosen for the new instances of a request.

    :param description: as for :func:`answer`; of several new instances each is looked at alone.
    :returns: for each of them ``instance``, ``info`` and ``nodes``, see
        :class:`ganeti.htools.explain.Explanation`; empty when the request is not about new ones.
    :raises AllocatorError: as for :func:`answer`.
    """
    # Few requests ask for it.
    from ganeti.htools import explain as reasons

    chosen = options(parameters)
    with _failing():
        return reasons.explain_all(_read(description, known or Known()), chosen)


def explanation_text(explanation: Mapping[str, Any]) -> str:
    """Write one explanation as a table for people."""
    from ganeti.htools import explain as reasons

    return reasons.table(explanation)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except errors.GenericError as err:
        raise errors.AllocatorError(
            f"instance allocator {IALLOC_HAIL} cannot answer: {err}"
        ) from err
