"""Fetch a disk image from a path or an address, and prove that it is the wanted one.

The proof is a checksum which the administrator gives, a file of checksums as distributions publish
it, a signature of the image by a key of a keyring, or a signed file of checksums. Without a proof,
an image is accepted from a path and over HTTPS, and never over HTTP. The same holds for a file of
checksums without a signature.

A server may redirect to another address. What counts is each of them, and not only the last one:
an attacker who changes the answer of one that is not protected decides where the others are. A
redirection to another kind of address than HTTP and HTTPS is never followed.

Source: sha256sum(1), gpgv(1); RFC 9110, section 15.4.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from typing import IO, NamedTuple

from ganeti import errors
from ganeti.foreign import catalogue, images
from ganeti.utils import free_space, process

GPGV = "gpgv"
_SCHEMES = ("file", "http", "https")
_KINDS = {64: "sha256", 128: "sha512"}
_LINE = re.compile(r"\\?([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128}) [ *](.+)")
_BSD_LINE = re.compile(r"SHA(?:256|512) \((.+)\) = ([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})")
_BLOCK = 1 << 20
_NO_DATA_S = 60.0
_GPGV_S = 3600.0
# Files of checksums and signatures; images have no limit.
_SMALL_BYTES = 16 << 20
_WITHOUT_NETWORK = (
    ". If this node has no way to that address, fetch the file on another machine, copy it here,"
    " and name it: gnt-os images fetch NAME FILE"
)


class Proof(NamedTuple):
    """What must be true of an image.

    :ivar checksum: hexadecimal digits, with or without ``sha256:`` or ``sha512:`` in front.
    :ivar checksum_file: path or address of a file which :func:`parse_checksums` reads.
    :ivar signature: path or address of a detached signature, of the file with checksums when there
        is one, else of the image.
    :ivar keyring: path of the keyring with the keys which may sign.
    """

    checksum: str = ""
    checksum_file: str = ""
    signature: str = ""
    keyring: str = ""

    def kind(self) -> str:
        """Return what proves an image: ``signature``, ``checksum`` or ``none``."""
        if self.signature:
            return "signature"
        return "checksum" if self.checksum or self.checksum_file else "none"


class _Fetched(NamedTuple):
    size: int
    sha256: str
    sha512: str
    protected: bool


def require_source(source: str) -> str:
    """Return the source of an image in the form which is kept: an absolute path or an address.

    :raises OpPrereqError: the address cannot be fetched.
    """
    if "://" not in source:
        # A shell leaves the tilde of --signature=~/SHA256SUMS.gpg as it is.
        return os.path.abspath(os.path.expanduser(source))
    if _scheme(source) not in _SCHEMES:
        raise errors.OpPrereqError(
            f"{source} cannot be fetched. Give a path, or an address with {', '.join(_SCHEMES)}.",
            errors.ECODE_INVAL,
        )
    return source


def _scheme(source: str) -> str:
    """Return the scheme of an address in lower case; empty for a path."""
    return urllib.parse.urlsplit(source).scheme if "://" in source else ""


def check_proof(source: str, proof: Proof) -> None:
    """Refuse a proof which is incomplete or wrong, before anything is fetched.

    :raises OpPrereqError: the proof cannot be used, or an HTTP address has none.
    """
    if proof.checksum and proof.checksum_file:
        raise errors.OpPrereqError("give either --checksum or --checksum-file", errors.ECODE_INVAL)
    if proof.checksum:
        _digits(proof.checksum)
    if bool(proof.signature) != bool(proof.keyring):
        raise errors.OpPrereqError(
            "--signature and --keyring belong together: the keyring has the keys which may sign",
            errors.ECODE_INVAL,
        )
    if proof.keyring and not os.path.isfile(os.path.expanduser(proof.keyring)):
        raise errors.OpPrereqError(f"there is no keyring '{proof.keyring}'", errors.ECODE_NOENT)
    if _scheme(source) == "http" and not (proof.checksum or proof.signature):
        raise errors.OpPrereqError(
            f"image {_shown(source)}: an http address needs --checksum or --signature, because"
            " nothing protects the transfer",
            errors.ECODE_INVAL,
        )
    if _scheme(proof.checksum_file) == "http" and not proof.signature:
        raise errors.OpPrereqError(
            f"{_shown(proof.checksum_file)}: a file of checksums at an http address needs"
            " --signature, because nothing protects the transfer",
            errors.ECODE_INVAL,
        )


def fetch(
    name: str,
    source: str,
    proof: Proof,
    top: str,
    *,
    now: Callable[[], float],
    run: images.Runner = process.run,
) -> tuple[catalogue.Image, str]:
    """Fetch an image into the directory of the catalogue, and prove it.

    The caller holds the lock of the catalogue, and gives the file to :func:`catalogue.add`.

    :param source: as :func:`require_source` returns it.
    :returns: the entry of the image, and the path of its file.
    :raises OpPrereqError: the image cannot be fetched, is not the wanted one, or cannot be used;
        no file is left.
    """
    check_proof(source, proof)
    part = _part(top)
    try:
        got = _copy(source, part, protect=not (proof.checksum or proof.signature))
        verified = _prove(source, part, got, proof, top, run)
        if not (verified or got.protected):
            raise errors.OpPrereqError(
                f"image {_shown(source)}: the server sent it over http. Give --checksum or"
                " --signature.",
                errors.ECODE_INVAL,
            )
        found = images.inspect(part, "", run, shown=_shown(source))
        if found.format not in catalogue.FORMATS:
            raise errors.OpPrereqError(
                f"image {_shown(source)} has the format {found.format}, not raw or qcow2."
                f" Convert it with 'qemu-img convert -f {found.format} -O qcow2 IMAGE NEW_IMAGE'.",
                errors.ECODE_INVAL,
            )
        if found.size == 0:
            raise errors.OpPrereqError(f"image {_shown(source)} is empty", errors.ECODE_INVAL)
    except BaseException:
        os.unlink(part)
        raise
    image = catalogue.Image(
        name, found.format, found.size, got.size, got.sha256, _shown(source), verified, int(now())
    )
    return image, part


def _part(top: str) -> str:
    handle, path = tempfile.mkstemp(
        prefix=catalogue.PART_PREFIX, suffix=catalogue.PART_SUFFIX, dir=top
    )
    os.close(handle)
    return path


def _shown(source: str) -> str:
    """Return the source without the password which an address may have."""
    if "://" not in source:
        return source
    parts = urllib.parse.urlsplit(source)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections, and notes whether all of them are protected.

    :param protect: refuse those that are not.
    :ivar protected: whether every address since the first one is protected.
    """

    def __init__(self, source: str, *, protect: bool) -> None:
        self._source = source
        self._protect = protect
        self.protected = _scheme(source) == "https"

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Make the request for the next address; called for each redirection.

        :raises OpPrereqError: it must not be followed.
        """
        scheme = _scheme(newurl)
        if scheme not in ("http", "https"):
            raise errors.OpPrereqError(
                f"cannot fetch {_shown(self._source)}: it leads to {_shown(newurl)}. Only http and"
                " https are followed.",
                errors.ECODE_INVAL,
            )
        if scheme != "https":
            if self._protect and self.protected:
                raise errors.OpPrereqError(
                    f"cannot fetch {_shown(self._source)}: it leads to {_shown(newurl)}, and"
                    " nothing protects that transfer. Give another address, or --checksum or"
                    " --signature.",
                    errors.ECODE_INVAL,
                )
            self.protected = False
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(redirects: _Redirects) -> urllib.request.OpenerDirector:
    """Return an opener for the kinds of addresses in :data:`_SCHEMES` only."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.FileHandler(),
        redirects,
    ):
        opener.add_handler(handler)
    return opener


