"""Questions about placement: capacity, balance, what if, and where an instance would be put."""

# ruff: noqa: N802 - the names of methods are like the published ones

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .transport import Transport, given, options


def _arguments(**values: Any) -> dict[str, Any]:
    """Return arguments by the names which they have in a query."""
    return {name.replace("_", "-"): value for name, value in values.items()}


class Placement(Transport):
    """Questions about placement, which change nothing.

    A server which is answering others says so with an error of code 503; ask again later.
    """

    def GetCapacity(
        self, group: str | None = None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return how many more instances fit, and what stops further ones.

        :param more: other arguments of ``/2/capacity``, with ``_`` in place of ``-``:
            ``disk_template``, ``standard_alloc``, ``max_length``.
        """
        query = options(reason, **_arguments(group=group, **more))
        return dict(self._get(self._path("capacity"), query))

    def GetBalance(
        self,
        group: str | None = None,
        evac_mode: bool | None = None,
        reason: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Return the moves which balance each node group, with the opcodes of their jobs.

        :param evac_mode: move only instances that are on offline or drained nodes.
        :param more: other arguments of ``/2/balance``, such as ``max_length`` and ``min_gain``.
        """
        query = options(reason, **_arguments(group=group, evac_mode=evac_mode, **more))
        return dict(self._get(self._path("balance"), query))

    def WhatIf(
        self,
        changes: Sequence[str],
        balance: bool = False,
        group: str | None = None,
        ignore_soft_errors: bool | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Return what the cluster would be after some changes, such as ``fail-node=node3``."""
        soft = _arguments(ignore_soft_errors=ignore_soft_errors)
        query = options(reason, group=group, **soft)
        body = {"changes": changes, "balance": balance}
        return dict(self._post(self._path("what-if"), query, body))

    def ExplainPlacement(
        self,
        memory: int,
        vcpus: int,
        disks: Sequence[int],
        disk_template: str | None = None,
        reason: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Return where an instance would be put, with the reason for each node.

        :param memory: in MiB; likewise the sizes of the disks.
        :param more: other members of the body, such as ``group``, ``nodes`` and ``tags``.
        """
        size = {"memory": memory, "vcpus": vcpus, "disks": disks}
        body = {**size, **given(disk_template=disk_template), **more}
        return dict(self._post(self._path("place"), options(reason), body))
