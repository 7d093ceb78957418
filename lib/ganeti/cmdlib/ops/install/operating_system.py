"""Install the operating system of an instance: by a script on the node, in a helper guest, or from
an image.

The OS definition decides which: a definition with a script ``create`` only is trusted, and its
script runs as root on the node. A script ``create_untrusted`` never runs there, but in a helper
guest, see :mod:`ganeti.cmdlib.ops.guest.helper`. With the OS parameter ``os-image``, no script is
run: the node writes this image to the first disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, LuContext, why
from ganeti.cmdlib.ops.guest import helper
from ganeti.constants import metad as const
from ganeti.objects import fill, hypervisors
from ganeti.wire.calls import BLOCKDEV_IMAGE, INSTANCE_OS_ADD

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.nics.specs import PlannedNic
    from ganeti.config import Config
    from ganeti.objects import Instance, Nic, Node
    from ganeti.rpc import RpcRunner

#: With this check the node refuses an OS which is not trusted.
_TRUSTED = "trusted"


class HelperInstallation(NamedTuple):
    """How an untrusted OS will be installed.

    :ivar image: the image of the helper guest.
    :ivar nic: a NIC for communication, when the instance has none of its own.
    :ivar startup_s: seconds until the guest must have asked for its task.
    :ivar shutdown_s: seconds from then on until it must be off.
    """

    image: str
    nic: Nic | None
    startup_s: int
    shutdown_s: int


def timeouts(startup_s: int | None, shutdown_s: int | None) -> tuple[int, int]:
    """Return the time limits for a helper guest in seconds (start, end), as given or the defaults.

    :raises errors.OpPrereqError: one is not above 0.
    """
    for value, name in ((startup_s, "startup"), (shutdown_s, "shutdown")):
        if value is not None and value <= 0:
            raise errors.OpPrereqError(
                f"the {name} time of the helper guest must be at least 1 s, not {value}",
                errors.ECODE_INVAL,
            )
    return (
        const.HELPER_STARTUP_S if startup_s is None else startup_s,
        const.HELPER_SHUTDOWN_S if shutdown_s is None else shutdown_s,
    )


def require(
    config: Config,
    rpc: RpcRunner,
    node: Node,
    instance_name: str,
    wanted: prereq.WantedOs,
    *,
    hypervisor: str,
    present: list[PlannedNic] | tuple[Nic, ...],
    startup_s: int | None = None,
    shutdown_s: int | None = None,
) -> HelperInstallation | None:
    """Check that the node can install the OS; for an untrusted OS, that a helper guest is possible.

    :param present: the NICs of the instance.
    :returns: how an untrusted OS will be installed; None for a trusted one.
    :raises errors.OpPrereqError: it cannot be installed.
    """
    started, ended = timeouts(startup_s, shutdown_s)
    checks = [*prereq.os_checks(hypervisor), _TRUSTED]
    answer = prereq.validate_os(rpc, node.uuid, wanted, checks)
    if answer.failure is None:
        prereq.note(f"node {node.name} can install {wanted.name}")
        return None
    # This check passes for an OS which is only not trusted; else it raises the true reason.
    prereq.require_os(config, rpc, node.uuid, wanted, hypervisor=hypervisor)
    if not hypervisors.of(hypervisor).runs_guests:
        raise errors.OpPrereqError(
            f"OS {wanted.name} is not trusted, so it is installed in a helper guest, and hypervisor"
            f" {hypervisor} only simulates guests. Use another hypervisor.",
            errors.ECODE_INVAL,
        )
    image = config.cluster().install_image
    if not image:
        raise errors.OpPrereqError(
            f"OS {wanted.name} is not trusted, so it is installed in a helper guest, and the"
            " cluster has no helper image. Name one with 'gnt-cluster modify --install-image'.",
            errors.ECODE_STATE,
        )
    try:
        nic = helper.plan_nic(config, instance_name, node, present)
    except errors.OpPrereqError as err:
        raise errors.OpPrereqError(
            f"OS {wanted.name} is not trusted, so it is installed in a helper guest: {err.args[0]}",
            errors.ECODE_STATE,
        ) from err
    return HelperInstallation(image, nic, started, ended)


def visible_parameters(
    config: Config,
    os_name: str,
    public: Mapping[str, Any],
    private: Mapping[str, Any],
    secret: Mapping[str, Any],
) -> dict[str, list[str]]:
    """Return all OS parameters of an installation with visibility: name -> [value, visibility]."""
    cluster = config.cluster()
    tables = (
        (const.PUBLIC, fill.fill_osparams(cluster, os_name, public)),
        (const.PRIVATE, fill.fill_osparams_private(cluster, os_name, private)),
        (const.SECRET, dict(secret)),
    )
    return {
        name: [str(value), visibility]
        for visibility, table in tables
        for name, value in table.items()
    }


def install(
    ctx: LuContext,
    instance: Instance,
    parameters: Mapping[str, list[str]],
    how: HelperInstallation | None,
    *,
    reinstall: bool,
    debug_level: int,
) -> None:
    """Install the OS on the disks of the instance, which are active.

    :param parameters: see :func:`visible_parameters`.
    :param how: the result of :func:`require`.
    :raises errors.OpExecError: it failed; the text has the last lines of output of the script.
    """
    if how is not None:
        helper.run(
            ctx,
            instance,
            helper.HelperTask(
                const.TASK_INSTALL,
                f"install OS {instance.os}",
                how.image,
                how.nic,
                how.startup_s,
                how.shutdown_s,
                parameters,
                reinstall,
                debug_level,
            ),
        )
        return
    answer = ctx.rpc.call(
        INSTANCE_OS_ADD,
        instance.primary_node,
        instance=(instance, None, None, {name: pair[0] for name, pair in parameters.items()}),
        reinstall=reinstall,
        debug_level=debug_level,
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not install OS {instance.os} for instance {instance.name} on node"
            f" {answer.node_name}: {why(answer.failure)}"
        ) from answer.failure


def write_image(ctx: Context, instance: Instance, image: str) -> None:
    """Write an image to the first disk of the instance, which is active.

    :param image: path on the primary node, or address; it may have a password and is not logged.
    :raises errors.OpExecError: it failed; a part of the disk may be written.
    """
    disk = ctx.config.instance_disks(instance)[0]
    ctx.log.feedback("* writing the image to disk 0")
    answer = ctx.rpc.call(
        BLOCKDEV_IMAGE,
        instance.primary_node,
        disk=(disk, instance),
        image=image,
        size_mib=disk.size,
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not write the image (OS parameter os-image) to disk 0 of instance"
            f" {instance.name} on node {answer.node_name}: {why(answer.failure)}"
        ) from answer.failure
