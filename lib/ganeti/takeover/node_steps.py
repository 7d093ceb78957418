"""The steps of a takeover which change one node. This module runs on that node, as root.

The master starts it over SSH: ``python3 -m ganeti.takeover.node_steps STEP PARAMETERS`` with the
copy of the package in ``/var/lib/ganeti-takeover/program``, which stays while packages are
replaced. The parameters and the answer are JSON objects. Each step can be repeated, also after an
interruption anywhere in it; two of them never run at the same time.
"""

from __future__ import annotations

import glob
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.config import upgrade
from ganeti.configfile import files as configfile
from ganeti.constants import cluster as const
from ganeti.hypervisor.xen import parse, vif
from ganeti.takeover import archive, defaults, facts
from ganeti.takeover.packages import Packages, kept_file
from ganeti.takeover.state import BACK, RUN
from ganeti.tools import cfgupgrade
from ganeti.utils import filelock, fs, process
from ganeti.wire import json

Answer = dict[str, Any]

#: Beginning of the line with the answer; programs which run here may print other lines.
ANSWER = "ganeti-takeover-answer: "
_DATA_DIR = "/var/lib/ganeti"
_DEFAULTS = "/etc/default/ganeti"
_CRON = "/etc/cron.d/ganeti"
_PID_FILES = "/var/run/ganeti/ganeti-*.pid"
_LIB = "/usr/lib/ganeti"
_XEN = "/proc/xen/capabilities"
_XEN_RECORDS = "/var/run/ganeti/xen-hypervisor/conf/*.json"
_NIC_PROGRAM = f"{_LIB}/tools/vif-ganeti"
_NIC_PROGRAM_TEXT = f"""#!/bin/sh
# Written by ganeti-takeover(8), for guests of Xen which ganeti-py has started.
PYTHONPATH={facts.PROGRAM_DIR} exec python3 -P -m {vif.__name__} "$@"
"""
_ORIGINAL = f"{facts.STATE_DIR}/original"
_WRITTEN = "default-written"
# The time of this file is that at which the packages were replaced.
_INSTALLED = f"{facts.STATE_DIR}/installed"
#: Files of ours which the original does not have, in ``/var/lib/ganeti``; patterns.
OWN_FILES = (
    "config.data.history",
    "config.data.journal",
    "lvm_state",
    "master_state",
    "queue/journal-*",
    "renewal",
    "server-ca.pem",
    "watchdog-promise",
    "witness-auth",
    "witness-ca.pem",
)
# Maximum number of lines of the output of a program in an error.
_LINES = 6
_STOP_S = 90.0
_KILL_S = 10.0
_DAEMONS_S = 300.0
_XL_S = 120.0
_OWNERS_S = 3600.0


