"""The documents which programs keep in this cluster: list, replace and remove them.

A write names the entity tags of the content which it replaces, or demands that there is none. The
comparison and the write are one transaction of the configuration, so that of two writes with the
same tag one is refused. A write which is answered is on a majority of the master candidates.

Source: ``doc/design-auto-failover.rst``, *A document in another cluster*.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, Final

from ganeti import errors
from ganeti.config import documents
from ganeti.config.api import Config
from ganeti.objects import KeptDocument
from ganeti.utils import text

#: The error code of a write whose condition does not hold.
CHANGED: Final = errors.ECODE_STATE


def listed(config: Config, names: Collection[str] | None) -> list[dict[str, Any]]:
    """Return documents, each with ``name``, ``text``, ``tag``, ``ctime``, ``mtime``, ``serial_no``.

    :param names: None for all, in the order of their names.
    :raises OpPrereqError: unknown_entity: one does not exist.
    """
    known = {one.name: one for one in config.snapshot().documents.values()}
    for name in names or ():
        if name not in known:
            raise _missing(name)
    return [_shown(known[name]) for name in (sorted(known) if names is None else names)]


def replaced(config: Config, name: str, tags: Collection[str] | None, content: str) -> str:
    """Write a document if its condition holds; return its new entity tag.

    :param tags: the document must have one of these tags; None if there must be no document.
    :raises OpPrereqError: wrong_state: the condition does not hold, and nothing was changed;
        wrong_input: the name or the content is not allowed; insufficient_resources: there are too
        many documents.
    :raises ConfigurationError: not enough candidates have the change. It may have been made.
    """
    try:
        documents.check(name, content)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    with config.transaction() as change:
        table = change.data.documents
        present = _checked(table.values(), name, tags)
        if present is not None:
            new = dataclasses.replace(
                present, text=content, mtime=change.now, serial_no=present.serial_no + 1
            )
        else:
            if len(table) >= documents.MAX_DOCUMENTS:
                raise errors.OpPrereqError(
                    f"the cluster has {len(table)} documents, which is the limit; remove one"
                    " (DELETE /2/documents/NAME) before you add another",
                    errors.ECODE_NORES,
                )
            new = KeptDocument(
                uuid=text.new_uuid(),
                name=name,
                text=content,
                ctime=change.now,
                mtime=change.now,
                serial_no=1,
            )
        change.documents.put(new)
    return documents.tag(new)


def removed(config: Config, name: str, tags: Collection[str]) -> None:
    """Remove a document if its condition holds.

    :param tags: as for :func:`replaced`.
    :raises OpPrereqError: wrong_state: the condition does not hold; unknown_entity: there is no
        such document.
    :raises ConfigurationError: as for :func:`replaced`.
    """
    with config.transaction() as change:
        table = change.data.documents.values()
        if all(one.name != name for one in table):
            raise _missing(name)
        present = _checked(table, name, tags)
        assert present is not None
        change.documents.remove(present.uuid)


def _checked(
    table: Collection[KeptDocument], name: str, tags: Collection[str] | None
) -> KeptDocument | None:
    present = next((one for one in table if one.name == name), None)
    if present is None and tags is not None:
        raise errors.OpPrereqError(f"document {name} does not exist any more", CHANGED)
    if present is not None and tags is None:
        raise errors.OpPrereqError(f"document {name} exists already", CHANGED)
    if present is not None and tags is not None and not documents.matches(present, tags):
        raise errors.OpPrereqError(f"document {name} has changed meanwhile", CHANGED)
    return present


def _missing(name: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"document {name:.100} does not exist", errors.ECODE_NOENT)


def _shown(document: KeptDocument) -> dict[str, Any]:
    return {
        "name": document.name,
        "text": document.text,
        "tag": documents.tag(document),
        "ctime": document.ctime,
        "mtime": document.mtime,
        "serial_no": document.serial_no,
    }
