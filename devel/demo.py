"""The demonstration (``make demo``): three nodes on this machine, and a live migration.

It uses the ``gnt-*`` commands, and prints for each step its purpose, the commands, their output,
and the time. The guest itself shows that it was not restarted: it prints its boot id and its uptime
every second, and both are compared before and after the migration.

Without QEMU the same is done with the ``fake`` hypervisor, and a message says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ganeti import errors, vcluster
from ganeti.objects import hvparams
from ganeti.platform import paths
from ganeti.utils import fs, process, retry, text

GUEST = "web1.example.com"
IDLE = "idle1.example.com"
# Limit for steps that hang; each step takes seconds.
_STEP_S = 600.0
# On a real machine it runs every five minutes; nobody waits so long for a demonstration.
_WATCH_EVERY_S = 10
_STARTUPS = f'"INSTANCE_STARTUP({GUEST})" in summary'
_DURATIONS = re.compile(r"\((\d+\.\d) s, the instance was paused for (\d+) ms\)")
_LINE = re.compile(r"^tiny: \S+ boot (\S+) uptime (\d+) s", re.MULTILINE)


class GuestLine(NamedTuple):
    """The last line of the guest on its console, and the number of its lines."""

    boot: str
    uptime_s: int
    lines: int


def last_line(console: str) -> GuestLine | None:
    """Find the last complete line of the guest; None if there is none yet."""
    complete = console[: console.rfind("\n") + 1].replace("\r", "")
    found = _LINE.findall(complete)
    return GuestLine(found[-1][0], int(found[-1][1]), len(found)) if found else None


def verdict(before: GuestLine, after: GuestLine) -> str:
    """Compare lines of the guest before and after a live migration; returns the conclusion.

    :raises OpExecError: the guest was restarted, or its uptime decreased.
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
        f"the boot id is the same ({after.boot}), and the uptime went from {before.uptime_s} s"
        f" before the migration to {after.uptime_s} s after it: the guest was not restarted"
    )


def pause(output: str, downtime_ms: int) -> str:
    """Explain how long the guest stood still during a migration, and why.

    :param output: of ``gnt-instance migrate``.
    :param downtime_ms: the longest pause which a transfer under KVM may add
        (``migration_downtime``).
    :returns: sentences; empty if the command reports no times.
    """
    found = _DURATIONS.search(output)
    if found is None:
        return ""
    transfer_ms, paused_ms = float(found[1]) * 1000, int(found[2])
    # The command rounds the duration of the transfer to tenths of a second.
    if paused_ms >= transfer_ms - 50:
        return (
            f"the guest stood still for {paused_ms} ms, the whole time of the transfer, because"
            " this machine has no KVM and QEMU emulates the processor: the emulation may miss a"
            " change to the memory while it copies the memory, so the guest is stopped before\n"
            "on a machine with KVM the guest runs during the transfer, which then stops it for at"
            f" most {downtime_ms} ms (hypervisor parameter migration_downtime)"
        )
    return (
        f"the guest stood still for {paused_ms} of {transfer_ms:.0f} ms: under KVM it runs during"
        f" the transfer, which may stop it for at most {downtime_ms} ms (hypervisor parameter"
        " migration_downtime)"
    )


