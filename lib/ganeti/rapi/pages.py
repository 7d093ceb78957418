"""The documentation of the resources: a page in HTML, and a chapter in reST.

Both are made from the declarations; the page is served at ``/2/doc``, the chapter is
``doc/rapi-resources.rst``, made by ``make pages``.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import cache
from typing import Any

from ganeti import ht
from ganeti.rapi import declare, openapi
from ganeti.rapi.declare import Job, Operation, Resource

_STYLE = """
body{font:16px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
h2{border-bottom:1px solid #ccd3dc;margin-top:2.5rem}h3{font:600 1rem ui-monospace,monospace;
margin:2rem 0 .3rem}code{font-family:ui-monospace,monospace;font-size:.92em}
.m{display:inline-block;min-width:4.2rem;font:600 .85rem ui-monospace,monospace;color:#0b5394}
table{border-collapse:collapse;margin:.4rem 0 1rem 1rem}td{padding:.15rem .7rem;vertical-align:top;
border-top:1px solid #e6eaef}details{margin-left:1rem}.r{color:#5b6675}
@media(prefers-color-scheme:dark){body{color:#dfe5ec;background:#15191f}.m{color:#7db4ff}
td{border-color:#2c343e}h2{border-color:#38414c}.r{color:#9aa6b4}}
"""


@cache
def page() -> str:
    """Make the HTML page."""
    parts = [
        "<!DOCTYPE html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>Ganeti remote API</title><style>{_STYLE}</style>"
        "<h1>Ganeti remote API</h1>"
        f"<p>{_marked(openapi.description()['info']['description'])}"
        " <a href='/2/openapi.json'>OpenAPI description</a></p><ul>"
    ]
    subjects = openapi.subjects()
    parts += [f"<li><a href='#about-{name}'>{name}</a>" for name in subjects]
    parts.append("</ul>")
    for name, resources in subjects.items():
        parts.append(f"<h2 id='about-{name}'>{name}</h2>")
        for resource in resources:
            parts.append(f"<h3 id='{resource.handler}'>{html.escape(resource.path)}</h3>")
            for method, operation in resource.operations.items():
                parts.append(_html_operation(resource, method, operation))
    return "".join(parts) + "\n"


def _html_operation(resource: Resource, method: str, operation: Operation) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(name)}</code><td class=r>{html.escape(kind)}"
        f"<td>{html.escape(text)}"
        for name, kind, text in _arguments(resource, method)
    )
    table = f"<table>{rows}</table>" if rows else ""
    if rows.count("<tr>") > 8:
        table = f"<details><summary>arguments</summary>{table}</details>"
    return (
        f"<p><span class=m>{method}</span> {html.escape(operation.doc)}"
        f" <span class=r>For {openapi.rights(operation)}; returns"
        f" {html.escape(openapi.result_of(operation))}{_opcode(operation)}.</span></p>{table}"
    )


def _opcode(operation: Operation) -> str:
    return f" ({operation.opcode.OP_ID})" if isinstance(operation, Job) else ""


def _marked(text: str) -> str:
    pieces = html.escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces)
    )


def _arguments(resource: Resource, method: str) -> Iterator[tuple[str, str, str]]:
    """List name, kind and description of all parameters."""
    operation = resource.operations[method]
    for query in declare.arguments(operation):
        # Every job has this one; the page says so once.
        if query is declare.REASON:
            continue
        yield (
            f"?{query.name}",
            "required" if query.required else _default(query.default),
            query.doc,
        )
    if isinstance(operation.fields, ht.Type):
        form, *parts = operation.fields.made_of or ("",)
        values = parts[0] if form == "one-of" else parts
        yield "(body)", str(operation.fields), ", ".join(map(str, values))
        return
    for name, field in resource.body_fields(method).items():
        kind = f"{field.type}, required" if field.required else str(field.type)
        yield name, kind, field.doc


def _default(value: Any) -> str:
    if value is None:
        return "optional"
    return f"default {int(value) if isinstance(value, bool) else value}"


def chapter() -> str:
    """Make the reST chapter."""
    lines = [
        ".. Made by devel/build-rapi-doc; a test says when it is out of date.",
        "",
        "Resources of the remote API",
        "===========================",
        "",
        "All paths and their operations. Every job also takes the query argument ``reason``; a"
        " path in"
        " braces",
        "stands for a name. How to use all this is in ``rapi.rst``.",
        "",
    ]
    for name, resources in openapi.subjects().items():
        lines += [name.capitalize(), "-" * len(name), ""]
        for resource in resources:
            lines += _rst_resource(resource)
    return "\n".join(lines).rstrip() + "\n"


def _rst_resource(resource: Resource) -> list[str]:
    title = f"``{resource.path}``"
    lines = [title, "~" * len(title), "", f"Name of the resource: ``{resource.handler}``", ""]
    for method, operation in resource.operations.items():
        lines += [
            f"**{method}**: {operation.doc} For {openapi.rights(operation)}. Returns"
            f" {openapi.result_of(operation)}{_opcode(operation)}.",
            "",
        ]
        for name, kind, text in _arguments(resource, method):
            lines.append(f"- ``{name}`` ({kind}): {text}")
        if lines[-1]:
            lines.append("")
    return lines
