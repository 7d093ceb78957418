"""The encryption of the connection over which a guest is sent.

The source makes a key for each migration and sends it to the target with the facts about the guest,
through the master, whose connections to both nodes are authenticated with the certificates of the
cluster. Both QEMUs use TLS with this key (``tls-creds-psk``), so that the memory of the guest is
encrypted, and neither another guest nor another node can take the place of one of them. A
certificate could not do that: every node can sign certificates of the cluster.

Source: QEMU, ``tls-creds-psk`` in qemu(1) and ``tls-creds`` in QEMU's QMP reference.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.hypervisor.kvm import privileges
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.qmp import Qmp, QmpError
from ganeti.utils import fs

#: Name of QEMU's object with the key.
KEY_OBJECT = "migration-key"
_KEY_BYTES = 32
# The name which QEMU expects of the owner of a key; the names of the files are QEMU's, too.
_OWNER = "qemu"
_FILE = "keys.psk"
_GROUP_FILE = "dh-params.pem"
# The group ffdhe2048 of RFC 7919. Without the file, some versions of QEMU look for new primes,
# which takes up to half a minute.
_GROUP = """\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""


def is_encrypted(hvparams: Mapping[str, Any]) -> bool:
    """Return True if the parameters of an instance demand encryption (``migration_tls``)."""
    return bool(hvparams.get("migration_tls", True))


def new_key() -> str:
    """Return a key for one migration, in hexadecimal digits."""
    return secrets.token_hex(_KEY_BYTES)


def is_key(value: object) -> bool:
    """Return True if a value has the form of :func:`new_key`."""
    return (
        isinstance(value, str)
        and len(value) == 2 * _KEY_BYTES
        and all(digit in "0123456789abcdef" for digit in value)
    )


def expect_key(
    control: Qmp, key: str | None, layout: Layout, started_with: Mapping[str, Any]
) -> None:
    """Let the QEMU of the target expect a guest which is encrypted with a key.

    :param key: None when it is not encrypted.
    :param started_with: the parameters with which QEMU was started.
    :raises HypervisorError: QEMU cannot encrypt.
    """
    if key is not None:
        use_key(control, key, layout, started_with, endpoint="server")
        control.execute("migrate-set-parameters", {"tls-creds": KEY_OBJECT})


def use_key(
    control: Qmp, key: str, layout: Layout, started_with: Mapping[str, Any], *, endpoint: str
) -> None:
    """Give QEMU the key of a migration, in place of that of an earlier one.

    QEMU gets it in a file which only its user can read. As a server it reads the file when a client
    connects, so :func:`forget_key` removes the file afterwards.

    :param endpoint: ``server`` on the target, ``client`` on the source.
    :raises HypervisorError: QEMU cannot encrypt, or the file cannot be written.
    """
    directory = _directory(layout)
    owner = privileges.current_uid(started_with, layout)
    uid = -1 if owner is None else owner
    try:
        fs.make_dirs(layout.chroot_dir, 0o755)
        fs.make_dirs(directory, 0o700, uid=uid)
        for name, content in ((_FILE, f"{_OWNER}:{key}\n"), (_GROUP_FILE, _GROUP)):
            fs.write_file(f"{directory}/{name}", content, mode=0o400, uid=uid, sync=False)
        drop_object(control)
        # The path as QEMU sees it.
        seen = directory.removeprefix(layout.chroot_dir) if _has_chroot(started_with) else directory
        control.execute(
            "object-add",
            {"qom-type": "tls-creds-psk", "id": KEY_OBJECT, "endpoint": endpoint, "dir": seen},
        )
    except QmpError as err:
        raise errors.HypervisorError(
            f"{err}. The migration of instance {layout.name} cannot be encrypted by this QEMU; with"
            " the hypervisor parameter migration_tls=False it is not encrypted."
        ) from err
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the key for the migration of instance {layout.name}: {err}"
        ) from err
    finally:
        if endpoint == "client":
            forget_key(layout)


def drop_object(control: Qmp) -> None:
    """Remove the key of an earlier migration from QEMU; none is not an error."""
    objects = control.execute("qom-list", {"path": "/objects"})
    if any(entry.get("name") == KEY_OBJECT for entry in objects):
        control.execute("object-del", {"id": KEY_OBJECT})


def forget_key(layout: Layout) -> None:
    """Remove the file with the key; none is not an error."""
    shutil.rmtree(_directory(layout), ignore_errors=True)


def _directory(layout: Layout) -> str:
    """Return where QEMU finds the key, with and without a root of its own."""
    return f"{layout.chroot_dir}/key"


def _has_chroot(started_with: Mapping[str, Any]) -> bool:
    return bool(started_with.get("use_chroot"))