class Demo:
    """One run of the demonstration in one directory."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        self._steps = 0

    def step(self, purpose: str, action: Callable[[], None]) -> None:
        """Print the purpose of a step, run it, and print its time."""
        self._steps += 1
        print(f"\n{self._steps}. {purpose}", flush=True)
        started = time.monotonic()
        action()
        print(f"   took {time.monotonic() - started:.1f} s", flush=True)

    def print_indented(self, message: str) -> None:
        """Print lines below the purpose of a step."""
        for line in message.rstrip("\n").splitlines():
            print(f"   {line}", flush=True)

    def gnt(self, *argv: str) -> str:
        """Print a command, run it on the master, and print its output.

        :raises CommandError: the command failed; the error has its output.
        """
        self.print_indented(f"$ {text.shell_join(argv)}")
        cluster = vcluster.read(self.directory)
        node = vcluster.master(cluster) or cluster.nodes[0]
        done = process.run(
            [f"{self.directory}/bin/{argv[0]}", *argv[1:]],
            timeout_s=_STEP_S,
            env=vcluster.environment(cluster, node),
            log=False,
        )
        self.print_indented(done.output)
        return done.stdout

    def console(self, node_name: str) -> str:
        """Read what the guest has printed on its serial console on a node."""
        cluster = vcluster.read(self.directory)
        here = cluster.paths(cluster.node(node_name))
        try:
            return fs.read_file(f"{here.log_kvm_dir}/{GUEST}.console.log")
        except FileNotFoundError:
            return ""

    def wait_for_line(self, node_name: str, *, since: int = 0) -> GuestLine:
        """Wait until the guest has printed more than ``since`` lines on a node.

        :raises OpExecError: the guest does not print any.
        """

        def attempt() -> GuestLine:
            line = last_line(self.console(node_name))
            if line is None or line.lines <= since:
                raise retry.Again
            return line

        try:
            return retry.until(attempt, timeout_s=_STEP_S, delay=0.1)
        except errors.RetryTimeout as err:
            tail = self.console(node_name)[-2000:]
            raise errors.OpExecError(
                f"guest {GUEST} prints nothing on {node_name}. Its console so far:\n{tail}"
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
    demo.print_indented(f"QEMU is not installed; trying to install the package {package}")
    installer = process.run(
        [f"{top}/devel/install-packages", package], timeout_s=1800, check=False, log=False
    )
    demo.print_indented(installer.output)
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
    demo.print_indented(done.output)
    return not done.failed


def _run(demo: Demo, hypervisor: str | None) -> bool:
    """Show everything; returns whether the guest ran under QEMU and has a console."""
    with_image = False

    def prepare() -> None:
        nonlocal with_image
        with_qemu = _have_qemu(demo, hypervisor)
        # Only a guest under QEMU boots the image, for which a kernel is downloaded.
        with_image = with_qemu and _build_image(demo)
        demo.print_indented(_how_guests_run(hypervisor, with_qemu, with_image))

    purpose = "Look for QEMU, and build the boot image of the guest"
    demo.step("Choose the hypervisor" if hypervisor == "fake" else purpose, prepare)
    kind, content = ("kvm", "a small Linux on a disk") if with_image else ("fake", "a disk")

    def make_cluster() -> None:
        demo.print_indented(
            f"$ tools/vcluster create -n 3 --hypervisor {kind}"
            f" --watch-every {_WATCH_EVERY_S} {demo.directory}"
        )
        plan = vcluster.Plan(3, hypervisor=kind, tiny=with_image, watch_every_s=_WATCH_EVERY_S)
        vcluster.create(demo.directory, plan, say=demo.print_indented)

    demo.step("Create a virtual cluster of three nodes", make_cluster)
    first, second, third = (node.name for node in vcluster.read(demo.directory).nodes)
    demo.step(
        f"Add the instance {GUEST} with {content} in shared storage, and start it",
        lambda: _add_guest(demo, first, kind, with_image),
    )
    demo.step(
        f"Add the instance {IDLE}, without a disk, under the fake hypervisor",
        lambda: _add_idle(demo, third),
    )
    if with_image:
        demo.step("Read the serial console of the guest", lambda: _listen(demo, first))
        demo.step(
            f"Live-migrate {GUEST} from {first} to {second}, and compare its console",
            lambda: _migrate(demo, first, second),
        )
    else:
        demo.step(
            f"Live-migrate {GUEST} from {first} to {second}",
            lambda: _quiet(demo.gnt("gnt-instance", "migrate", "-f", "-n", second, GUEST)),
        )
    demo.step(
        f"Fail {GUEST} over to {third}: stop it, and start it there",
        lambda: _fail_over(demo, third, with_image),
    )
    demo.step(
        f"Kill the process of {GUEST}, and wait until the watcher has started it again",
        lambda: _kill(demo, third, with_image),
    )
    demo.step("List everything", lambda: _list(demo))
    return with_image


def _how_guests_run(hypervisor: str | None, with_qemu: bool, with_image: bool) -> str:
    if with_qemu and with_image:
        return "the guests run under QEMU"
    if hypervisor == "fake":
        return "the fake hypervisor simulates the guests, because of --hypervisor fake"
    what = "QEMU" if not with_qemu else "the boot image of the guest"
    return f"{what} is not available; the fake hypervisor simulates the guests instead"


def _add_guest(demo: Demo, node: str, hypervisor: str, with_image: bool) -> None:
    system = ("-o", "tiny") if with_image else ("--no-install",)
    demo.gnt(
        "gnt-instance", "add", "-t", "sharedfile", "-s", "32M", "-H", hypervisor, *system,
        "-n", node, GUEST,
    )  # fmt: skip
    if not with_image:
        # Without an installation the instance is not started.
        demo.gnt("gnt-instance", "start", GUEST)


def _add_idle(demo: Demo, node: str) -> None:
    demo.gnt(
        "gnt-instance", "add", "-t", "diskless", "-H", "fake", "--no-install", "-n", node, IDLE
    )
    demo.gnt("gnt-instance", "start", IDLE)


def _quiet(*_outputs: str) -> None:
    """Ignore outputs which were printed already."""


def _listen(demo: Demo, node: str) -> None:
    demo.wait_for_line(node)
    demo.wait_for_line(node, since=1)
    lines = demo.console(node).replace("\r", "").splitlines()
    own = [line for line in lines if line.startswith("tiny: ")]
    demo.print_indented("\n".join(own[-2:]))


def _migrate(demo: Demo, source: str, target: str) -> None:
    before = last_line(demo.console(source))
    if before is None:
        raise errors.OpExecError(f"guest {GUEST} has printed nothing on {source}")
    output = demo.gnt("gnt-instance", "migrate", "-f", "-n", target, GUEST)
    already = last_line(demo.console(target))
    after = demo.wait_for_line(target, since=already.lines if already else 0)
    demo.print_indented(verdict(before, after))
    demo.print_indented(pause(output, hvparams.defaults("kvm")["migration_downtime"]))


def _fail_over(demo: Demo, target: str, real: bool) -> None:
    demo.gnt("gnt-instance", "failover", "-f", "-n", target, GUEST)
    if real:
        line = demo.wait_for_line(target)
        demo.print_indented(f"it booted again: boot {line.boot}, uptime {line.uptime_s} s")


def _kill(demo: Demo, node: str, real: bool) -> None:
    cluster = vcluster.read(demo.directory)
    here = cluster.paths(cluster.node(node))
    before = last_line(demo.console(node))
    if real:
        pid = int(fs.read_file(f"{here.kvm_root}/pid/{GUEST}"))
        demo.print_indented(f"$ kill -KILL {pid}")
        os.kill(pid, signal.SIGKILL)
    else:
        demo.print_indented(f"$ rm {here.fake_root}/{GUEST}")
        fs.remove_file(f"{here.fake_root}/{GUEST}")
    demo.print_indented(f"the watcher runs every {_WATCH_EVERY_S} seconds")

    def runs_again() -> None:
        line = last_line(demo.console(node)) if real else None
        started = line is not None and (before is None or line.boot != before.boot)
        if not (started if real else os.path.exists(f"{here.fake_root}/{GUEST}")):
            raise retry.Again
        if line is not None:
            demo.print_indented(f"it booted again: boot {line.boot}, uptime {line.uptime_s} s")

    retry.until(runs_again, timeout_s=_STEP_S, delay=0.1)
    # The watcher waits for the end of the job, and writes it into its log.
    demo.gnt("gnt-job", "list", "--no-headers", "-o", "id,status,summary", "-F", _STARTUPS)


def _list(demo: Demo) -> None:
    demo.gnt("gnt-node", "list")
    demo.gnt("gnt-instance", "list", "-o", "name,hypervisor,disk_template,pnode,status,oper_ram")
    demo.gnt("gnt-job", "list")
    demo.gnt("gnt-cluster", "verify")


def _stop_command(directory: str) -> str:
    """Return the command of make which stops the demonstration in a directory."""
    usual = os.path.realpath(f"{paths.project_dir() or ''}/build/demo")
    return "make demo-stop" + ("" if directory == usual else f" DEMO={shlex.quote(directory)}")


def _closing(directory: str, with_console: bool) -> str:
    """Return the last lines: how to use the cluster, and how to stop it.

    :param with_console: the guest has a console; a simulated one has none.
    """
    tool = shlex.quote(f"{paths.project_dir() or ''}/tools/vcluster")
    place = shlex.quote(directory)
    console = f"\n    gnt-instance console {GUEST}" if with_console else ""
    return f"""
