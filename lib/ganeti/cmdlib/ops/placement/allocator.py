"""Let an instance allocator choose nodes.

This module decides which allocator is asked and which nodes it may choose from, and turns its
failures into errors for the user. The questions and answers are in :mod:`ganeti.allocator`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ganeti import allocator, errors
from ganeti.constants.instance import IALLOC_HAIL, IALLOCATOR_DEFAULT_SHORTCUT
from ganeti.objects import fill

if TYPE_CHECKING:
    from ganeti.cmdlib.base import JobLog
    from ganeti.config import Config
    from ganeti.objects import ConfigData
    from ganeti.rpc import RpcRunner

T = TypeVar("T")


def choose_allocator(
    config: Config, given: str | None, *, what: str, node_option: str, node_given: bool
) -> str | None:
    """Choose the allocator; None when the user named a node.

    :param given: the parameter of the user: a name, or ``.`` for the cluster's default; None or
        empty means the default, too, unless a node is named.
    :param what: the object to be placed, for errors.
    :param node_option: the option which names a node, for errors.
    :param node_given: the user named a node.
    :raises errors.OpPrereqError: both or none of them are given.
    """
    default = config.cluster().default_iallocator
    if node_given:
        if given:
            raise errors.OpPrereqError(
                f"{what} gets either a node or an instance allocator, not both", errors.ECODE_INVAL
            )
        return None
    if given and given != IALLOCATOR_DEFAULT_SHORTCUT:
        return given
    if not default:
        raise errors.OpPrereqError(
            f"no node is given for {what}, and the cluster has no default instance allocator."
            f" Name a node with {node_option}, or an allocator with --iallocator.",
            errors.ECODE_INVAL,
        )
    return default


def require_explainable(chosen: str | None) -> None:
    """Check that the choice of an allocator can be explained.

    :param chosen: the name of the allocator; None when the user named the nodes.
    :raises errors.OpPrereqError: it is a program, or the nodes are named.
    """
    if chosen is None:
        raise errors.OpPrereqError(
            "a choice of nodes can only be explained when an allocator makes it, not for a named"
            " node",
            errors.ECODE_INVAL,
        )
    if not allocator.is_builtin(chosen):
        raise errors.OpPrereqError(
            f"instance allocator {chosen} does not explain its choice; use {IALLOC_HAIL}",
            errors.ECODE_INVAL,
        )


def candidates(
    config: ConfigData, group_uuid: str | None = None, hypervisor: str | None = None
) -> frozenset[str]:
    """Return the UUIDs of the nodes which may get a new instance, as configured.

    :param group_uuid: only nodes of this group; None for all.
    :param hypervisor: only nodes which have it; None for all.
    """
    groups = {
        group.uuid
        for group in config.nodegroups.values()
        if hypervisor in (None, *fill.group_hypervisors(config.cluster, group))
    }
    return frozenset(
        node.uuid
        for node in config.nodes.values()
        if node.vm_capable
        and not node.offline
        and not node.drained
        and (group_uuid is None or node.group == group_uuid)
        and node.group in groups
    )


def ask_allocator(
    rpc: RpcRunner,
    log: JobLog,
    name: str,
    config: ConfigData,
    request: allocator.AllocationRequest[T],
    *,
    temporary: bool = False,
    explain: bool = False,
    hint: str = "",
    on_live: Callable[[allocator.LiveData], None] | None = None,
) -> T:
    """Ask the allocator; for ``check_prereq``, because a failure means that nothing was changed.

    :param temporary: the allocator may choose only from nodes which are not locked at this moment,
        so that it may find a place later.
    :param explain: add to the job log why each node was or was not chosen.
    :param hint: what to do when it found no place, as whole sentences.
    :param on_live: see :func:`ganeti.allocator.ask`.
    :raises errors.OpPrereqError: it found no place (insufficient resources, temporarily or not),
        cannot be asked, or answered nonsense (environment).
    """
    try:
        return allocator.ask(
            rpc, config, name, request,
            (lambda text: log.info(f"nodes which were looked at:\n{text}")) if explain else None,
            on_live,
        )  # fmt: skip
    except errors.NoPlacement as err:
        raise errors.OpPrereqError(
            f"{err}. {hint}" if hint else str(err),
            errors.ECODE_TEMP_NORES if temporary else errors.ECODE_NORES,
        ) from err
    except errors.AllocatorError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err
