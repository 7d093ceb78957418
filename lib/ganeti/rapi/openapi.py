"""The OpenAPI 3.1 description, made from the declarations of the resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from ganeti import ht
from ganeti.constants import cluster as cluster_const
from ganeti.constants import query as query_const
from ganeti.http.messages import JSON
from ganeti.platform import hosts
from ganeti.rapi import declare, operation_names, plans, represent, schema
from ganeti.rapi.challenge import SESSION_COOKIE
from ganeti.rapi.declare import (
    GET,
    READ,
    DirectChange,
    Field,
    Job,
    Operation,
    Query,
    Read,
    Resource,
)  # fmt: skip
from ganeti.rapi.resources import RESOURCES

_ABOUT: Final = (
    "Jobs are submitted and answered with their number; `GET /2/jobs/{job_id}` and"
    " `GET /2/events` report their progress. Objects have an `ETag`, which changes when their"
    " configuration does: send it in `If-Match` with a change, or in `If-None-Match` with a `GET`."
    " Live values, such as the memory of a guest, do not change the tag."
)
_NAMES: Final = r"^[A-Za-z0-9_.-]+$"
_NUMBERS: Final = ("job_id", "disk_index", "serial")
# The query fields of an object of each resource.
_KINDS: Final = {
    "instances": query_const.INSTANCE,
    "nodes": query_const.NODE,
    "groups": query_const.GROUP,
    "networks": query_const.NETWORK,
    "jobs": query_const.JOB,
    "filters": query_const.FILTER,
    "os": query_const.OS,
}
# Resources which are shown together with others.
_GROUPED: Final = {"queue": "jobs", "history": "history", "audit": "history", "at": "history"}
_SCHEMES: Final[dict[str, dict[str, Any]]] = {
    declare.FLAG: {"type": "integer", "enum": [0, 1]},
    declare.TEXT: {"type": "string"},
    declare.NUMBER: {"type": "integer"},
    declare.VALUES: {"type": "string", "contentMediaType": JSON},
}
_SERVERS: Final[list[dict[str, Any]]] = [
    {
        "url": "https://{cluster}:{port}",
        "description": "the address of a cluster, which its master has",
        "variables": {
            "cluster": {"default": "localhost", "description": "name or address of the cluster"},
            "port": {"default": str(hosts.RAPI_PORT), "description": "port of the REST daemon"},
        },
    },
    {"url": "/", "description": "the server which has sent this description"},
]
#: The ways in which users identify themselves; one of them is sufficient.
_WAYS: Final[dict[str, dict[str, str]]] = {
    "basic": {"type": "http", "scheme": "basic", "description": "user name and password"},
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "an access token, from 'rapi-passwd token add' on the master",
    },
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "a session, which begins with POST /2/login",
    },
}
_ERRORS: Final = {
    "400": "the request is wrong",
    "401": "the credentials are missing or wrong, or the session has ended",
    "403": "the user has no right to do this",
    "404": "the object does not exist",
    "406": "not available in the requested representation",
    "409": "the request contradicts the present state",
    "412": "the object has changed (If-Match)",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "426": "this version of the WebSocket protocol is not supported",
    "428": "the request needs a condition (If-Match, If-None-Match)",
    "429": "too many wrong passwords, or too many jobs of this user",
    "500": "internal error",
    "502": "no master daemon runs here",
    "503": "not now",
    "504": "the master does not answer",
}


@cache
def description() -> dict[str, Any]:
    """Make the whole description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ganeti remote API",
            "version": str(cluster_const.RAPI_VERSION),
            "description": _ABOUT,
        },
        "servers": _SERVERS,
        "paths": {resource.path: _path(resource) for resource in RESOURCES},
        "components": {
            "securitySchemes": _WAYS,
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["code", "message", "explain"],
                    "properties": {
                        "code": {"type": "integer"},
                        "message": {"type": "string"},
                        "explain": {"type": "string"},
                        "reason": {"type": "string"},
                        "factors": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "second factors which a login needs and does not have",
                        },
                    },
                },
                "Plan": schema.of(plans.ANSWER),
            },
            "responses": {
                f"E{code}": {
                    "description": text,
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for code, text in _ERRORS.items()
            },
        },
    }