The cluster continues to run. To use it in this shell:

    eval "$({tool} env {place})"
    gnt-instance list{console}

To stop it and remove its directory:

    {_stop_command(directory)}        (or: {tool} destroy {place})
"""


def stop(directory: str, *, quiet: bool = False) -> None:
    """Stop the demonstration and remove its directory, if it exists.

    :param quiet: print nothing.
    """
    if os.path.isdir(directory):
        vcluster.destroy(directory)
        if not quiet:
            print(f"stopped the demonstration and removed {directory}")
    elif not quiet:
        print(f"there is no demonstration in {directory}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run or stop the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Show a cluster with a live migration on this machine."
    )
    parser.add_argument(
        "--stop", action="store_true", help="stop the demonstration, and remove its directory"
    )
    parser.add_argument("--quiet", action="store_true", help="with --stop, print errors only")
    parser.add_argument(
        "--hypervisor",
        choices=("kvm", "fake"),
        help="hypervisor of the guests (default: kvm if QEMU is available)",
    )
    parser.add_argument("directory", help="directory of the virtual cluster")
    options = parser.parse_args(argv)
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    demo = Demo(options.directory)
    stop_command = _stop_command(demo.directory)
    try:
        if options.stop:
            stop(demo.directory, quiet=options.quiet)
            return 0
        if os.path.lexists(demo.directory):
            print(
                f"demo: {demo.directory} exists. '{stop_command}' removes it.",
                file=sys.stderr,
            )
            return 1
        started = time.monotonic()
        with_console = _run(demo, options.hypervisor)
        print(f"\nThe demonstration took {time.monotonic() - started:.0f} s.")
        print(_closing(demo.directory, with_console))
    except (errors.GenericError, OSError) as err:
        print(f"demo: {err}", file=sys.stderr)
        if os.path.isdir(demo.directory):
            print(f"demo: the cluster still exists; '{stop_command}' removes it", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"demo: interrupted; '{stop_command}' removes the cluster", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
