"""Several versions of this project side by side on the nodes of a virtual cluster.

Each node gets a link to each version below its own root, as a real machine has directories for
them, and a link to the version which it uses. So the nodes can use different versions.
"""

from __future__ import annotations

import os

from ganeti import errors
from ganeti.platform import paths, versions
from ganeti.utils import fs
from ganeti.vcluster.description import Node, VirtualCluster, locked, read, write_programs


def own_place() -> str:
    """Return the directory of the version whose program this is: a checkout, or an installation."""
    top = paths.project_dir()
    return top or os.path.dirname(os.path.dirname(paths.package_dir()))


def add_version(directory: str, place: str) -> versions.Version:
    """Make a version available on all nodes. They go on with the version which they use.

    A virtual cluster without versions side by side gets its present one as the first.

    :param place: a checkout, or a directory such as ``/usr/lib/ganeti/0.9``.
    :raises ParameterError: there is no version at this place, or another one has the same name.
    """
    cluster = read(directory)
    place = os.path.realpath(place)
    found = versions.version_in(place)
    own = versions.version_in(own_place())
    if found is None or own is None:
        raise errors.ParameterError(f"{place} is neither a checkout nor an installed version")
    with locked(cluster.directory):
        for node in cluster.nodes:
            if not os.path.islink(_link(cluster, node)):
                _add(cluster, node, own)
                _use(cluster, node, own)
            _add(cluster, node, found)
        write_programs(cluster)
    return found


def _link(cluster: VirtualCluster, node: Node) -> str:
    return f"{cluster.paths(node).conf_dir}/version"


def _use(cluster: VirtualCluster, node: Node, version: versions.Version) -> None:
    os.symlink(f"../../usr/lib/ganeti/{version.series}", _link(cluster, node))


def _add(cluster: VirtualCluster, node: Node, version: versions.Version) -> None:
    path = f"{cluster.root(node)}/usr/lib/ganeti/{version.series}"
    fs.make_dirs(os.path.dirname(path))
    if os.path.islink(path):
        if os.path.realpath(path) != os.path.realpath(version.directory):
            raise errors.ParameterError(
                f"{node.name} has another version {version.series} at {os.path.realpath(path)}"
            )
        return
    os.symlink(os.path.realpath(version.directory), path)
