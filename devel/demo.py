"""The demonstration: three nodes on this machine, a guest that moves while it runs (``make demo``).

Everything is done with the ``gnt-*`` commands and shown as it is done: what a step is for, the
command, what it printed, how long it took. That the guest went on running is read from the guest
itself: it prints its boot id and its uptime every second, and both are compared before and after
the move.

Where QEMU cannot be had, the same is done with the ``fake`` hypervisor, which says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ganeti import errors, vcluster
from ganeti.platform import paths
from ganeti.utils import fs, process, retry, text

GUEST = "web1.example.com"
IDLE = "idle1.example.com"
# Bounds a hang; each step takes seconds.
_STEP_S = 600.0
_LINE = re.compile(r"^tiny: \S+ boot (\S+) uptime (\d+) s", re.MULTILINE)


class Beat(NamedTuple):
    """What the guest last said on its console."""

    boot: str
    uptime_s: int
    lines: int


def last_beat(console: str) -> Beat | None:
    """Read the guest's last complete line; None when it has not spoken."""
    complete = console[: console.rfind("\n") + 1].replace("\r", "")
    found = _LINE.findall(complete)
    return Beat(found[-1][0], int(found[-1][1]), len(found)) if found else None


def verdict(before: Beat, after: Beat) -> str:
    """What two lines of the guest prove about a live migration.

    :raises OpExecError: the guest was restarted or its clock went back.
    """
    if before.boot != after.boot:
        raise errors.OpExecError(
            f"the guest was restarted: its boot id was {before.boot} and is {after.boot}"
        )
    if after.uptime_s < before.uptime_s:
        raise errors.OpExecError(
            f"the guest's uptime went from {before.uptime_s} s back to {after.uptime_s} s"
        )
    return (
        f"the same boot ({after.boot}) went on counting, from {before.uptime_s} s before the move"
        f" to {after.uptime_s} s on the other node: the guest was not restarted"
    )


