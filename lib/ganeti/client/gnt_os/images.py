"""The command ``gnt-os images``: the catalogue of disk images."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, row_list, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.over_rest import address
from ganeti.constants import query as query_const

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ganeti.cli.remote import RemoteNode
    from ganeti.foreign import fetching
    from ganeti.foreign.catalogue import Image

#: Action -> the options which only it has, and the numbers of arguments after it.
_ACTIONS: dict[str, tuple[tuple[str, ...], int, int | None]] = {
    "list": (("separator", "no_headers", "units", "output", "sort_by", "watch", "interval"), 0, 0),
    "known": (("separator", "no_headers", "output", "sort_by"), 0, 0),
    "fetch": (("checksum", "checksum_file", "signature", "keyring", "no_share"), 1, 2),
    "share": (("nodes",), 0, None),
    "check": (("nodes",), 0, None),
    "remove": ((), 1, None),
}
_ARGUMENTS = {
    "list": "list",
    "known": "known",
    "fetch": "fetch NAME [SOURCE]",
    "share": "share [NAME...]",
    "check": "check [NAME...]",
    "remove": "remove NAME...",
}

# The actions which work over the REST interface.
_OVER_REST = ("list", "known")

#: Field -> title and kind of the column.
FIELDS = {
    "name": ("Name", query_const.KIND_TEXT),
    "format": ("Format", query_const.KIND_TEXT),
    "size": ("DiskSize", query_const.KIND_UNIT),
    "file_size": ("FileSize", query_const.KIND_UNIT),
    "sha256": ("SHA256", query_const.KIND_TEXT),
    "verified": ("Verified", query_const.KIND_TEXT),
    "source": ("Source", query_const.KIND_TEXT),
    "fetched": ("Fetched", query_const.KIND_TIMESTAMP),
}
#: The same for the short names of published images.
KNOWN_FIELDS = {
    "name": ("Name", query_const.KIND_TEXT),
    "description": ("Description", query_const.KIND_TEXT),
    "proof": ("Proof", query_const.KIND_TEXT),
    "source": ("Source", query_const.KIND_TEXT),
}
LIST_FIELDS = ("name", "format", "size", "file_size", "verified", "source")


def images(values: Values, arguments: list[str]) -> int:
    """List, fetch, share, check or remove images (``images``).

    :raises OpPrereqError: unknown action, or arguments and options of another one.
    """
    action, *names = arguments or ["list"]
    _require_usage(action, names, values)
    if address.is_given() and action not in _OVER_REST:
        raise errors.OpPrereqError(
            f"'gnt-os images {action}' does not work over the REST interface ({address.VARIABLE} is"
            " set), because it uses the SSH keys of root on the master. Run it on the master.",
            errors.ECODE_ENVIRON,
        )
    return _RUN[action](values, names)


def _require_usage(action: str, names: Sequence[str], values: Values) -> None:
    if action not in _ACTIONS:
        from ganeti.utils import suggest

        raise errors.OpPrereqError(
            f"'{action}' is not an action of images.{suggest.did_you_mean(action, _ACTIONS)}"
            f" Known are: {', '.join(_ACTIONS)}.",
            errors.ECODE_INVAL,
        )
    own, least, most = _ACTIONS[action]
    if len(names) < least or (most is not None and len(names) > most):
        raise errors.OpPrereqError(
            f"write 'gnt-os images {_ARGUMENTS[action]}'", errors.ECODE_INVAL
        )
    others = {option for options, _, _ in _ACTIONS.values() for option in options} - set(own)
    wrong = sorted(option for option in others if values.get(option))
    if wrong:
        spelt = next((one.long for one in OPTIONS if one.dest == wrong[0]), None)
        raise errors.OpPrereqError(
            f"images {action}: {spelt or wrong[0]} belongs to another action", errors.ECODE_INVAL
        )


def _read(*, complete: bool = False) -> tuple[str, dict[str, Image]]:
    """Read the catalogue of this node; print what cannot be used.

    :param complete: refuse a catalogue with such an entry.
    :raises OpPrereqError: an entry cannot be used.
    """
    from ganeti.foreign import catalogue

    top = catalogue.directory()
    found, problems = catalogue.read(top)
    if problems and complete:
        raise errors.OpPrereqError(
            f"{problems[0]}. Remove the file, and fetch the image again.", errors.ECODE_STATE
        )
    for problem in problems:
        terminal.err(f"Warning: {problem}")
    return top, found


def _chosen(found: Mapping[str, Image], names: Sequence[str]) -> dict[str, Image]:
    from ganeti.foreign import catalogue

    if not names:
        return dict(found)
    return {name: catalogue.require(found, name) for name in names}


def _list(values: Values, names: list[str]) -> int:
    """List the catalogue of this node (``images list``); no daemon is asked, but over REST."""
    from ganeti.foreign.machine import whole_mib

    def fetch(fields: list[str]) -> list[list[Any]]:
        rows = []
        for row in _entries():
            row |= {key: whole_mib(row[key]) for key in ("size", "file_size")}
            row["verified"] = row["verified"] or "no"
            rows.append([row[field] for field in fields])
        return rows

    return _table(LIST_FIELDS, FIELDS, values, fetch)


def _entries() -> list[dict[str, Any]]:
    """Return the images of this node, or over the REST interface those of the master."""
    if not address.is_given():
        return [image._asdict() for image in _read()[1].values()]
    found = jobs.connect().query_images()
    for problem in found["problems"]:
        terminal.err(f"Warning: {problem}")
    return [dict(one) for one in found["images"]]


def _known(values: Values, names: list[str]) -> int:
    """List the short names which ``images fetch`` knows (``images known``); no daemon is asked."""
    from ganeti.foreign import short_names

    def fetch(fields: list[str]) -> list[list[Any]]:
        rows = []
        for one in short_names.read().values():
            row = {
                "name": one.name,
                "description": one.description,
                "proof": one.proof.kind(),
                "source": one.source,
            }
            rows.append([row[field] for field in fields])
        return rows

    return _table(tuple(KNOWN_FIELDS), KNOWN_FIELDS, values, fetch)


def _table(
    usual: Sequence[str],
    known: Mapping[str, tuple[str, str]],
    values: Values,
    fetch: Callable[[list[str]], list[list[Any]]],
) -> int:
    """Write rows as the options say.

    :param usual: the fields without ``-o``.
    :param known: field -> title and kind of its column.
    :param fetch: called with fields, returns the rows.
    """

    def response(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        return {
            "fields": [
                {"name": field, "title": known[field][0], "kind": known[field][1]}
                for field in fields
            ],
            "data": [[(query_const.RS_NORMAL, value) for value in row] for row in rows],
        }

    return row_list.run(
        usual,
        tuple(known),
        values,
        fetch,
        lambda fields, rows: listing.table_lines(response(fields, rows), values, {}),
        lambda fields, rows: listing.write(response(fields, rows), values),
        interval_s=None,
    )


def _fetch(values: Values, names: list[str]) -> int:
    """Fetch an image, and send it to the other nodes (``images fetch``)."""
    import time

    from ganeti.foreign import catalogue, fetching

    # On another node than the master, this is the place where the user learns it.
    jobs.connect()
    name = catalogue.require_name(names[0])
    proof = fetching.Proof(
        values.checksum or "",
        values.checksum_file or "",
        values.signature or "",
        values.keyring or "",
    )
    if len(names) == 2:
        source = fetching.require_source(names[1])
    else:
        source, proof = _published(name, proof)
    fetching.check_proof(source, proof)
    top = catalogue.directory()
    with catalogue.lock(top):
        before = _read(complete=True)[1].get(name)
        catalogue.sweep(top)
        image, part = fetching.fetch(name, source, proof, top, now=time.time)
        catalogue.add(top, image, part)
        done = "fetched" if before is None else "replaced"
        terminal.out(
            f"{done} image {name}: {image.format}, disk of {-(-image.size >> 20) or 1} MiB, sha256"
            f" {image.sha256}"
        )
        if not image.verified:
            terminal.err(
                f"Note: nothing proved the content of {name}. --checksum or --signature does."
            )
        return failures.EXIT_SUCCESS if values.no_share else _send(top, [name], [])


def _published(name: str, given: fetching.Proof) -> tuple[str, fetching.Proof]:
    """Return the source of a short name, and its proof unless the user gives another one.

    :raises OpPrereqError: there is no such short name.
    """
    from ganeti.foreign import fetching, short_names

    one = short_names.require(name)
    if any(given):
        return fetching.require_source(one.source), given
    if one.missing_keyring:
        terminal.err(
            f"Note: there is no {one.missing_keyring} on this machine, so the checksum of {name} is"
            " not proved by its signature, but only by the https address. Install the keyring, or"
            " name another one with --signature and --keyring."
        )
    return fetching.require_source(one.source), one.proof


def _nodes(wanted: Sequence[str]) -> list[RemoteNode]:
    from ganeti.cli import online_nodes
    from ganeti.cli.remote import RemoteNode

    found = online_nodes.online_nodes(jobs.connect(), wanted, None, "pip")
    return [RemoteNode(name, address) for name, address, _ in found]


def _share(values: Values, names: list[str]) -> int:
    """Send images to the nodes which do not have them (``images share``)."""
    from ganeti.foreign import catalogue

    jobs.connect()
    top = catalogue.directory()
    with catalogue.lock(top):
        catalogue.sweep(top)
        return _send(top, names, values.nodes)


def _send(top: str, names: Sequence[str], nodes: Sequence[str]) -> int:
    """Send images to other nodes, and remove there what the catalogue does not have.

    The caller holds the lock of the catalogue.

    :raises OpPrereqError: an image of this node is damaged.
    """
    from ganeti.cli import image_copies

    _, every = _read(complete=True)
    wanted = _chosen(every, names)
    others = [node for node in _nodes(nodes) if not node.here]
    if not others:
        return failures.EXIT_SUCCESS
    sums = image_copies.entry_sums(top, wanted)
    _require_own(top, wanted)
    same = image_copies.by_directory(top, others)
    for name, other in same.items():
        terminal.out(f"{name}: has the same directory as {other or 'this node'}")
    others = [node for node in others if node.name not in same]
    with image_copies.staged(top, wanted) as links:

        def work(node: RemoteNode) -> tuple[list[str], list[str]]:
            sent = image_copies.send(node, top, wanted, sums, links)
            return sent, image_copies.tidy(node, every)

        return _on_each(
            others,
            work,
            lambda result: [
                f"has {', '.join(result[0]) or 'everything already'}"
                if wanted
                else "has no images",
                *(f"removed {name}" for name in result[1]),
            ],
        )


def _require_own(top: str, wanted: Mapping[str, Image]) -> None:
    """Refuse to send an image which is damaged on this node.

    :raises OpPrereqError: it is damaged or missing.
    """
    import hashlib
    import os

    for image in wanted.values():
        path = f"{top}/{image.data_file}"
        found = ""
        if os.path.isfile(path):
            with open(path, "rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != image.sha256:
            raise errors.OpPrereqError(
                f"image {image.name} is {'damaged' if found else 'missing'} on this node. Fetch it"
                f" again: gnt-os images fetch {image.name} {image.source}",
                errors.ECODE_STATE,
            )


def _on_each(
    nodes: Sequence[RemoteNode],
    work: Callable[[RemoteNode], Any],
    lines: Callable[[Any], Sequence[str]],
) -> int:
    """Work on several nodes at the same time; print the lines or the problem of each.

    :returns: the exit code, 1 when a node failed.
    """
    from ganeti.cli import remote

    def attempt(node: RemoteNode) -> Any:
        try:
            return work(node)
        except errors.OpExecError as err:
            return err

    code = failures.EXIT_SUCCESS
    for node, result in remote.on_each(nodes, attempt):
        if isinstance(result, errors.OpExecError):
            code = failures.EXIT_FAILURE
            terminal.err(f"{node.name}: failed: {result}")
            continue
        for line in lines(result):
            terminal.out(f"{node.name}: {line}")
    return code


def _check(values: Values, names: list[str]) -> int:
    """Compare the images of the nodes with the catalogue of the master (``images check``).

    :returns: the exit code, 1 when a node does not have an image as it should be.
    """
    from ganeti.cli import image_copies

    top, every = _read()
    wanted = _chosen(every, names)
    nodes = _nodes(values.nodes)
    if not wanted:
        terminal.err("there are no images")
        return failures.EXIT_SUCCESS
    sums = image_copies.entry_sums(top, wanted)
    bad: list[str] = []

    def lines(copy: image_copies.Copy) -> list[str]:
        states = {name: copy.state(image, sums[name]) for name, image in wanted.items()}
        bad.extend(name for name, state in states.items() if state != image_copies.OK)
        return [f"{name} {state}" for name, state in states.items()]

    code = _on_each(nodes, lambda node: image_copies.inspect(node, wanted), lines)
    if bad:
        terminal.err(f"Send them again with: gnt-os images share {' '.join(sorted(set(bad)))}")
        return failures.EXIT_FAILURE
    return code


def _remove(values: Values, names: list[str]) -> int:
    """Remove images from the catalogue of all nodes (``images remove``)."""
    from ganeti.foreign import catalogue

    jobs.connect()
    top = catalogue.directory()
    with catalogue.lock(top):
        for image in _chosen(_read(complete=True)[1], names).values():
            catalogue.remove(top, image)
        return _tidy(_read()[1])


def _tidy(every: Mapping[str, Image]) -> int:
    from ganeti.cli import image_copies

    return _on_each(
        [node for node in _nodes([]) if not node.here],
        lambda node: image_copies.tidy(node, every),
        lambda gone: [f"removed {name}" for name in gone],
    )


_RUN = {
    "list": _list,
    "known": _known,
    "fetch": _fetch,
    "share": _share,
    "check": _check,
    "remove": _remove,
}

OPTIONS = (
    opt.NO_HEADERS,
    opt.SEPARATOR,
    opt.UNITS,
    opt.OUTPUT,
    opt.SORT_BY,
    opt.WATCH,
    opt.INTERVAL,
    opt.text("--checksum", metavar="sha256:HEX", help="fetch: the SHA-256 or SHA-512 of the image"),
    opt.text(
        "--checksum-file",
        metavar="SOURCE",
        help="fetch: path or address of a file with checksums, such as SHA512SUMS",
    ),
    opt.text(
        "--signature",
        metavar="SOURCE",
        help="fetch: path or address of a signature of the file with checksums, else of the image",
    ),
    opt.text(
        "--keyring", metavar="FILE", help="fetch: the OpenPGP keyring with the keys which may sign"
    ),
    opt.flag("--no-share", help="fetch: do not send the image to the other nodes"),
    opt.NODES,
)

IMAGES = Command(
    "images",
    images,
    [Argument("choice", 0, 1, tuple(_ACTIONS)), Argument("image")],
    OPTIONS,
    "List, fetch, share, check or remove the disk images of the OS definition image",
    usage="[<options>] [list | known | fetch <name> [<source>] | share [<name>...]"
    " | check [<name>...] | remove <name>...]",
)
