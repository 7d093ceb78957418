"""The OpenAPI description is valid, and so is what people read."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from docutils.core import publish_doctree
from openapi_spec_validator import OpenAPIV31SpecValidator

from ganeti import ht
from ganeti.opcodes import types
from ganeti.rapi import openapi, pages, schema
from ganeti.rapi.resources import RESOURCES

DOC = Path(__file__).resolve().parents[3] / "doc"


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(openapi.description()).validate()


def test_every_operation_is_described_once() -> None:
    described = [
        operation["operationId"]
        for path in openapi.description()["paths"].values()
        for name, operation in path.items()
        if name != "parameters"
    ]
    assert (
        len(described)
        == len(set(described))
        == sum(len(resource.operations) for resource in RESOURCES)
    )


def test_bodies_say_what_they_take() -> None:
    paths = openapi.description()["paths"]
    body = paths["/2/instances"]["post"]["requestBody"]
    shape = body["content"]["application/json"]["schema"]
    assert body["required"]
    assert {"__version__", "name", "mode", "disks", "nics"} <= set(shape["required"])
    assert shape["properties"]["mode"]["enum"] == ["create", "import", "remote-import"]
    assert "requestBody" not in paths["/2/instances/{instance_name}/startup"]["put"]
    assert (
        paths["/2/nodes/{node_name}/role"]["put"]["requestBody"]["content"]["application/json"][
            "schema"
        ]["enum"][0]
        == "drained"
    )


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        (ht.Maybe(ht.NonEmptyString), {"type": ["string", "null"], "minLength": 1}),
        (ht.Maybe(ht.OneOf("x", ("b", "a"))), {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}),
        (
            ht.ListOf(ht.PositiveInt),
            {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}},
        ),
        (ht.DictOf(ht.Str, ht.Any), {"type": "object"}),
        (
            ht.Tuple(ht.Bool, ht.Str),
            {
                "type": "array",
                "minItems": 2,
                "items": False,
                "prefixItems": [{"type": "boolean"}, {"type": "string"}],
            },
        ),
        (ht.Or(ht.Str, ht.Any), {}),
        (ht.Private(ht.NonNegInt), {"type": "integer", "minimum": 0}),
        (types.QueryFieldsResponse, None),
    ],
)
def test_schema_of_a_word(word: ht.Type, wanted: dict[str, Any] | None) -> None:
    found = schema.of(word)
    assert found == wanted if wanted is not None else found["required"] == ["fields"]


def test_every_word_of_every_opcode_has_a_schema() -> None:
    for op in {
        one.opcode
        for resource in RESOURCES
        for one in resource.operations.values()
        if hasattr(one, "opcode")
    }:
        for param in op.PARAMS.values():
            schema.of(param.type)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and value and value.startswith("#"):
                self.targets.append(value[1:])


def test_the_page() -> None:
    page = pages.page()
    links = _Links()
    links.feed(page)
    assert set(links.targets) <= set(links.ids)
    assert len(links.ids) == len(set(links.ids))
    for resource in RESOURCES:
        assert resource.path in page


def test_the_chapter_is_up_to_date() -> None:
    written = (DOC / "rapi-resources.rst").read_text(encoding="utf-8")
    assert written == pages.chapter(), "run make pages"
    tree = publish_doctree(written, settings_overrides={"halt_level": 2, "report_level": 2})
    text = tree.astext()
    for resource in RESOURCES:
        assert resource.path in text
