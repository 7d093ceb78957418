"""What a function of the client would do."""

# ruff: noqa: N802 - named like the published methods

from __future__ import annotations

import copy
from typing import Any

from .constants import HTTP_GET
from .transport import Error, GanetiApiError, Transport

_PLAN = [("dry-run", 1), ("plan", 1)]


class Plans(Transport):
    """What a function of the client would do."""

    def Plan(self, function: str, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what a function would do, and change nothing: ``Plan("MigrateInstance", "web1")``.

        :param function: name of a function which submits a job; its arguments follow.
        :returns: ``possible`` (None while the dry run waits for locks), the ``reason`` if it is
            not, the ``plans``, each with ``locks``, ``checks``, ``hooks`` and ``steps``, and the
            number of the ``job`` which was the dry run.
        :raises Error: the function only reads.
        :raises GanetiApiError: the server makes no plans of this, or refused the request.
        """
        found: list[dict[str, Any]] = []

        def send(
            method: str, path: str, query: Any, content: Any, headers: dict[str, str] | None = None
        ) -> Any:
            if method == HTTP_GET:
                return self._SendRequest(method, path, query, content, headers)
            # Ganeti ignores arguments which it does not know, and would make the change.
            about: dict[str, str] = {}
            self._SendRequest(HTTP_GET, self._path("").rstrip("/"), None, None, about)
            if "service-desc" not in about.get("link", ""):
                raise GanetiApiError("the server is of another kind, which makes no plans")
            query = [*(query or ()), *_PLAN]
            found.append(dict(self._SendRequest(method, path, query, content, headers)))
            return found[-1]["job"]

        asking = copy.copy(self)
        asking.__dict__["_SendRequest"] = send
        getattr(asking, function)(*args, **kwargs)
        if not found:
            raise Error(f"{function} changes nothing, so it has no plan")
        return found[-1]