class Node:
    """This machine, as the steps see it.

    :param root: directory which stands for ``/``; empty on a real machine.
    :param run: runs a program.
    :param pause: waits for seconds.
    :param alive: whether a process runs.
    :param kill: sends a signal to a process.
    """

    def __init__(
        self,
        root: str = "",
        *,
        run: Callable[..., process.Completed] = process.run,
        pause: Callable[[float], object] = time.sleep,
        alive: Callable[[int], bool] = process.is_alive,
        kill: Callable[[int, int], object] = os.kill,
    ) -> None:
        self._root = root
        self._run = run
        self._pause = pause
        self._alive = alive
        self._kill = kill
        self.packages = Packages(root, run)

    def _archive_dir(self, number: int, direction: str) -> str:
        return f"{self._root}{facts.STATE_DIR}/{direction}-{number}"

    def _wanted(self, package: str, original: dict[str, str], direction: str) -> list[str]:
        """Return what apt shall install: a file, or packages in certain versions."""
        if direction == RUN:
            return [package or facts.PACKAGE]
        kept = {
            name: kept_file(f"{self._root}{_ORIGINAL}", name, version)
            for name, version in original.items()
        }
        # Files of some packages and versions of others would be two sources of one set.
        if all(kept.values()):
            return [path for path in kept.values() if path]
        return [f"{name}={version}" for name, version in original.items()]

    def prepare(
        self, package: str, digest: str, original: dict[str, str], direction: str
    ) -> Answer:
        """Check that the packages can be replaced, and download them; nothing is installed.

        :param package: path of our package; empty if apt has it.
        :param digest: SHA-256 of this file.
        :returns: ``missing``: packages of the original which can be had no more.
        :raises OpPrereqError: the file is another one, too much would be removed, or on the way
            back guests would not be found.
        :raises CommandError: apt cannot do it.
        """
        if package and archive.digest(package) != digest:
            raise errors.OpPrereqError(f"{package} was copied incompletely", errors.ECODE_ENVIRON)
        wanted = self._wanted(package, original, direction)
        if direction == BACK:
            self._require_findable_guests(original)
            # The takeover may have been broken off while packages were replaced.
            self.packages.forbid_starts()
            self.packages.repair()
        self.packages.require_removable(wanted)
        self.packages.download(wanted)
        missing: list[str] = []
        if direction == RUN:
            missing = self.packages.keep(original, f"{self._root}{_ORIGINAL}")
        return {"missing": missing}

    def _require_findable_guests(self, original: dict[str, str]) -> None:
        if not any(version.startswith("3.0") for version in original.values()):
            return
        strange = archive.guests_without_plain_name(self._root)
        if strange:
            raise errors.OpPrereqError(
                "the original would not find these guests, because an earlier release of ours has"
                f" started them: {', '.join(strange)}. Restart or migrate them",
                errors.ECODE_STATE,
            )

    def stop(self) -> Answer:
        """Stop all daemons of the cluster on this node; guests go on.

        :raises OpExecError: a daemon does not end.
        """
        program = f"{self._root}{_LIB}/daemon-util"
        if os.path.exists(program):
            # The original reports a failure when a daemon was not started.
            self._run([program, "stop-all"], timeout_s=_DAEMONS_S, check=False)
        for number, limit_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _KILL_S)):
            left = self.daemons()
            for pid in left.values():
                self._signal(pid, number)
            waited = 0.0
            while waited < limit_s and any(self._alive(pid) for pid in left.values()):
                self._pause(0.2)
                waited += 0.2
        left = self.daemons()
        if left:
            raise errors.OpExecError(f"these daemons do not end: {', '.join(sorted(left))}")
        return {}

    def _signal(self, pid: int, number: int) -> None:
        try:
            self._kill(pid, number)
        except ProcessLookupError:
            pass

    def daemons(self) -> dict[str, int]:
        """Return the daemons which run: name -> process. A pid file may be left from a dead one."""
        found = {}
        for path in glob.glob(f"{self._root}{_PID_FILES}"):
            name = os.path.basename(path).removesuffix(".pid")
            text = fs.read_file(path).strip()
            if not text.isdecimal():
                continue
            try:
                words = fs.read_bytes(f"{self._root}/proc/{text}/cmdline").split(b"\0")
            except OSError:
                continue
            # The daemons in Python have the name behind that of the interpreter.
            if name in {os.path.basename(word).decode("utf-8", "replace") for word in words[:4]}:
                found[name] = int(text)
        return found

    def archive(self, number: int, direction: str) -> Answer:
        """Archive the files which are changed later.

        :raises OSError: the archive cannot be written.
        :raises CommandError, OpExecError: Xen does not answer.
        """
        directory = self._archive_dir(number, direction)
        archive.make(directory, facts.ARCHIVED, self._domains(), root=self._root)
        return {}

    def _domains(self) -> dict[str, str]:
        """Return the guests of Xen on this node: name -> UUID of the domain.

        :raises CommandError: Xen does not answer.
        :raises OpExecError: Xen does not answer as expected.
        """
        capabilities = f"{self._root}{_XEN}"
        if not os.path.exists(capabilities) or "control_d" not in fs.read_file(capabilities):
            return {}
        done = self._run(["xl", "list", "--long"], timeout_s=_XL_S)
        try:
            found = parse.parse_long(done.stdout)
        except errors.ParseError as err:
            raise errors.OpExecError(f"cannot read the output of 'xl list --long': {err}") from err
        return {one.name: one.uuid for one in found.values() if one.id}

    def install(self, package: str, original: dict[str, str], direction: str) -> Answer:
        """Replace the packages; no daemon starts before :meth:`start`.

        :raises CommandError: apt failed; the step can be repeated.
        :raises OpExecError: a daemon which runs again does not end.
        :raises OSError: a file cannot be written.
        """
        if direction == BACK:
            self.packages.disable()
        self.packages.forbid_starts()
        # After an interruption the machine may have been restarted, and its daemons with it.
        self.stop()
        wanted = self._wanted(package, original, direction)
        if direction == RUN:
            self.packages.answer_removal(list(original), abort=False)
        self.packages.install(wanted, new_files=direction == BACK)
        if direction == BACK:
            self.packages.answer_removal(list(original), abort=True)
            self._keep_program_of_nics()
        fs.make_dirs(f"{self._root}{facts.STATE_DIR}", 0o700)
        fs.write_file(f"{self._root}{_INSTALLED}", "", mode=0o600)
        return {}

    def _keep_program_of_nics(self) -> None:
        """Write the program for the NICs of guests of Xen, which our package has taken away.

        Xen runs it for each guest which our daemons have started, also when the guest restarts
        itself; without it, such a guest would not come back. Our package replaces it later.

        :raises OSError: it cannot be written.
        """
        if glob.glob(f"{self._root}{_XEN_RECORDS}"):
            fs.make_dirs(f"{self._root}{os.path.dirname(_NIC_PROGRAM)}", 0o755)
            fs.write_file(f"{self._root}{_NIC_PROGRAM}", _NIC_PROGRAM_TEXT, mode=0o755)

    def settings(
        self, number: int, direction: str, separate_users: bool, taken_over: int
    ) -> Answer:
        """Carry the settings in ``/etc`` over, or put the former ones back.

        :param taken_over: number of the takeover whose archive has the settings of the original.
        :returns: ``lost``: what has no effect any more.
        :raises ConfigurationError: the archive is not complete.
        :raises OSError: a file cannot be read or written.
        """
        directory = self._archive_dir(taken_over, RUN)
        if direction == BACK and not os.path.exists(f"{directory}/{_WRITTEN}"):
            # The takeover did not come so far on this node.
            return {"lost": []}
        original = archive.read_member(directory, _DEFAULTS)
        path = f"{self._root}{_DEFAULTS}"
        text = (original or b"").decode("utf-8", "replace")
        if direction == RUN:
            ours = fs.read_file(path) if os.path.exists(path) else ""
            new = defaults.merged(text, ours, separate_users=separate_users)
            fs.write_file(f"{directory}/{_WRITTEN}", new, mode=0o600)
            fs.write_file(path, new, mode=0o644)
            if self.packages.has_systemd:
                # A timer of systemd starts the watcher and the cleaner now.
                fs.remove_file(f"{self._root}{_CRON}")
            return {"lost": defaults.left_out(text)}
        present = archive.read_member(self._archive_dir(number, BACK), _DEFAULTS) or b""
        written = fs.read_file(f"{directory}/{_WRITTEN}")
        for name in (_DEFAULTS, _CRON):
            content = archive.read_member(directory, name)
            if content is not None:
                fs.write_file(f"{self._root}{name}", content, mode=0o644)
        return {"lost": defaults.changed_since(written, present.decode("utf-8", "replace"))}

    def upgrade(self) -> Answer:
        """Convert the configuration to our version, with ``cfgupgrade``; on the master only.

        :raises CommandError: it cannot be converted; nothing was written.
        """
        # The check has shown contradictions, which are there in any case.
        self._run([f"{self._root}{_LIB}/cfgupgrade", "-f", "--no-verify"], timeout_s=None)
        return {}

    def downgrade(self, config_version: int) -> Answer:
        """Convert the configuration to the version of the original; on the master only.

        :raises OpExecError: it cannot be converted; nothing was written.
        """
        path = f"{self._root}{_DATA_DIR}/config.data"
        if upgrade.version_of(json.loads(configfile.read(path))) < const.CONFIG_VERSION:
            # A step before was repeated, or the takeover did not come so far.
            return {}
        text = upgrade.version_text(config_version)
        code = cfgupgrade.main(
            [
                "--downgrade",
                f"--to={text}",
                "-f",
                "--no-verify",
                "--ignore-hostname",
                f"--path={self._root}{_DATA_DIR}",
            ]
        )
        if code:
            raise errors.OpExecError(f"the configuration cannot be converted to version {text}")
        return {}

    def owners(self, direction: str, taken_over: int) -> Answer:
        """Set the owners and modes of all files as the daemons need them.

        On the way back, files which the original does not have are removed; they are in the
        archive.

        :raises CommandError: the program for it failed.
        :raises ConfigurationError: the archive is not complete.
        """
        # Without an archive the takeover did not come so far on this node.
        restore = direction == BACK and os.path.exists(self._archive_dir(taken_over, RUN))
        if restore:
            self._remove_own_files(taken_over)
        self._run([f"{self._root}{_LIB}/ensure-dirs", "--full-run"], timeout_s=_OWNERS_S)
        if restore:
            before = archive.read_before(self._archive_dir(taken_over, RUN))
            archive.restore_owners(before["owners"], self._root)
        return {}

    def _remove_own_files(self, taken_over: int) -> None:
        known = archive.names(self._archive_dir(taken_over, RUN))
        data_dir = f"{self._root}{_DATA_DIR}"
        for pattern in (*OWN_FILES, "ssconf_*"):
            for path in glob.glob(f"{data_dir}/{pattern}"):
                if path.removeprefix(f"{self._root}/") in known:
                    continue
                if os.path.isdir(path):
                    for inner in glob.glob(f"{glob.escape(path)}/*"):
                        fs.remove_file(inner)
                    os.rmdir(path)
                else:
                    fs.remove_file(path)

    def start(self, direction: str) -> Answer:
        """Start the daemons which belong to this node; those which run are replaced.

        :raises OpExecError: a daemon does not start, or one which runs does not end.
        """
        # The machine may have started again since "stop", and its daemons with it.
        self.stop()
        self.packages.permit_starts()
        if direction == RUN:
            self.packages.enable()
            self.packages.start_target()
        said = ""
        if direction == RUN or not self.packages.restart_original():
            done = self._run(
                [f"{self._root}{_LIB}/daemon-util", "start-all"], timeout_s=_DAEMONS_S, check=False
            )
            # The original fails where daemons of the master refuse to start on another node.
            said = done.output.strip() if done.failed else ""
        if "ganeti-noded" not in self.daemons():
            raise errors.OpExecError(f"the node daemon does not start: {said}")
        return {"failed": said}

    def compare(self, number: int, direction: str) -> Answer:
        """Compare what must not change with what the archive says.

        :returns: ``changed``: a text for each difference; ``guests`` and ``domains``: how many
            guests of KVM and of Xen run.
        :raises ConfigurationError: the archive is not complete.
        :raises CommandError, OpExecError: Xen does not answer.
        """
        before = archive.read_before(self._archive_dir(number, direction))
        after = archive.observe(self._domains(), self._root)
        return {
            "changed": [*archive.differences(before, after), *self._older_daemons()],
            "guests": len(after["guests"]),
            "domains": len(after["domains"]),
            "compared": len(before["kept"]),
        }

    def _older_daemons(self) -> list[str]:
        """Return a text for each daemon which runs since before the packages were replaced."""
        try:
            replaced = os.stat(f"{self._root}{_INSTALLED}").st_mtime_ns
        except FileNotFoundError:
            return []
        return [
            f"{name} runs since before the packages were replaced; restart it with"
            f" 'daemon-util restart {name}'"
            for name in sorted(self.daemons())
            if os.stat(f"{self._root}{os.path.dirname(_PID_FILES)}/{name}.pid").st_mtime_ns
            < replaced
        ]


