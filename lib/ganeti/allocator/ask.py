"""Running an allocator, from the description of the cluster to the checked result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti import errors
from ganeti.allocator import answers, describe, live
from ganeti.wire import json
from ganeti.wire.calls import IALLOCATOR_RUNNER

if TYPE_CHECKING:
    from ganeti.allocator.requests import AllocationRequest
    from ganeti.objects import ConfigData
    from ganeti.rpc import RpcRunner

log = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(rpc: RpcRunner, config: ConfigData, request: AllocationRequest[Any]) -> dict[str, Any]:
    """Make the input of an allocator; asks the nodes for their present state.

    :returns: the input as published in the manual page **ganeti-iallocator**.
    :raises AllocatorError: a node sent a wrong answer, or the request does not fit the cluster.
    """
    found = live.collect(
        rpc,
        config,
        hypervisor=request.hypervisor_of(config),
        template=request.disk_template_of(config),
    )
    for name, reason in found.unresponsive.items():
        log.warning("node %s is described to the allocator as offline: %s", name, reason)
    return {
        **describe.cluster(config, found),
        "request": {**request.to_dict(config), "type": request.MODE},
    }


def run(rpc: RpcRunner, config: ConfigData, allocator: str, request: AllocationRequest[Any]) -> str:
    """Run an allocator on the master node.

    :returns: its output.
    :raises AllocatorError: no allocator has this name, or it failed.
    """
    text = json.dumps(prepare(rpc, config, request))
    parameters = {**config.cluster.default_iallocator_params, **request.parameters()}
    answer = rpc.call(
        IALLOCATOR_RUNNER,
        config.cluster.master_node,
        name=allocator,
        request=text,
        parameters=parameters,
    )
    failure = answer.failure
    if isinstance(failure, errors.NodeCallFailed):
        raise errors.AllocatorError(failure.message) from failure
    if failure is not None:
        raise errors.AllocatorError(
            f"instance allocator {allocator} cannot be run: {failure}"
        ) from failure
    return str(answer.data)


def ask(rpc: RpcRunner, config: ConfigData, allocator: str, request: AllocationRequest[T]) -> T:
    """Run an allocator and check its answer.

    :param config: a snapshot of the configuration; the answer is checked against it.
    :returns: the result of the request, see its class.
    :raises NoPlacement: the allocator found no nodes; has its reason.
    :raises AllocatorError: the allocator could not be run, or its answer is wrong.
    """
    found = answers.parse(allocator, run(rpc, config, allocator, request))
    if not found.success:
        raise errors.NoPlacement(
            f"instance allocator {allocator} found no place: {found.info or 'it gives no reason'}"
        )
    log.info("instance allocator %s: %s", allocator, found.info)
    try:
        return request.check(config, found.result)
    except errors.AllocatorError as err:
        raise errors.AllocatorError(
            f"the answer of instance allocator {allocator} cannot be used: {err}"
        ) from err
