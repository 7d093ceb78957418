"""Small JSON documents which programs keep in the cluster, with conditional writes.

A write without a condition is refused: two programs which write the same document would overwrite
each other's content without noticing it. The witness of another cluster may be such a document
(``gnt-cluster modify --witness``).

Source: RFC 9110, sections 8.8.3 (entity tags) and 13.1 (conditions).
"""

from __future__ import annotations

from typing import Any, Final

from ganeti import errors, ht
from ganeti.http.messages import Refused
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import DELETE, GET, PUT, DirectChange, Read, Resource, Result
from ganeti.rapi.resources.common import NULL, uris
from ganeti.wire import json

_PATH: Final = "/2/documents"
_ANY: Final = "*"
_LISTED: Final = ("name", "tag", "ctime", "mtime", "serial_no")
_NEEDS: Final = (
    "this request needs a condition: If-Match with the entity tag (ETag) of the content which it"
    " replaces, or, to add a document, If-None-Match: *"
)


async def _list(call: Call) -> Any:
    found = await call.master.call("QueryDocuments", None)
    if call.query["bulk"]:
        return [{name: one[name] for name in _LISTED} for one in found]
    return uris(_PATH, "name", [one["name"] for one in found])


async def _show(call: Call) -> Any:
    (found,) = await call.master.call("QueryDocuments", [call.uri["document_name"]])
    call.etag = found["tag"]
    return json.loads(found["text"])


async def _put(call: Call) -> Any:
    wanted, unwanted = call.headers.get("if-match"), call.headers.get("if-none-match")
    if (wanted is None) == (unwanted is None) or unwanted not in (None, _ANY):
        raise Refused(428, _NEEDS)
    tags = None if wanted is None else _tags(wanted)
    name = call.uri["document_name"]
    return await _change(call, "ReplaceDocument", name, tags, json.dumps(call.body))


async def _delete(call: Call) -> None:
    wanted = call.headers.get("if-match")
    if wanted is None:
        raise Refused(
            428, "this request needs a condition: If-Match with the entity tag (ETag), or *"
        )
    await _change(call, "DeleteDocument", call.uri["document_name"], _tags(wanted))


def _tags(text: str) -> list[str]:
    """Return the tags of ``If-Match``; weak ones match nothing (RFC 9110, section 13.1.1)."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


async def _change(call: Call, method: str, *args: Any) -> Any:
    try:
        return await call.master.call(method, *args)
    except errors.OpPrereqError as err:
        if err.ecode == errors.ECODE_STATE:
            raise Refused(412, str(err)) from err
        raise


RESOURCES: Final = (
    Resource(
        _PATH,
        "documents",
        {
            GET: Read(
                _list,
                "List the documents which programs keep in this cluster.",
                Result(
                    ht.ListOf(ht.Dict),
                    "[{name, uri}], or with bulk name, tag, ctime, mtime and serial_no of each",
                ),
                (declare.BULK,),
                access=declare.READERS,
            ),
        },
    ),
    Resource(
        f"{_PATH}/{{document_name}}",
        "documents_name",
        {
            GET: Read(
                _show,
                "Read a document. Its entity tag is in the header ETag.",
                Result(ht.Dict, "the content"),
                access=declare.READERS,
                secret=True,
            ),
            PUT: DirectChange(
                _put,
                "Replace a document which still has the entity tag in If-Match, or add one"
                " with the condition that there is none (If-None-Match). The answer comes when a"
                " majority of the master candidates has the content.",
                Result(ht.NonEmptyString, "the new entity tag"),
                fields=ht.Dict,
                conditional=True,
            ),
            DELETE: DirectChange(
                _delete,
                "Remove a document which still has the entity tag in If-Match.",
                NULL,
                conditional=True,
            ),
        },
    ),
)
