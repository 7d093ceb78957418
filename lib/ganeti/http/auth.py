"""Authorisation of node calls.

TLS has already proven that the certificate of the caller was signed with the key of the cluster.
This is true for every node, but only master candidates may make calls: the digest of the
certificate must be in ``ssconf_master_candidates_certs``. While that list is empty (a new cluster,
a new node), only the owner of the server certificate itself may call (Ganeti design 2.0,
*Security*).

The file is read for every request, so a node which was demoted is refused from the next call on.
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti import errors


def parse_candidate_certs(text: str) -> dict[str, str]:
    """Read ``<node uuid>=<digest>`` lines.

    :returns: node UUID -> digest in upper case.
    :raises ParseError: a line has another form; the message contains the line.
    """
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        node_uuid, equals, digest = line.strip().partition("=")
        if not (equals and node_uuid and digest):
            raise errors.ParseError(f"not a line of candidate certificates: {line!r}")
        found[node_uuid] = digest.upper()
    return found


class CandidatesOnly:
    """Checks the digest of a client certificate: None if it may call, else the reason."""

    def __init__(self, certs_file: str, own_digest: str) -> None:
        self._certs_file = certs_file
        self._own_digest = own_digest

    def __call__(self, digest: str) -> str | None:
        try:
            with open(self._certs_file, encoding="ascii") as stream:
                candidates = parse_candidate_certs(stream.read())
        except FileNotFoundError:
            candidates = {}
        except (OSError, UnicodeDecodeError, errors.ParseError) as err:
            return f"cannot read the list of master candidates' certificates: {err}"
        return refusal(candidates, digest, self._own_digest)


def refusal(candidates: Mapping[str, str], digest: str, own_digest: str) -> str | None:
    """Return the reason why a certificate may not call; None if it may.

    :param candidates: node UUID -> digest in upper case.
    :param digest: digest of the certificate of the caller.
    :param own_digest: digest of the server certificate.
    """
    if not candidates:
        if digest == own_digest:
            return None
        return (
            "this node knows no master candidates, so only the server certificate may "
            f"call, not {digest}"
        )
    if digest in candidates.values():
        return None
    return f"certificate {digest} does not belong to a master candidate"