@contextlib.contextmanager
def _opened(source: str, *, protect: bool) -> Iterator[tuple[IO[bytes], int | None, bool]]:
    """Open a source: the stream, the announced size, and whether the transfer is protected.

    :param protect: refuse an address of HTTPS that leads to one of HTTP.
    :raises OpPrereqError: the source cannot be read, also while the block reads it.
    """
    try:
        if "://" not in source:
            with open(source, "rb") as stream:
                yield stream, os.fstat(stream.fileno()).st_size, True
            return
        redirects = _Redirects(source, protect=protect)
        with _opener(redirects).open(source, timeout=_NO_DATA_S) as answer:
            announced = answer.headers.get("Content-Length") or ""
            size = int(announced) if announced.isascii() and announced.isdigit() else None
            yield answer, size, redirects.protected or _scheme(source) == "file"
    except (urllib.error.URLError, OSError, ValueError) as err:
        reason: object = err
        # The answer of a server has its status in the whole text.
        if isinstance(err, urllib.error.URLError) and not isinstance(err, urllib.error.HTTPError):
            reason = err.reason
        way_out = ""
        if isinstance(reason, OSError) and not isinstance(reason, urllib.error.HTTPError):
            if _scheme(source) in ("http", "https"):
                way_out = _WITHOUT_NETWORK
            reason = reason.strerror or reason
        raise errors.OpPrereqError(
            f"cannot fetch {_shown(source)}: {reason}{way_out}", errors.ECODE_ENVIRON
        ) from err


