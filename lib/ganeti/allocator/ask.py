"""One question to an allocator, from the configuration to a checked result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti import errors
from ganeti.allocator import answers, describe, live
from ganeti.wire import json
from ganeti.wire.calls import IALLOCATOR_RUNNER

if TYPE_CHECKING:
    from ganeti.allocator.requests import Request
    from ganeti.objects import ConfigData
    from ganeti.rpc import RpcRunner

log = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(rpc: RpcRunner, config: ConfigData, request: Request[Any]) -> dict[str, Any]:
    """The whole request as an allocator gets it, with what the nodes say now.

    :raises AllocatorError: a node answered nonsense, or the request does not fit the cluster.
    """
    found = live.collect(
        rpc,
        config,
        hypervisor=request.hypervisor_of(config),
        template=request.disk_template_of(config),
    )
    for name, reason in found.silent.items():
        log.warning("node %s is not considered by the allocator: %s", name, reason)
    return {
        **describe.cluster(config, found),
        "request": {**request.to_dict(config), "type": request.MODE},
    }


def run(rpc: RpcRunner, config: ConfigData, allocator: str, request: Request[Any]) -> str:
    """Run the allocator on the master node; what it printed.

    :raises AllocatorError: there is none of that name, or it failed; with what it said.
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
            f"instance allocator {allocator} cannot be asked: {failure}"
        ) from failure
    return str(answer.data)


def ask(rpc: RpcRunner, config: ConfigData, allocator: str, request: Request[T]) -> T:
    """Let an allocator decide.

    :param config: one snapshot; the answer is checked against it.
    :returns: what the request's class promises.
    :raises NoPlacement: it found no place; with its reason.
    :raises AllocatorError: it could not be asked, or its answer is wrong.
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
