"""Asking an allocator, from the description of the cluster to the checked result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti import errors
from ganeti.allocator import answers, builtin, describe, live
from ganeti.wire import json
from ganeti.wire.calls import IALLOCATOR_RUNNER

if TYPE_CHECKING:
    from ganeti.allocator.requests import AllocationRequest
    from ganeti.objects import ConfigData
    from ganeti.rpc import RpcRunner

log = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(
    rpc: RpcRunner,
    config: ConfigData,
    request: AllocationRequest[Any],
    on_live: Callable[[live.LiveData], None] | None = None,
) -> dict[str, Any]:
    """Make the input of an allocator; asks the nodes for their present state.

    :param on_live: gets this state.
    :returns: the input as published in the manual page **ganeti-iallocator**.
    :raises AllocatorError: the request does not fit the cluster.
    """
    found = live.collect(
        rpc,
        config,
        hypervisor=request.hypervisor_of(config),
        template=request.disk_template_of(config),
        groups=request.volume_groups(),
    )
    if on_live is not None:
        on_live(found)
    for name, reason in found.unresponsive.items():
        log.warning("node %s is described to the allocator as offline: %s", name, reason)
    return {
        **describe.cluster(config, found),
        "request": {**request.to_dict(config), "type": request.MODE},
    }


def run(rpc: RpcRunner, config: ConfigData, allocator: str, request: AllocationRequest[Any]) -> str:
    """Ask an allocator, and return its answer as text.

    :returns: the output of the program, or the same text for the allocator of the master daemon.
    :raises AllocatorError: no allocator has this name, or it failed.
    """
    if builtin.is_builtin(allocator):
        found = _ask_builtin(rpc, config, request)
        return json.dumps(found.to_dict()) + "\n"
    return _run_program(rpc, config, allocator, request)


def _parameters(config: ConfigData, request: AllocationRequest[Any]) -> dict[str, Any]:
    return {**config.cluster.default_iallocator_params, **request.parameters()}


def explain(
    rpc: RpcRunner, config: ConfigData, request: AllocationRequest[Any]
) -> list[dict[str, Any]]:
    """Explain the choice of the allocator of the master daemon, see :func:`builtin.explain`.

    :raises AllocatorError: the allocator cannot answer the request.
    """
    description, parameters = prepare(rpc, config, request), _parameters(config, request)
    return builtin.explain(description, parameters, _known(config, request))


def _known(config: ConfigData, request: AllocationRequest[Any]) -> builtin.Known:
    networks = {network.uuid: network.name for network in config.networks.values()}
    return builtin.Known(request.excluded(config), networks)


def _ask_builtin(
    rpc: RpcRunner,
    config: ConfigData,
    request: AllocationRequest[Any],
    on_explanation: Callable[[str], None] | None = None,
    on_live: Callable[[live.LiveData], None] | None = None,
) -> answers.Answer:
    description = prepare(rpc, config, request, on_live)
    parameters, known = _parameters(config, request), _known(config, request)
    if on_explanation is not None:
        for one in builtin.explain(description, parameters, known):
            on_explanation(builtin.explanation_text(one))
    return builtin.answer(description, parameters, known)


def _run_program(
    rpc: RpcRunner, config: ConfigData, allocator: str, request: AllocationRequest[Any]
) -> str:
    answer = rpc.call(
        IALLOCATOR_RUNNER,
        config.cluster.master_node,
        name=allocator,
        request=json.dumps(prepare(rpc, config, request)),
        parameters=_parameters(config, request),
    )
    failure = answer.failure
    if isinstance(failure, errors.NodeCallFailed):
        raise errors.AllocatorError(failure.message) from failure
    if failure is not None:
        raise errors.AllocatorError(
            f"instance allocator {allocator} cannot be run: {failure}"
        ) from failure
    return str(answer.data)


def ask(
    rpc: RpcRunner,
    config: ConfigData,
    allocator: str,
    request: AllocationRequest[T],
    on_explanation: Callable[[str], None] | None = None,
    on_live: Callable[[live.LiveData], None] | None = None,
) -> T:
    """Ask an allocator and check its answer.

    :param config: a snapshot of the configuration; the answer is checked against it.
    :param on_explanation: gets a table with the reasons for each node, before the answer; only the
        allocator of the master daemon explains.
    :param on_live: gets the state of the nodes, from the allocator of the master daemon only: the
        answer of a program may come long after the nodes were asked.
    :returns: the result of the request, see its class.
    :raises NoPlacement: the allocator found no nodes; has its reason.
    :raises AllocatorError: the allocator could not be run, or its answer is wrong.
    """
    if builtin.is_builtin(allocator):
        found = _ask_builtin(rpc, config, request, on_explanation, on_live)
    else:
        found = answers.parse(allocator, _run_program(rpc, config, allocator, request))
    if not found.success:
        why = "; ".join(found.reasons.values()) or found.info or "it gives no reason"
        raise errors.NoPlacement(f"instance allocator {allocator} found no place: {why}")
    log.info("instance allocator %s: %s", allocator, found.info)
    try:
        return request.with_reasons(request.check(config, found.result), found.reasons)
    except errors.AllocatorError as err:
        raise errors.AllocatorError(
            f"the answer of instance allocator {allocator} cannot be used: {err}"
        ) from err
