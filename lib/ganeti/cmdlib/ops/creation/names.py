"""Names and addresses of new and of renamed instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.platform import machine
from ganeti.utils import net

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.opcodes.instance import OpInstanceCreate


def require_checks_agree(*, name_check: bool, ip_check: bool) -> None:
    """Check that the address is not to be checked without the name.

    :raises errors.OpPrereqError: it is.
    """
    if ip_check and not name_check:
        raise errors.OpPrereqError(
            "the check of the address needs the check of the name", errors.ECODE_INVAL
        )


def checked_name(op: OpInstanceCreate) -> tuple[str, str | None]:
    """Check the name of a new instance.

    :returns: the full name, and its address if the name was resolved.
    :raises errors.OpPrereqError: the name is not valid, does not resolve, or its address is in use.
    """
    name = prereq.valid_host_name(op.instance_name, "instance name")
    if not op.name_check:
        return name, None
    host = prereq.resolve(name, "instance name")
    if op.ip_check:
        require_address_unused(host.name, host.ip)
    return host.name, host.ip


def require_address_unused(name: str, address: str) -> None:
    """Check that no machine answers at the address of an instance.

    :raises errors.OpPrereqError: one does.
    """
    if net.tcp_ping(address, machine.current().noded_port(), prereq.PING_TIMEOUT_S):
        raise errors.OpPrereqError(
            f"address {address} of instance {name} is already in use", errors.ECODE_NOTUNIQUE
        )


def reserve(config: Config, name: str, *, exact: bool, old_name: str = "") -> None:
    """Reserve the name of an instance until the logical unit ends.

    :param exact: also accept a name which is the short form of another one, or has one as its
        short form.
    :param old_name: name which the instance gives up, so it may be such a form.
    :raises errors.OpPrereqError: another instance has it, another job has reserved it, or a short
        form would name two instances.
    """
    if name in config.snapshot().instances:
        raise errors.OpPrereqError(
            f"an instance cannot get the name {name}: it is the UUID of another instance, which"
            " commands and jobs would take for it",
            errors.ECODE_NOTUNIQUE,
        )
    try:
        config.reserve_instance_name(name)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"instance {name} is already in the cluster, or is being added", errors.ECODE_EXISTS
        ) from err
    # After the reservation: of two jobs which reserve such names, one at least sees the other.
    other = None if exact else config.similar_instance_name(name, besides=old_name)
    if other is not None:
        short, full = sorted((name, other), key=len)
        raise errors.OpPrereqError(
            f"an instance cannot get the name {name}, because instance {other} is in the cluster,"
            f" or is being added: {short} is the short form of {full}, so a command for one could"
            " reach the other. Choose another name, or use --exact-name.",
            errors.ECODE_NOTUNIQUE,
        )
