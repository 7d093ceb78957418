"""The document of a witness: the third voter of a cluster with two master candidates.

The document has what a node answers in a vote, without any data: the epoch which the witness has
promised, and how far the newest configuration and job of which it was informed had got. All nodes
which may become master write it, each time under the condition that it is still the document which
they have read (:mod:`ganeti.rpc.witness`). So it changes step by step, as the memory of a node
does.

Source: ``doc/design-auto-failover.rst``, *The witness of two nodes*.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ganeti import errors, ht
from ganeti.config.role import Standing
from ganeti.platform.master_epoch import NONE, Epoch, parse
from ganeti.wire import json

_FORMAT: Final = 1
_MAX_NUMBER: Final = 1 << 62
_MAX_TEXT: Final = 255


class Document(NamedTuple):
    """What the witness knows.

    :ivar cluster: UUID of the cluster.
    :ivar generation: grows with each change.
    :ivar nonce: another one in each change, so that no two documents are equal.
    :ivar master: name of the node to which the epoch was promised.
    :ivar epoch: the epoch which was promised.
    :ivar config: epoch and serial number of a configuration.
    :ivar jobs: epoch and number of a job.
    :ivar written: when it was written, in seconds since 1970 by the clock of the writer; for
        administrators only.
    """

    cluster: str
    generation: int = 0
    nonce: str = ""
    master: str = ""
    epoch: Epoch = NONE
    config: tuple[Epoch, int] = (NONE, 0)
    jobs: tuple[Epoch, int] = (NONE, 0)
    written: float = 0.0

    def standing(self) -> Standing:
        """Return the answer of the witness in a vote."""
        return Standing(self.master, self.epoch, self.config, self.jobs)


def text_of(document: Document) -> str:
    """Return the text which :func:`parse_document` reads."""
    return json.dumps(
        {
            "format": _FORMAT,
            "cluster": document.cluster,
            "generation": document.generation,
            "nonce": document.nonce,
            "master": document.master,
            "epoch": str(document.epoch),
            "config": [str(document.config[0]), document.config[1]],
            "jobs": [str(document.jobs[0]), document.jobs[1]],
            "written": document.written,
        }
    )


def parse_document(text: str) -> Document:
    """Read a document.

    :raises ParseError: it is none, or its format is that of a later version.
    """
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise errors.ParseError("not the document of a witness")
    if raw.get("format") != _FORMAT:
        raise errors.ParseError(f"not the document of a witness in format {_FORMAT}")
    return Document(
        _text(raw, "cluster"),
        _number(raw.get("generation")),
        _text(raw, "nonce"),
        _text(raw, "master"),
        parse(_text(raw, "epoch")),
        _state(raw, "config", _MAX_NUMBER),
        _state(raw, "jobs", ht.MAX_JOB_ID),
        _seconds(raw.get("written")),
    )


def _text(raw: dict[str, object], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise errors.ParseError(f"witness: {name} is not text")
    return value


def _number(value: object, most: int = _MAX_NUMBER) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise errors.ParseError("witness: a number is missing or out of range")
    return value


def _seconds(value: object) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value < _MAX_NUMBER
    ):
        raise errors.ParseError("witness: the time is missing or out of range")
    return float(value)


def _state(raw: dict[str, object], name: str, most: int) -> tuple[Epoch, int]:
    value = raw.get(name)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):  # noqa: PLR2004
        raise errors.ParseError(f"witness: {name} is not a pair of epoch and number")
    return parse(value[0]), _number(value[1], most)
