"""Compares answers of the REST interface with its OpenAPI description, by the package jsonschema.

The tool which makes the random requests would do it, too, but it changes lists with a fixed number
of items (``prefixItems``) into a form which OpenAPI 3.1 does not have, and refuses them then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import yaml
from schemathesis import GenerationMode

_YAML = "application/yaml"


class Description:
    """The description of an interface.

    :param document: as ``/2/openapi.json`` has it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def check(
        self, method: str, path: str, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Check that the description has an answer to an operation.

        :param path: the path of the operation, with the names of its parameters.
        :param headers: their names in any case.
        :raises AssertionError: its status, type, or content is another one.
        """
        where = f"{method.upper()} {path}: {status}"
        responses = self.document["paths"][path][method.lower()]["responses"]
        assert str(status) in responses, f"{where} is not described: {body[:500]!r}"
        response = self._followed(responses[str(status)])
        found = {name.lower(): value for name, value in headers.items()}
        media_type = found.get("content-type", "").partition(";")[0]
        described = response.get("content", {})
        if not described:
            assert not body, f"{where} has a body: {body[:500]!r}"
            return
        assert media_type in described, f"{where} has the type {media_type}"
        shape = described[media_type]["schema"]
        text = body.decode()
        value: Any
        if media_type == _YAML:
            value = yaml.safe_load(text)
        elif media_type.endswith("json"):
            value = json.loads(text)
        else:
            value = text
        shape = {**shape, "components": self.document["components"]}
        validator = jsonschema.Draft202012Validator(shape)
        wrong = jsonschema.exceptions.best_match(validator.iter_errors(value))
        assert wrong is None, f"{where}, at {wrong.json_path}: {wrong.message[:500]}"

    def check_response(self, case: Any, response: Any) -> None:
        """Check the answer to a request which schemathesis has made."""
        headers = {name: values[0] for name, values in response.headers.items()}
        where = case.operation
        self.check(where.method, where.path, response.status_code, headers, response.content)

    def _followed(self, found: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in found:
            return found
        place: Any = self.document
        for word in found["$ref"].removeprefix("#/").split("/"):
            place = place[word]
        return dict(place)


def can_be_made(operation: Any, mode: GenerationMode) -> bool:
    """Tell whether schemathesis can make such requests: one without values cannot be wrong."""
    values = (operation.path_parameters, operation.query, operation.body)
    return mode is GenerationMode.POSITIVE or any(map(list, values))