class Demo:
    """One run of the demonstration in one directory."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        self._steps = 0

    def step(self, purpose: str, action: Callable[[], None]) -> None:
        """Do one thing, and say what and how long."""
        self._steps += 1
        print(f"\n{self._steps}. {purpose}", flush=True)
        started = time.monotonic()
        action()
        print(f"   took {time.monotonic() - started:.1f} s", flush=True)

    def say(self, message: str) -> None:
        """Indented lines below a step."""
        for line in message.rstrip("\n").splitlines():
            print(f"   {line}", flush=True)

    def gnt(self, *argv: str) -> str:
        """Show and run a command on the cluster's master.

        :raises CommandError: it failed; carries what it printed.
        """
        self.say(f"$ {text.shell_join(argv)}")
        cluster = vcluster.read(self.directory)
        node = vcluster.master(cluster) or cluster.nodes[0]
        done = process.run(
            [f"{self.directory}/bin/{argv[0]}", *argv[1:]],
            timeout_s=_STEP_S,
            env=vcluster.environment(cluster, node),
            log=False,
        )
        self.say(done.output)
        return done.stdout

    def console(self, node_name: str) -> str:
        """What the guest has printed on its serial console on a node, so far."""
        cluster = vcluster.read(self.directory)
        here = cluster.paths(cluster.node(node_name))
        try:
            return fs.read_file(f"{here.log_kvm_dir}/{GUEST}.console.log")
        except FileNotFoundError:
            return ""

    def hear(self, node_name: str, *, since: int = 0) -> Beat:
        """Wait until the guest has said more than ``since`` lines on a node.

        :raises OpExecError: it stays silent.
        """

        def attempt() -> Beat:
            beat = last_beat(self.console(node_name))
            if beat is None or beat.lines <= since:
                raise retry.Again
            return beat

        try:
            return retry.until(attempt, timeout_s=_STEP_S, delay=0.1)
        except errors.RetryTimeout as err:
            tail = self.console(node_name)[-2000:]
            raise errors.OpExecError(
                f"the guest says nothing on {node_name}. Its console so far:\n{tail}"
            ) from err


def _have_qemu(demo: Demo, wanted: str | None) -> bool:
    if wanted == "fake":
        return False
    if vcluster.qemu_path() is not None:
        return True
    top = paths.project_dir()
    if top is None:
        return False
    package = "qemu-system-x86"
    demo.say(f"QEMU is not installed; trying to install {package}")
    installer = process.run(
        [f"{top}/devel/install-packages", package], timeout_s=1800, check=False, log=False
    )
    demo.say(installer.output)
    return vcluster.qemu_path() is not None


def _build_image(demo: Demo) -> bool:
    top = paths.project_dir()
    if top is None:
        return False
    fs.make_dirs(f"{top}/build")
    done = process.run(
        [f"{top}/devel/tiny-image", "-o", f"{top}/build/tiny"],
        timeout_s=_STEP_S,
        check=False,
        log=False,
    )
    demo.say(done.output)
    return not done.failed


def _run(demo: Demo, hypervisor: str | None) -> None:
    with_qemu = with_image = False

    def look() -> None:
        nonlocal with_qemu, with_image
        with_qemu = _have_qemu(demo, hypervisor)
        with_image = _build_image(demo)
        if with_qemu and with_image:
            demo.say("guests run under QEMU")
        elif hypervisor == "fake":
            demo.say("as asked, the fake hypervisor plays the guests")
        else:
            what = "QEMU" if not with_qemu else "the kernel for the guest"
            demo.say(f"{what} cannot be had here: the fake hypervisor plays the guests instead")

    demo.step("Look what this machine has, and make the guest's boot image", look)
    real = with_qemu and with_image
    kind = "kvm" if real else "fake"

    def make_cluster() -> None:
        demo.say(f"$ tools/vcluster create -n 3 --hypervisor {kind} {demo.directory}")
        vcluster.create(demo.directory, 3, hypervisor=kind, tiny=with_image, say=demo.say)

    demo.step("Create a virtual cluster of three nodes", make_cluster)
    first, second, third = (node.name for node in vcluster.read(demo.directory).nodes)

    system = ("-o", "tiny") if with_image else ("--no-install",)
    add = ("gnt-instance", "add", "-t", "sharedfile", "-s", "32M", "-H", kind, *system)

    def add_guest() -> None:
        demo.gnt(*add, "-n", first, GUEST)
        if not with_image:
            # Without an installation the instance is made stopped.
            demo.gnt("gnt-instance", "start", GUEST)

    demo.step(
        f"Add the instance {GUEST}: a disk in shared storage, a small Linux on it, started",
        add_guest,
    )
    demo.step(
        f"Add a second one, {IDLE}: no disk, played by the fake hypervisor",
        lambda: _quiet(
            demo.gnt(
                "gnt-instance", "add", "-t", "diskless", "-H", "fake", "--no-install",
                "-n", third, IDLE,
            ),
            demo.gnt("gnt-instance", "start", IDLE),
        ),
    )  # fmt: skip
    if real:
        demo.step("Listen to the guest's serial console", lambda: _listen(demo, first))
        demo.step(
            f"Live-migrate the guest from {first} to {second}, and ask the guest about it",
            lambda: _migrate(demo, first, second),
        )
    else:
        demo.step(
            f"Live-migrate {GUEST} from {first} to {second}",
            lambda: _quiet(demo.gnt("gnt-instance", "migrate", "-f", "-n", second, GUEST)),
        )
    demo.step(
        f"Fail it over to {third}: stopped here, started there",
        lambda: _fail_over(demo, third, real),
    )
    demo.step("List everything", lambda: _list(demo))


def _quiet(*_outputs: str) -> None:
    """The outputs were shown already."""


def _listen(demo: Demo, node: str) -> None:
    demo.hear(node)
    demo.hear(node, since=1)
    lines = demo.console(node).replace("\r", "").splitlines()
    spoken = [line for line in lines if line.startswith("tiny: ")]
    demo.say("\n".join(spoken[-2:]))


def _migrate(demo: Demo, source: str, target: str) -> None:
    before = last_beat(demo.console(source))
    if before is None:
        raise errors.OpExecError(f"{GUEST} has not spoken on {source}")
    demo.gnt("gnt-instance", "migrate", "-f", "-n", target, GUEST)
    already = last_beat(demo.console(target))
    after = demo.hear(target, since=already.lines if already else 0)
    demo.say(verdict(before, after))


def _fail_over(demo: Demo, target: str, real: bool) -> None:
    demo.gnt("gnt-instance", "failover", "-f", "-n", target, GUEST)
    if real:
        beat = demo.hear(target)
        demo.say(f"it booted anew: boot {beat.boot}, uptime {beat.uptime_s} s")


def _list(demo: Demo) -> None:
    demo.gnt("gnt-node", "list")
    demo.gnt("gnt-instance", "list", "-o", "name,hypervisor,disk_template,pnode,status,oper_ram")
    demo.gnt("gnt-job", "list")
    demo.gnt("gnt-cluster", "verify")


def _closing(directory: str) -> str:
    tool = shlex.quote(f"{paths.project_dir() or ''}/tools/vcluster")
    place = shlex.quote(directory)
    return f"""
The cluster goes on running. To use it in this shell:

    eval "$({tool} env {place})"
    gnt-instance list
    gnt-instance console {GUEST}

To stop it and remove its directory:

    make demo-stop        (or: {tool} destroy {place})
"""


def stop(directory: str, *, quiet: bool = False) -> None:
    """End the demonstration; nothing to do is all right."""
    if os.path.isdir(directory):
        vcluster.destroy(directory)
        if not quiet:
            print(f"stopped, and {directory} is gone")
    elif not quiet:
        print(f"no demonstration runs in {directory}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run or stop the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description="Show a cluster on this machine.")
    parser.add_argument("--stop", action="store_true", help="end it and remove its directory")
    parser.add_argument("--quiet", action="store_true", help="with --stop: only errors")
    parser.add_argument("--hypervisor", choices=("kvm", "fake"), help="what plays the guests")
    parser.add_argument("directory")
    options = parser.parse_args(argv)
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    demo = Demo(options.directory)
    try:
        if options.stop:
            stop(demo.directory, quiet=options.quiet)
            return 0
        if os.path.lexists(demo.directory):
            print(f"demo: {demo.directory} exists. End it first: make demo-stop", file=sys.stderr)
            return 1
        started = time.monotonic()
        _run(demo, options.hypervisor)
        print(f"\nAll of it took {time.monotonic() - started:.0f} s.")
        print(_closing(demo.directory))
    except (errors.GenericError, OSError) as err:
        print(f"demo: {err}", file=sys.stderr)
        if os.path.isdir(demo.directory):
            print("demo: what there is goes on running; 'make demo-stop' ends it", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; 'make demo-stop' ends what there is", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