def _path(resource: Resource) -> dict[str, Any]:
    names = resource.names()
    found: dict[str, Any] = {}
    if names:
        found["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": (
                    {"type": "string", "pattern": "^[0-9]+$"}
                    if name in _NUMBERS
                    else {"type": "string", "pattern": _NAMES}
                ),
            }
            for name in names
        ]
    for method, operation in resource.operations.items():
        found[method.lower()] = _operation(resource, method, operation)
    return found


def _operation(resource: Resource, method: str, operation: Operation) -> dict[str, Any]:
    parameters = [_parameter(query) for query in declare.arguments(operation)]
    found: dict[str, Any] = {
        "operationId": operation_names.of(resource.path, method),
        "summary": operation.doc,
        "description": _who(operation),
        "tags": [_subject(resource)],
    }
    if parameters:
        found["parameters"] = parameters
    fields = resource.body_fields(method)
    # What a body of GET means is not defined in HTTP, so clients send these members in the query.
    body = None if method == GET else request_body(operation, fields)
    if body is not None:
        found["requestBody"] = {
            "required": _needs_body(operation, fields),
            "content": {JSON: {"schema": body}},
        }
    produces = "" if isinstance(operation, Job) else operation.produces
    if produces:
        content: dict[str, Any] = {produces: {"schema": {"type": "string"}}}
    else:
        shape = _result(resource, operation)
        content = {JSON: {"schema": shape}, represent.YAML: {"schema": shape}}
    codes = ["400", "401", "403", "404", "406", "409", "429", "500", "502", "503", "504"]
    if resource.tagged:
        codes.append("412")
    if isinstance(operation, DirectChange) and operation.conditional:
        codes += ["412", "428"]
    if body is not None:
        codes += ["413", "415"]
    found["responses"] = {
        "200": {"description": result_of(operation), "content": content},
        **{code: {"$ref": f"#/components/responses/E{code}"} for code in sorted(codes)},
    }
    if not isinstance(operation, Job):
        found["responses"] |= {
            str(status): {"description": text} for status, text in operation.statuses.items()
        }
    if not isinstance(operation, Job) and operation.headers:
        headers = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in operation.headers.items()
        }
        for status in ("200", *map(str, operation.statuses)):
            found["responses"][status]["headers"] = headers
    if method == GET and not isinstance(operation, Job) and not produces:
        found["responses"]["304"] = {"description": "not changed (If-None-Match)"}
    if isinstance(operation, Read) and operation.socket is not None:
        found["responses"]["101"] = {
            "description": "a WebSocket begins (for a request with Upgrade: websocket)"
        }
        found["responses"]["426"] = {"$ref": "#/components/responses/E426"}
    if isinstance(operation, Job):
        found["x-opcode"] = operation.opcode.OP_ID
    found["x-rights"] = sorted(operation.access)
    # Operations without required rights accept credentials, too.
    ways: list[dict[str, list[str]]] = [{way: []} for way in _WAYS]
    found["security"] = ways if operation.access else [{}, *ways]
    return found


def result_of(operation: Operation) -> str:
    """Describe the answer of an operation, as a part of a sentence."""
    doc = operation.result.doc
    return f"{doc}; with plan=1 the plan" if declare.has_plan(operation) else doc


def _who(operation: Operation) -> str:
    """Describe which users may use an operation, as a sentence."""
    if not operation.access:
        return (
            "Needs no password, unless the cluster demands one for every request"
            " (`rapi_require_authentication`)."
        )
    if declare.USER in operation.access:
        return "Needs the password of any user."
    if READ in operation.access:
        return "Needs the password of a user with the right `read` or `write`."
    return "Needs the password of a user with the right `write`."


