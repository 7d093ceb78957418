"""Descriptions of guests for the metadata daemon of this node.

Only guests with a communication interface can ask the daemon. It is started with the first of them.
It stores nothing, so an instance is described at each start; secret parameters are sent only by the
call which installs the OS.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import metad as const
from ganeti.metad import client
from ganeti.metad import describe as description
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths
from ganeti.utils import filelock, process, retry
from ganeti.wire import calls

_START_TIMEOUT_S = 60.0


def communication_nic(instance: FilledInstance) -> FilledNic | None:
    """Return the communication interface of an instance."""
    for nic in instance.nics:
        if (nic.name or "").startswith(const.NIC_PREFIX):
            return nic
    return None


def describe(
    instance: FilledInstance, parameters: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Describe an instance in the form which the daemon reads.

    :param parameters: all OS parameters, each with value and visibility; without them the public
        and private parameters of the configuration.
    """
    if parameters is None:
        return description.describe(
            instance, public=instance.osparams, private=instance.osparams_private, secret={}
        )
    tables: dict[str, dict[str, str]] = {const.PUBLIC: {}, const.PRIVATE: {}, const.SECRET: {}}
    for name, (value, visibility) in parameters.items():
        tables[visibility][name] = value
    return description.describe(
        instance,
        public=tables[const.PUBLIC],
        private=tables[const.PRIVATE],
        secret=tables[const.SECRET],
    )


def tell(instance: FilledInstance) -> None:
    """Describe a starting instance which can ask; a failure does not stop the start."""
    if communication_nic(instance) is None:
        return
    try:
        update(describe(instance))
    except errors.GenericError as err:
        logging.warning("instance %s will find no metadata: %s", instance.name, err)


def forget(instance_name: str) -> None:
    """Remove the description of an instance which no longer runs here."""
    if not filelock.is_locked(paths.current().pid_file(const.PROGRAM)):
        return
    try:
        client.remove(instance_name)
    except errors.GenericError as err:
        logging.warning("ganeti-metad still knows instance %s: %s", instance_name, err)


@serves(calls.INSTANCE_METADATA_MODIFY)
def modify(instance: dict[str, Any]) -> None:
    """Send the description of a guest; start the daemon when it does not run.

    :raises OpExecError: the daemon does not start.
    :raises GenericError: the daemon refuses the description.
    """
    update(instance)


def update(described: Mapping[str, Any]) -> None:
    """Send a description; see :func:`modify`."""
    said = ""
    if not filelock.is_locked(paths.current().pid_file(const.PROGRAM)):
        done = process.run(
            [paths.daemon_util(), "start", const.PROGRAM], timeout_s=_START_TIMEOUT_S, check=False
        )
        # When two calls start the daemon at once, one of them fails although it runs then.
        said = done.output.strip() if done.failed else ""

    def attempt() -> None:
        try:
            client.update(described)
        except client.NotRunning:
            if not filelock.is_locked(paths.current().pid_file(const.PROGRAM)):
                raise
            # Another call has started the daemon meanwhile.
            raise retry.Again from None

    try:
        retry.until(attempt, timeout_s=_START_TIMEOUT_S, delay=(0.01, 1.5, 0.5))
    except (client.NotRunning, errors.RetryTimeout) as err:
        raise errors.OpExecError(
            f"cannot start {const.PROGRAM}: {said or 'it does not answer'}"
        ) from err
