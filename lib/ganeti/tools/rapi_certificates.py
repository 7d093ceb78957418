"""The commands ``rapi-passwd certificate``: add, list and remove client certificates.

See :mod:`ganeti.rapi.certificates`.
"""

from __future__ import annotations

import argparse

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.rapi import certificates, credentials
from ganeti.tools import rapi_credentials
from ganeti.utils import fs


def make_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    return rapi_credentials.make_parser(
        certificates.KIND,
        "Add, list and remove client certificates, with which programs use the REST interface.",
        "add the certificate of a program",
    )


def run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code.

    :raises errors.GenericError: the command is not possible.
    """
    return rapi_credentials.run(certificates.KIND, options, _add)


def _add(master: luxi.Client, options: argparse.Namespace) -> None:
    try:
        pem = fs.read_file(options.file)
    except (OSError, UnicodeDecodeError) as err:
        raise errors.ParameterError(f"cannot read {options.file}: {err}") from err
    record = certificates.make(rapi_credentials.wanted(options), pem, options.file)
    for one in rapi_credentials.found(master, certificates.KIND):
        if one.key == record.key:
            raise errors.ParameterError(
                f"this certificate is already added, as {credentials.public_id(one.key)} of user"
                f" '{one.owner}'. Remove it first: 'rapi-passwd certificate remove"
                f" {credentials.public_id(one.key)}'."
            )
    print(rapi_credentials.put(master, record))