def _copy(source: str, target: str, *, protect: bool) -> _Fetched:
    short, long = hashlib.sha256(), hashlib.sha512()
    opened = _opened(source, protect=protect)
    what = f"image {_shown(source)}"
    try:
        with opened as (stream, announced, protected), open(target, "wb") as out:
            free_space.require(os.path.dirname(target), announced or 0, what)
            copy = free_space.SparseFile(out, what)
            while data := stream.read(_BLOCK):
                copy.write(data)
                short.update(data)
                long.update(data)
            copy.finish()
            os.fsync(out.fileno())
    except free_space.NoSpace as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_NORES) from err
    done = copy.size
    if announced is not None and announced != done:
        raise errors.OpPrereqError(
            f"cannot fetch {_shown(source)}: it ended after {done} of {announced} bytes",
            errors.ECODE_ENVIRON,
        )
    return _Fetched(done, short.hexdigest(), long.hexdigest(), protected)


def _prove(
    source: str, part: str, got: _Fetched, proof: Proof, top: str, run: images.Runner
) -> str:
    """Check the proof; return what it was, as the catalogue has it.

    :raises OpPrereqError: the image is another one.
    """
    wanted = proof.checksum
    with contextlib.ExitStack() as files:
        if proof.checksum_file:
            text = _small(proof.checksum_file, protect=not proof.signature)
            if proof.signature:
                listed = files.enter_context(_temporary(text, top))
                _check_signature(proof.checksum_file, listed, proof, top, run)
            wanted = _listed(source, proof.checksum_file, text)
        elif proof.signature:
            _check_signature(source, part, proof, top, run)
    if wanted:
        kind, digits = _digits(wanted)
        found = got.sha512 if kind == "sha512" else got.sha256
        if found != digits:
            raise errors.OpPrereqError(
                f"image {_shown(source)} has the {kind} {found}, wanted {digits}",
                errors.ECODE_INVAL,
            )
    return "signature" if proof.signature else "checksum" if wanted else ""


def _digits(checksum: str) -> tuple[str, str]:
    kind, colon, digits = checksum.strip().lower().rpartition(":")
    known = _KINDS.get(len(digits))
    if known is None or not re.fullmatch("[0-9a-f]+", digits) or (colon and kind != known):
        raise errors.OpPrereqError(
            f"'{checksum:.140}' is not a checksum. Write sha256: and 64 digits, or sha512: and 128"
            " digits.",
            errors.ECODE_INVAL,
        )
    return known, digits


def _small(source: str, *, protect: bool) -> bytes:
    with _opened(require_source(source), protect=protect) as (stream, _announced, _protected):
        text = stream.read(_SMALL_BYTES + 1)
    if len(text) > _SMALL_BYTES:
        raise errors.OpPrereqError(
            f"{_shown(source)} has more than {_SMALL_BYTES >> 20} MiB", errors.ECODE_INVAL
        )
    return text


@contextlib.contextmanager
def _temporary(content: bytes, top: str) -> Iterator[str]:
    path = _part(top)
    try:
        with open(path, "wb") as out:
            out.write(content)
        yield path
    finally:
        os.unlink(path)


def parse_checksums(text: str) -> dict[str, str]:
    """Read a file of checksums: for each name of a file its SHA-256 or SHA-512.

    The lines are those of sha256sum(1), also with ``--tag``; other lines are ignored.
    """
    found = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.rstrip()):
            found[match[2]] = match[1].lower()
        elif match := _BSD_LINE.fullmatch(line.strip()):
            found[match[1]] = match[2].lower()
    return found


def _listed(source: str, checksum_file: str, text: bytes) -> str:
    """Return the checksum of a source in a file of checksums.

    :raises OpPrereqError: the file does not name it.
    """
    path = urllib.parse.urlsplit(source).path if "://" in source else source
    name = os.path.basename(urllib.parse.unquote(path))
    listed = parse_checksums(text.decode("utf-8", "replace"))
    for known, digits in listed.items():
        if known.removeprefix("./") == name:
            return digits
    raise errors.OpPrereqError(
        f"{_shown(checksum_file)} has no SHA-256 or SHA-512 of {name}", errors.ECODE_NOENT
    )


def _check_signature(shown: str, path: str, proof: Proof, top: str, run: images.Runner) -> None:
    """Require that a key of the keyring has signed a file.

    :raises OpPrereqError: it has not, or gpgv is missing.
    """
    # A signature proves itself.
    with _temporary(_small(proof.signature, protect=False), top) as signature:
        # gpgv looks for a name without a slash in the home directory.
        argv = [
            GPGV,
            "--keyring",
            os.path.abspath(os.path.expanduser(proof.keyring)),
            signature,
            path,
        ]
        try:
            done = run(argv, timeout_s=_GPGV_S, check=False)
        except errors.CommandError as err:
            raise errors.OpPrereqError(
                f"the signature of {_shown(shown)} cannot be checked: {err}. Install the package"
                f" '{GPGV}', or leave --signature out and give --checksum.",
                errors.ECODE_ENVIRON,
            ) from err
    if done.exit_code != 0:
        raise errors.OpPrereqError(
            f"{_shown(shown)} has no valid signature by a key of {proof.keyring}:"
            f" {done.output.strip()}",
            errors.ECODE_INVAL,
        )