def _subject(resource: Resource) -> str:
    words = resource.path.strip("/").split("/")
    known = words[1] if len(words) > 1 else ""
    if known in _GROUPED:
        return _GROUPED[known]
    return (
        known.partition("-")[0]
        if known in (*_KINDS, "query", "documents", "instances-multi-alloc")
        else ("cluster")
    )


def _parameter(query: Query) -> dict[str, Any]:
    found: dict[str, Any] = {"name": query.name, "in": "query", "description": query.doc}
    if query.required or query.kind == declare.MANY:
        found["required"] = True
    if query.kind == declare.WORDS:
        found["schema"] = {"type": "array", "items": {"type": "string"}}
        found["style"], found["explode"] = "form", False
    elif query.kind == declare.MANY:
        found["schema"] = {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "minLength": 1},
        }
        found["style"], found["explode"] = "form", True
    else:
        found["schema"] = dict(_SCHEMES[query.kind])
        if query.choices:
            found["schema"] = {"type": "string", "enum": list(query.choices)}
        if query.default is not None:
            found["schema"]["default"] = (
                int(query.default) if query.kind == declare.FLAG else query.default
            )
    return found


def request_body(operation: Operation, fields: Mapping[str, Field]) -> dict[str, Any] | None:
    """Make the schema of a body; None for requests without a body."""
    if isinstance(operation.fields, ht.Type):
        return schema.of(operation.fields)
    if not fields:
        return None
    properties = {}
    for name, field in fields.items():
        properties[name] = {**schema.of(field.type), "description": field.doc}
        if not field.required and field.default is not None:
            properties[name]["default"] = field.default
    found: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if field.required]
    if required:
        found["required"] = required
    return found


def _needs_body(operation: Operation, fields: Mapping[str, Field]) -> bool:
    return isinstance(operation.fields, ht.Type) or any(field.required for field in fields.values())


def _result(resource: Resource, operation: Operation) -> dict[str, Any]:
    usual = _usual_result(resource, operation)
    if declare.has_plan(operation):
        return {"anyOf": [usual, {"$ref": "#/components/schemas/Plan"}]}
    return usual


def _usual_result(resource: Resource, operation: Operation) -> dict[str, Any]:
    result = operation.result
    if not result.fields:
        # Some generators of clients cannot read the type "null" alone.
        return {} if result.type is ht.NoneType else schema.of(result.type)
    one = schema.of_object(_kind(resource), result.fields)
    if result.type is ht.Dict:
        return one
    if result.type.made_of[:1] == ("or",):
        kinds = result.type.made_of[1:]
        return {"anyOf": [one if kind is ht.Dict else schema.of(kind) for kind in kinds]}
    # A list of names, or of objects with bulk=1.
    return {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, one]}
        if _kind(resource) == query_const.OS
        else {"anyOf": [_REFERENCE, one]},
    }


_REFERENCE: Final = {
    "type": "object",
    "required": ["uri"],
    "properties": {"uri": {"type": "string"}},
}


def _kind(resource: Resource) -> str:
    if "/os" in resource.path:
        return _KINDS["os"]
    # /2/at/{serial}/instances has the objects of /2/instances.
    words = resource.path.replace("/at/{serial}/", "/").split("/")
    return _KINDS.get(words[2] if len(words) > 2 else "", "")


def rights(operation: Operation) -> str:
    """Describe the users who may use an operation."""
    if not operation.access:
        return "anybody"
    if declare.USER in operation.access:
        return "every user"
    return "read or write" if READ in operation.access else "write"


def subjects() -> dict[str, Sequence[Resource]]:
    """Group the resources by subject."""
    found: dict[str, list[Resource]] = {}
    for resource in RESOURCES:
        found.setdefault(_subject(resource), []).append(resource)
    return dict(sorted(found.items()))
