"""The copies of the catalogue of images on the nodes: compare them, and send what is missing.

The copy of a node is the one of the master when it has the same files. A file is sent under an
unfinished name, checked on the node, and renamed; so a node never has an incomplete image.

Source: ``doc/design-images.rst``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ganeti import errors
from ganeti.cli import remote
from ganeti.cli.remote import RemoteNode
from ganeti.foreign import catalogue, fetching
from ganeti.foreign.catalogue import Image
from ganeti.utils import fs, shared_dir, text

OK, MISSING, DAMAGED = "ok", "missing", "damaged"


class Copy(NamedTuple):
    """What a node has: the checksums of the wanted files, and the names of all files."""

    sums: Mapping[str, str]
    names: Sequence[str]

    def state(self, image: Image, entry_sum: str) -> str:
        """Return the state of an image on the node: ``ok``, ``missing`` or ``damaged``.

        :param entry_sum: the SHA-256 of the entry on the master.
        """
        data, entry = self.sums.get(image.data_file), self.sums.get(image.entry_file)
        if data is None or entry is None:
            return MISSING
        return OK if data == image.sha256 and entry == entry_sum else DAMAGED


def entry_sums(top: str, images: Mapping[str, Image]) -> dict[str, str]:
    """Return the SHA-256 of the entries on this node, by the name of the image.

    :raises OSError: an entry cannot be read.
    """
    return {
        name: hashlib.sha256(fs.read_bytes(f"{top}/{image.entry_file}")).hexdigest()
        for name, image in images.items()
    }


def _cd(node: RemoteNode) -> str:
    return f"cd {shlex.quote(node.path(catalogue.directory()))}"


def _run(node: RemoteNode, script: str) -> str:
    """Run a script in the directory of the catalogue on a node; return its output.

    :raises OpExecError: the node cannot be reached, or the script failed.
    """
    try:
        done = node.run(script)
    except errors.CommandError as err:
        raise errors.OpExecError(str(err)) from err
    if done.failed:
        raise errors.OpExecError(done.problem)
    return done.stdout


def parse_copy(output: str) -> Copy:
    """Read what the script of :func:`look` prints: lines of sha256sum(1), an empty line, names."""
    sums, _, names = output.partition("\n\n")
    if output.startswith("\n"):
        sums, names = "", output[1:]
    return Copy(fetching.parse_checksums(sums), [name for name in names.splitlines() if name])


def inspect(node: RemoteNode, images: Mapping[str, Image]) -> Copy:
    """Read the copy of a node; the node reads each image for its checksum.

    :raises OpExecError: the node cannot be asked.
    """
    files = sorted({one for i in images.values() for one in (i.data_file, i.entry_file)})
    sums = f"sha256sum -- {shlex.join(files)} 2>/dev/null; " if files else ""
    return parse_copy(_run(node, f"{_cd(node)} 2>/dev/null || exit 0; {sums}echo; ls -A1"))


@contextmanager
def staged(top: str, images: Mapping[str, Image]) -> Iterator[dict[str, str]]:
    """Give the files of these images their unfinished names on this node, for :func:`send`.

    The caller holds the lock of the catalogue.

    :returns: the unfinished name by the name of a file.
    :raises OSError: the links cannot be made.
    """
    names = {one for i in images.values() for one in (i.data_file, i.entry_file)}
    links = {name: f"{catalogue.PART_PREFIX}share-{name}{catalogue.PART_SUFFIX}" for name in names}
    try:
        for name, link in links.items():
            os.link(f"{top}/{name}", f"{top}/{link}")
        yield links
    finally:
        for link in links.values():
            fs.remove_file(f"{top}/{link}")


def send(
    node: RemoteNode,
    top: str,
    images: Mapping[str, Image],
    entries: Mapping[str, str],
    links: Mapping[str, str],
) -> list[str]:
    """Send a node the images which it does not have; return their names.

    :param entries: the result of :func:`entry_sums`.
    :param links: of :func:`staged`.
    :raises OpExecError: the node cannot be reached, or a file arrived damaged.
    """
    _run(node, f"mkdir -p {shlex.quote(node.path(top))}")
    copy = inspect(node, images)
    sent = []
    for name, image in images.items():
        if copy.state(image, entries[name]) == OK:
            continue
        # The entry is the last one: it says that the image is complete.
        for file, wanted in ((image.data_file, image.sha256), (image.entry_file, entries[name])):
            if copy.sums.get(file) != wanted:
                _send_file(node, f"{top}/{links[file]}", file, wanted)
        sent.append(name)
    return sent


def by_directory(top: str, nodes: Sequence[RemoteNode]) -> dict[str, str]:
    """Find the nodes which have the same directory as this node, or as a node before them.

    Such a node has no copy of its own, which could be sent or tidied. A node which cannot be asked
    is taken for one with its own directory.

    :param top: the directory of the catalogue on this node, which exists.
    :param nodes: other nodes.
    :returns: name of such a node -> name of the other one; empty for this node.
    :raises OSError: this node cannot make its mark.
    """
    token = text.new_uuid()
    keys = {"here": "", **{f"n{number}": node.name for number, node in enumerate(nodes)}}
    marks = {key: shared_dir.mark_name(token, key) for key in keys}

    def on_others(script: Callable[[str], str]) -> dict[str, list[str]]:
        def run(node: RemoteNode) -> list[str]:
            key = next(key for key, name in keys.items() if name == node.name)
            try:
                return _run(node, f"{_cd(node)} 2>/dev/null || exit 0; {script(key)}").split()
            except errors.OpExecError:
                return []

        return {node.name: seen for node, seen in remote.on_each(nodes, run)}

    shared_dir.mark(top, token, "here")
    try:
        on_others(lambda key: f": > {marks[key]}")
        look = "; ".join(f"[ ! -e {mark} ] || echo {key}" for key, mark in marks.items())
        seen = on_others(lambda _key: look)
        mine = shared_dir.seen(top, token, keys)
    finally:
        on_others(lambda key: f"rm -f -- {marks[key]}")
        shared_dir.unmark(top, token, "here")
    sees = {"": mine, **seen}
    groups = shared_dir.groups(
        {name: [keys[key] for key in found if key in keys] for name, found in sees.items()}
    )
    return {name: group[0] for group in groups for name in group[1:]}


def bring(node: RemoteNode, top: str) -> list[str]:
    """Send the whole catalogue of this node to a node; return the names of what it did not have.

    :raises OpExecError: the node cannot be reached, or a file arrived damaged.
    :raises LockError: another program changes the catalogue.
    :raises OSError: the catalogue cannot be read.
    """
    with catalogue.lock(top):
        images, _ = catalogue.read(top)
        with staged(top, images) as links:
            return send(node, top, images, entry_sums(top, images), links)


def _send_file(node: RemoteNode, path: str, name: str, wanted: str) -> None:
    try:
        node.copy(path)
    except errors.CommandError as err:
        raise errors.OpExecError(str(err)) from err
    part = shlex.quote(os.path.basename(path))
    line = shlex.quote(f"{wanted}  {os.path.basename(path)}")
    check = f"printf '%s\\n' {line} | sha256sum --check --status -"
    _run(node, f"{_cd(node)} && {check} && mv -f -- {part} {shlex.quote(name)}")


def tidy(node: RemoteNode, images: Mapping[str, Image]) -> list[str]:
    """Remove files from a node which the catalogue of the master does not have; return them.

    :param images: the whole catalogue.
    :raises OpExecError: the node cannot be reached.
    """
    names = _run(node, f"{_cd(node)} 2>/dev/null || exit 0; ls -A1").splitlines()
    surplus = catalogue.surplus(names, images)
    if surplus:
        _run(node, f"{_cd(node)} && rm -f -- {shlex.join(surplus)}")
    return surplus
