"""The files of a witness: ``gnt-cluster modify --witness-auth`` and ``--witness-ca``.

Credentials are in no command line, no job and no log: the command, which runs as root on the
master, copies the file to its place, and the job copies it to the other nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ganeti import errors
from ganeti.http.document import parse_auth
from ganeti.platform import paths, users
from ganeti.utils import fs, x509

_MODE = 0o440
_MAX_BYTES = 1 << 20


def _read(option: str, path: str) -> bytes:
    try:
        content = fs.read_bytes(path)
        text = content.decode("utf-8")
        if len(content) > _MAX_BYTES:
            raise errors.ParseError(f"it has {len(content)} bytes")
        if option == "--witness-auth":
            if parse_auth(text, path).certificate:
                x509.require_pair(text, path)
        else:
            x509.certificates(text, path)
    except OSError as err:
        raise errors.OpPrereqError(
            f"{option}: cannot read {path}: {err.strerror}", errors.ECODE_INVAL
        ) from err
    except (UnicodeDecodeError, errors.GenericError) as err:
        # The message of an error about credentials does not contain them.
        why = "it is not text" if isinstance(err, UnicodeDecodeError) else str(err)
        raise errors.OpPrereqError(f"{option}: {path}: {why}", errors.ECODE_INVAL) from err
    return content


@contextlib.contextmanager
def installed(auth: str | None, ca: str | None) -> Iterator[None]:
    """Copy the files to their places on this node; put the former ones back after an error.

    :param auth: path of the credentials; None to keep them.
    :param ca: path of the certificates to trust, in the same way.
    :raises OpPrereqError: a file cannot be read or written, or is none of this kind.
    """
    here = paths.current()
    changes: list[tuple[str, bytes]] = []
    for option, given, target in (
        ("--witness-auth", auth, here.witness_auth_file),
        ("--witness-ca", ca, here.witness_ca_file),
    ):
        if given is not None:
            changes.append((target, _read(option, given)))
    former = [(target, _present(target)) for target, _ in changes]
    try:
        for target, content in changes:
            _put(target, content)
        yield
    except BaseException:
        for target, before in former:
            _put(target, before)
        raise


def _present(path: str) -> bytes | None:
    try:
        return fs.read_bytes(path)
    except FileNotFoundError:
        return None


def _put(path: str, content: bytes | None) -> None:
    if content is None:
        fs.remove_file(path)
        return
    uid, gid = users.same_owner(paths.current().data_dir)
    try:
        fs.write_file(path, content, mode=_MODE, uid=uid, gid=gid)
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot write {path}: {err.strerror or err}", errors.ECODE_ENVIRON
        ) from err
