"""The catalogue of disk images, of which the copy of the master is the right one."""

from __future__ import annotations

from urllib.parse import urlsplit

from ganeti import errors
from ganeti.foreign import catalogue
from ganeti.luxi.answers import ImageReport, ImagesReport


def images(top: str) -> ImagesReport:
    """Answer ``QueryImages``.

    :param top: the directory of the catalogue.
    :raises OpExecError: it cannot be read.
    """
    try:
        found, problems = catalogue.read(top)
    except OSError as err:
        raise errors.OpExecError(
            f"cannot read the catalogue of images {top} on the master: {err.strerror}"
        ) from err
    return {"images": [_report(one) for one in found.values()], "problems": problems}


def _report(image: catalogue.Image) -> ImageReport:
    return {
        "name": image.name,
        "format": image.format,
        "size": image.size,
        "file_size": image.file_size,
        "sha256": image.sha256,
        "source": _without_password(image.source),
        "verified": image.verified,
        "fetched": image.fetched,
    }


def _without_password(source: str) -> str:
    """Return an address without user and password; a path as it is."""
    try:
        parts = urlsplit(source)
    except ValueError:
        return source
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host).geturl() if parts.scheme and parts.netloc else source