STEPS = (
    "prepare", "stop", "archive", "install", "settings", "upgrade", "downgrade", "owners", "start",
    "compare",
)  # fmt: skip


def main(argv: Sequence[str] | None = None, node: Node | None = None) -> int:
    """Carry out one step, and print the answer in its own line.

    :returns: 0; 1 if the step failed, with the reason on standard error.
    """
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2 or words[0] not in STEPS:
        print(f"usage: ganeti.takeover.node_steps {'|'.join(STEPS)} PARAMETERS", file=sys.stderr)
        return 2
    try:
        fs.make_dirs(facts.STATE_DIR, 0o700)
        with filelock.FileLock(f"{facts.STATE_DIR}/lock") as lock:
            # A step which a lost connection has left behind ends first.
            lock.acquire()
            answer = getattr(node or Node(), words[0])(**json.loads(words[1]))
    except (errors.GenericError, OSError) as err:
        print(_reason(err), file=sys.stderr)
        return 1
    print(f"{ANSWER}{json.dumps(answer)}")
    return 0


def _reason(err: errors.GenericError | OSError) -> str:
    if isinstance(err, errors.OpPrereqError):
        return str(err.args[0])
    if isinstance(err, errors.CommandError) and err.output.strip():
        last = err.output.strip().splitlines()[-_LINES:]
        command = process.show(err.argv)
        return "\n    ".join([f"'{command}' exited with code {err.exit_code}", *last])
    return str(err)


if __name__ == "__main__":
    sys.exit(main())
