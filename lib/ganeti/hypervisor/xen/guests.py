"""The guests of this node: their domains, their files, and the end of a domain.

The truth about which guests run is in Xen. When Xen does not answer, or not as expected, every
question here is an error; "does not run" is never guessed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from ganeti import errors
from ganeti.hypervisor import guest_errors, guest_lock
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import disks, nics, parse, record, transfer, xl
from ganeti.hypervisor.xen.parse import Domain
from ganeti.platform import paths
from ganeti.utils import fs, retry

_GONE_S = 120.0
_GONE_PAUSES = (0.05, 1.5, 1.0)


@contextlib.contextmanager
def locked(instance_name: str) -> Iterator[None]:
    """Exclude other operations on the guest.

    :raises HypervisorError: another one takes more than a minute, or the file of the locks
        cannot be made.
    """
    record.check_name(instance_name)
    root = paths.current().xen_root
    try:
        fs.make_dirs(root, 0o755)
    except OSError as err:
        raise errors.HypervisorError(f"cannot make {root}: {err.strerror}") from err
    with guest_lock.locked(root, instance_name):
        yield


def domain_of(instance_name: str) -> Domain | None:
    """Return the domain of a guest in any state; None when there is none.

    :raises HypervisorError: Xen does not tell.
    """
    return find(instance_name, xl.domains())


def running(instance_name: str) -> Domain | None:
    """Return the domain of a guest whose operating system has not ended.

    While a guest is sent, it looks as if it had.

    :raises HypervisorError: Xen does not tell.
    """
    domain = domain_of(instance_name)
    return domain if domain is not None and lives(domain) else None


def require_running(instance_name: str) -> Domain:
    """Return the domain of a guest.

    :raises HypervisorError: the guest does not run, or Xen does not tell.
    """
    domain = running(instance_name)
    if domain is None:
        raise guest_errors.not_running(instance_name)
    return domain


def refuse_running(instance_name: str) -> None:
    """:raises HypervisorError: the guest runs, or Xen does not tell."""
    if running(instance_name) is not None:
        raise guest_errors.running_already(instance_name)


def end(instance_name: str) -> None:
    """End the domain, running or not, and remove all that belongs to it.

    The caller holds the lock.

    :raises HypervisorError: the domain does not end, or Xen does not answer.
    """
    transfer.end_program(instance_name)
    _destroy(instance_name)
    transfer.forget(instance_name)
    _remove_files(instance_name)


def _destroy(instance_name: str) -> None:
    """End the domain of a guest, and wait until it is gone.

    :raises HypervisorError: it does not end, or Xen does not answer.
    """
    domain = domain_of(instance_name)
    if domain is None:
        return
    try:
        xl.run("destroy", str(domain.id))
    except errors.HypervisorError as err:
        # It may have ended by itself in between; that is seen below.
        logging.warning("instance %s: %s", instance_name, err)

    def gone() -> None:
        left = domain_of(instance_name)
        if left is not None and left.id == domain.id:
            raise retry.Again(left.state)

    try:
        retry.until(gone, timeout_s=_GONE_S, delay=_GONE_PAUSES)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(
            f"instance {instance_name} does not end (domain {domain.id}). Its storage may hang."
        ) from err


def _remove_files(instance_name: str) -> None:
    """Remove interfaces, loop devices and files of a guest which has no domain."""
    interfaces.remove(nics.guest_network(instance_name))
    try:
        known = record.find(instance_name)
    except errors.HypervisorError as err:
        logging.warning("%s", err)
        known = None
    if known is not None:
        disks.detach(known.disks)
    record.remove(instance_name)


def lives(domain: Domain) -> bool:
    """Return True if a domain runs or can be continued, here or where it is being sent."""
    return domain.lives or transfer.is_sending(domain.name)


def find(instance_name: str, domains: list[Domain]) -> Domain | None:
    """Return the domain of a name; the one which lives where there are several."""
    found = [domain for domain in domains if domain.name == instance_name and domain.id]
    return next((domain for domain in found if domain.lives), found[0] if found else None)


def guest_domains(hypervisor: str) -> list[parse.Domain]:
    """Return the domains of this node which are guests of a hypervisor, ``xen-pvm`` or ``xen-hvm``.

    A domain without a record, which nobody can attribute, counts for both.

    :raises HypervisorError: Xen does not tell.
    """
    return [
        domain for domain in xl.domains() if domain.id and record_allows(domain.name, hypervisor)
    ]


def record_allows(instance_name: str, hypervisor: str) -> bool:
    """Return True if a domain of this name may be a guest of the hypervisor, by its record."""
    if "/" in instance_name or instance_name.startswith((".", "-")):
        return True
    return record.hypervisor_of(instance_name) in ("", hypervisor)
