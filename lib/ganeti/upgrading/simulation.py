"""A simulation of an upgrade: on a virtual cluster made from this cluster's own configuration.

First a copy of the configuration is converted, as the upgrade will do it. Then a virtual cluster
(``vcluster create --like``) with the same nodes and instances goes to the other version, and back
again where that is possible, while its guests run. The cluster itself is only read. On a real
machine the virtual cluster has a network namespace of its own, because the daemons of the machine
use the same ports.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from ganeti import errors
from ganeti.configfile import files
from ganeti.constants.cli import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.platform import machine, versions
from ganeti.utils import fs, process

_LOOPBACK = ("ip", "link", "set", "dev", "lo", "up")
_NETWORK_S = 60.0


class Places(NamedTuple):
    """Where the two versions are.

    :ivar config: the file ``config.data``.
    :ivar origin: directory of the version in use.
    :ivar target: directory of the other one.
    """

    config: str
    origin: str
    target: str


def simulate(config: str, origin: str, target: str, *, say: Callable[[str], object] = print) -> int:
    """Try an upgrade; returns the exit code.

    :param config: path of the file ``config.data``, which is only read.
    :param origin: the version in use.
    :param target: the wanted version.
    :raises ConfigurationError: a version is not installed on this node.
    :raises OpPrereqError: this user gets no network namespace, or may not read the file.
    """
    if not os.access(config, os.R_OK):
        raise errors.OpPrereqError(
            f"{config} cannot be read; the simulation needs the rights of root",
            errors.ECODE_ENVIRON,
        )
    known = versions.installed()
    places = Places(config, known[origin].directory, known[target].directory)
    if machine.current().has_own_system:
        _go_on_in_own_network(places)
    return run(places, say=say)


def _go_on_in_own_network(places: Places) -> NoReturn:
    """Replace this process by one which does the simulation there and prints what it says.

    :raises OpPrereqError: this machine does not let this user do that.
    """
    argv = [*_own_network(), sys.executable, "-m", "ganeti.upgrading.simulation", *places]
    library = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.stdout.flush()
    os.execvpe(argv[0], argv, {**os.environ, "PYTHONPATH": library})


def _own_network() -> list[str]:
    """Return the words before a program which give it a network of its own.

    All daemons of a machine listen at all addresses; in a namespace of its own no port is taken.

    :raises OpPrereqError: this machine does not let this user do that.
    """
    argv = ["unshare", "--net"]
    if os.geteuid() != 0:
        # An ordinary user has rights over a network only in a namespace of users, too.
        argv = ["unshare", "--user", "--map-current-user", "--keep-caps", "--net"]
    tried = process.run([*argv, *_LOOPBACK], timeout_s=_NETWORK_S, check=False)
    if tried.failed:
        raise errors.OpPrereqError(
            f"'{' '.join(argv)}' {tried.fail_reason}: {tried.output.strip()}. The simulation needs"
            " a network of its own, because the daemons of this machine use the same ports",
            errors.ECODE_ENVIRON,
        )
    return argv


def run(places: Places, *, say: Callable[[str], object] = print) -> int:
    """Do the simulation in this process; returns the exit code."""
    origin, target = (
        versions.version_in(os.path.realpath(place)) for place in (places.origin, places.target)
    )
    if origin is None or target is None:
        raise errors.ConfigurationError("one of the two versions is not installed")
    # A short path, because it contains unix sockets.
    directory = tempfile.mkdtemp(prefix="gnt-")
    simulation = _Simulation(directory, origin, target, say)
    try:
        simulation.convert(places.config)
        simulation.create(places.config)
        simulation.go(target)
        if versions.number_of(target.series) > versions.number_of(origin.series):
            simulation.go(origin)
    except KeyboardInterrupt:
        say("Interrupted. This cluster was not changed.")
        return EXIT_FAILURE
    except errors.GenericError as err:
        say(str(err))
        say("The simulation has failed. This cluster was not changed.")
        return EXIT_FAILURE
    finally:
        simulation.end()
    say("The simulation has succeeded. This cluster was not changed.")
    return EXIT_SUCCESS


class _Simulation:
    def __init__(
        self,
        directory: str,
        origin: versions.Version,
        target: versions.Version,
        say: Callable[[str], object],
    ) -> None:
        self._directory = directory
        self._cluster = f"{directory}/vc"
        self._origin = origin
        self._target = target
        self._say = say
        self._created = False

    def _run(self, argv: Sequence[str], what: str) -> process.Completed:
        done = process.run(argv, timeout_s=None, check=False)
        if done.failed:
            raise errors.OpExecError(f"{what} has failed:\n{done.output.strip()[-4000:]}")
        return done

    def _vcluster(self, what: str, *argv: str) -> process.Completed:
        return self._run([self._origin.program("vcluster"), *argv], what)

    def convert(self, config: str) -> None:
        """Convert a copy of the configuration, with the program of the later version."""
        self._say("Converting a copy of the configuration")
        copy = f"{self._directory}/data"
        os.mkdir(copy, 0o700)
        files.replace(f"{copy}/config.data", files.read(config), mode=0o600)
        options = ["-f", "--ignore-hostname", f"--path={copy}", f"--confdir={copy}"]
        if versions.number_of(self._target.series) < versions.number_of(self._origin.series):
            facts = self._run([self._target.program("cfgupgrade"), "--facts"], "asking for facts")
            fs.write_file(f"{copy}/facts", facts.stdout)
            argv = [self._origin.program("cfgupgrade"), f"--back-to={copy}/facts", "--no-verify"]
            self._run([*argv, *options], "the conversion of the configuration")
        # The other version reads the result; a contradiction which was there before is none of it.
        argv = [self._target.program("cfgupgrade"), "--no-verify", *options]
        self._run(argv, "the conversion of the configuration")
        shutil.rmtree(copy)

    def create(self, config: str) -> None:
        """Make the virtual cluster, with both versions on all nodes, and start its guests."""
        self._say("Creating a virtual cluster with the same nodes and instances")
        self._created = True
        self._vcluster("the creation", "create", "--like", config, self._cluster)
        for version in (self._origin, self._target):
            self._vcluster("adding a version", "add-version", self._cluster, version.directory)
        down = self._guests()
        if down:
            self._inside(
                "the start of the guests", "gnt-instance", "start", "--force-multiple", *down
            )
        self._say(f"  {len(down)} instances run, under the hypervisor 'fake'")

    def _inside(self, what: str, *argv: str) -> process.Completed:
        return self._vcluster(what, "run", self._cluster, *argv)

    def _guests(self) -> list[str]:
        """Return the names of the instances which do not run."""
        done = self._inside(
            "the list of instances", "gnt-instance", "list", "--no-headers", "--separator=|",
            "-o", "name,status",
        )  # fmt: skip
        rows = [line.strip().split("|") for line in done.stdout.splitlines()]
        return [row[0] for row in rows if len(row) == 2 and row[1] != "running"]

    def go(self, target: versions.Version) -> None:
        """Upgrade the virtual cluster, or take it back; its guests must keep running."""
        self._say(f"Going to version {target.series}")
        sys.stdout.flush()
        done = process.run(
            [
                self._origin.program("vcluster"), "run", self._cluster,
                "gnt-cluster", "upgrade", f"--to={target.series}",
            ],
            timeout_s=None, check=False, output_fd=sys.stdout.fileno(),
        )  # fmt: skip
        if done.failed:
            raise errors.OpExecError(f"the way to version {target.series} has failed")
        stopped = self._guests()
        if stopped:
            raise errors.OpExecError(f"these guests do not run any more: {', '.join(stopped)}")

    def end(self) -> None:
        """Remove the virtual cluster."""
        if self._created and os.path.exists(f"{self._cluster}/vcluster.json"):
            self._vcluster("the removal of the virtual cluster", "destroy", self._cluster)
        shutil.rmtree(self._directory)


def main(argv: Sequence[str]) -> int:
    """Be the process in the network namespace; the arguments are those of :class:`Places`."""
    process.run(_LOOPBACK, timeout_s=_NETWORK_S)
    return run(Places(*argv), say=lambda text: print(text, flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
