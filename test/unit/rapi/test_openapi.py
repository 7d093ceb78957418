"""The OpenAPI description is valid, and so is what people read."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from docutils.core import publish_doctree
from openapi_spec_validator import OpenAPIV31SpecValidator

from fakes.http_lab import WAIT_S, HttpLab
from fakes.rest_master import busy_master
from ganeti import ht
from ganeti.opcodes import types
from ganeti.rapi import openapi, pages, schema
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import Users

TOP = Path(__file__).resolve().parents[3]
DOC = TOP / "doc"
DRIVE = TOP / "test" / "scenario" / "generated_client_drive.py"


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


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, name, operation)
        for path, found in openapi.description()["paths"].items()
        for name, operation in found.items()
        if name != "parameters"
    ]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package ``made``, a client which openapi-python-client 0.2x makes.

    It leaves out, with a warning, what it does not understand.
    """
    pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")
    directory = tmp_path_factory.mktemp("generated")
    file = directory / "openapi.json"
    file.write_text(json.dumps(openapi.description()))
    argv = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    done = subprocess.run(
        [*argv, "--path", str(file), "--output-path", str(directory / "made")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "will not be generated" not in done.stdout + done.stderr
    return directory


@pytest.mark.programs
def test_a_generator_makes_a_client_with_every_operation(generated: Path) -> None:
    api = generated / "made" / "api"
    functions = {path.stem for path in api.rglob("*.py")} - {"__init__"}
    wanted = {
        re.sub("(?<!^)([A-Z])", r"_\1", operation["operationId"]).lower()
        for _, _, operation in _operations()
    }
    assert functions == wanted
    # The client can be imported: no name is used twice or is a word of Python.
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    names = [
        ".".join(path.relative_to(generated).with_suffix("").parts)
        for path in sorted(api.rglob("*.py"))
    ]
    imported = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**os.environ, "PYTHONPATH": str(generated)},
        capture_output=True,
        text=True,
    )
    assert imported.returncode == 0, imported.stderr


@pytest.mark.programs
def test_the_generated_client_reads_every_answer(generated: Path, tmp_path: Path) -> None:
    """A scenario test does the same with a real cluster."""
    users = tmp_path / "users"
    users.write_text("root secret write\n")
    lab = HttpLab(lambda: RestApplication(busy_master(), Identities([Users(str(users))])))
    authorization = "Basic " + base64.b64encode(b"root:secret").decode()
    words = [f"{name}=1" for name in ("job_id", "serial", "disk_index")]
    done = subprocess.run(
        [sys.executable, str(DRIVE), str(generated), f"http://127.0.0.1:{lab.port}", authorization]
        + words,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    lab.close()
    assert done.returncode == 0, done.stderr
    statuses = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(statuses) > 50
    # Without a real master, capacity and balance are not computed; and there are no queries of "x",
    # and no logins at a provider.
    assert {name for name, status in statuses.items() if status != 200} <= {
        "begin_login",
        "finish_login",
        "log_out_at_provider",
        "compute_balance",
        "compute_capacity",
        "explain_jobs",
        "list_query_fields",
        "query_all",
    }


def _schemas(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        yield found
        found = list(found.values())
    if isinstance(found, list):
        for one in found:
            yield from _schemas(one)


def test_what_generators_of_clients_need() -> None:
    found = openapi.description()
    for schema_ in _schemas(found):
        assert schema_.get("items", {}) is not False
        if schema_.get("type") == "array":
            assert "items" in schema_ or "prefixItems" in schema_
        if isinstance(schema_.get("enum"), list) and len({type(x) for x in schema_["enum"]}) == 1:
            assert "type" in schema_, schema_
    assert [server["url"] for server in found["servers"]] == ["https://{cluster}:{port}", "/"]
    for path, method, operation in _operations():
        assert method != "get" or "requestBody" not in operation, path
        assert re.fullmatch("[a-z]+([A-Z][a-z]+)*", operation["operationId"])


@pytest.mark.parametrize(
    ("path", "method", "name", "who"),
    [
        ("/2/instances", "post", "createInstance", "with the right `write`."),
        ("/2/instances/{instance_name}/startup", "put", "startupInstance", "right `write`."),
        ("/2/instances/{instance_name}/console", "get", "getInstanceConsole", "`read` or `write`"),
        ("/2/instances/{instance_name}/info", "get", "describeInstance", "of any user"),
        ("/2/nodes", "get", "listNodes", "no password, unless"),
        ("/2/networks/{network_name}/tags", "put", "addNetworkTags", "`write`"),
    ],
)
def test_names_and_rights(path: str, method: str, name: str, who: str) -> None:
    operation = openapi.description()["paths"][path][method]
    assert operation["operationId"] == name
    assert who in operation["description"]


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
        (
            ht.Maybe(ht.OneOf("x", ("b", "a"))),
            {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
        ),
        (ht.ListOf(ht.Any), {"type": "array", "items": {}}),
        (ht.OneOf("x", (1, 2)), {"type": "integer", "enum": [1, 2]}),
        (ht.OneOf("x", (1, "a")), {"enum": [1, "a"]}),
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
                "maxItems": 2,
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
