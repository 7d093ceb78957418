"""How packages are replaced on a node: command lines of apt and dpkg, and what they print.

No daemon may start while packages change: a file which Debian's packages ask
(``/usr/sbin/policy-rc.d``) forbids it, and where systemd has booted the machine, our target is
masked until the next boot.

Source: apt-get(8), dpkg(1), debconf-set-selections(1), invoke-rc.d(8), systemctl(1).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence

from ganeti import errors
from ganeti.takeover.facts import PACKAGE, is_original
from ganeti.utils import fs, process

Runner = Callable[..., process.Completed]

_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_SUSPEND": "1",
}
_POLICY = "/usr/sbin/policy-rc.d"
_POLICY_TEXT = "#!/bin/sh\n# Written by ganeti-takeover, which removes it again.\nexit 101\n"
_KEPT_SUFFIX = ".before-ganeti-takeover"
_TARGET = "ganeti.target"
#: Of the original; systemd makes it of ``/etc/init.d/ganeti``.
_SERVICE = "ganeti.service"
_APT_S = 3600.0
_SYSTEMCTL_S = 120.0
_VERSIONED = re.compile(r"ganeti(-haskell|-htools)?-[0-9]+\.[0-9]+", re.ASCII)


class Packages:
    """The packages of this machine.

    :param root: directory which stands for ``/``; empty on a real machine.
    :param run: runs a program.
    """

    def __init__(self, root: str = "", run: Runner = process.run) -> None:
        self._root = root
        self._run = run

    @property
    def has_systemd(self) -> bool:
        """True if systemd has booted the machine."""
        return os.path.isdir(f"{self._root}/run/systemd/system")

    def _apt(self, *words: str, cwd: str | None = None) -> str:
        done = self._run(["apt-get", "-q", *words], timeout_s=_APT_S, env=_ENVIRONMENT, cwd=cwd)
        return done.stdout

    def require_removable(self, wanted: Sequence[str]) -> None:
        """Check that the installation would remove no packages but those which are replaced.

        :param wanted: packages, ``package=version``, or paths of package files.
        :raises OpPrereqError: it would remove others; names them.
        :raises CommandError: apt cannot install this.
        """
        removed = parse_removed(self._apt("-s", *_OPTIONS, "install", *wanted))
        others = [name for name in removed if name != PACKAGE and not is_original(name)]
        if others:
            raise errors.OpPrereqError(
                f"the installation would also remove {', '.join(others)}. Remove or replace them"
                " first, if this node does not need them",
                errors.ECODE_ENVIRON,
            )

    def download(self, wanted: Sequence[str]) -> None:
        """Download what the installation needs, so that it needs no network later.

        :raises CommandError: something cannot be downloaded.
        """
        self._apt("-y", "--download-only", *_OPTIONS, "install", *wanted)

    def keep(self, versions: Mapping[str, str], directory: str) -> list[str]:
        """Download packages in the versions which are installed, for the way back.

        :param directory: where the files come to.
        :returns: the names of those which can be had no more.
        :raises OSError: the directory cannot be made.
        """
        fs.make_dirs(directory, 0o700)
        missing = []
        for name, version in versions.items():
            if kept_file(directory, name, version) is None:
                try:
                    self._apt("download", f"{name}={version}", cwd=directory)
                except errors.CommandError:
                    missing.append(name)
        return missing

    def forbid_starts(self) -> None:
        """Let no package start daemons until :meth:`permit_starts`.

        :raises OSError: a file cannot be written.
        :raises CommandError: systemd refuses.
        """
        path = f"{self._root}{_POLICY}"
        if not self._is_own_policy(path):
            if os.path.lexists(path):
                os.replace(path, f"{path}{_KEPT_SUFFIX}")
            fs.write_file(path, _POLICY_TEXT, mode=0o755)
        if self.has_systemd:
            self._systemctl("mask", "--runtime", _TARGET)

    def permit_starts(self) -> None:
        """Undo :meth:`forbid_starts`, as often as wanted.

        :raises OSError: a file cannot be changed.
        :raises CommandError: systemd refuses.
        """
        path = f"{self._root}{_POLICY}"
        if self._is_own_policy(path):
            fs.remove_file(path)
        if os.path.lexists(f"{path}{_KEPT_SUFFIX}"):
            os.replace(f"{path}{_KEPT_SUFFIX}", path)
        if self.has_systemd:
            self._systemctl("unmask", "--runtime", _TARGET)
            self._systemctl("daemon-reload")

    def _is_own_policy(self, path: str) -> bool:
        return os.path.isfile(path) and fs.read_file(path) == _POLICY_TEXT

    def repair(self) -> None:
        """Complete what an interrupted installation has left.

        :raises CommandError: dpkg cannot do it.
        """
        self._run(["dpkg", "--configure", "-a"], timeout_s=_APT_S, env=_ENVIRONMENT)

    def install(self, wanted: Sequence[str], *, new_files: bool) -> None:
        """Install packages in place of the present ones; no daemon is started.

        :param new_files: also install settings of the package which were removed.
        :raises CommandError: the installation failed; :meth:`install` can be called again.
        """
        self.repair()
        files = ["-oDpkg::Options::=--force-confnew"]
        if new_files:
            files.append("-oDpkg::Options::=--force-confmiss")
        self._apt("-y", *files, *_OPTIONS, "install", *wanted)

    def answer_removal(self, names: Sequence[str], *, abort: bool) -> None:
        """Answer the question of the original's packages whether their removal is an accident.

        :param names: packages of the original.
        :raises CommandError: debconf refuses.
        """
        value = "true" if abort else "false"
        lines = [
            f"{name} {name}/abort-removal boolean {value}\n"
            for name in names
            if _VERSIONED.fullmatch(name)
        ]
        if lines:
            self._run(["debconf-set-selections"], timeout_s=60.0, stdin="".join(lines))

    def enable(self) -> None:
        """Let our daemons and timers start with the machine, where it has systemd.

        While the target was masked, the package could not do it.

        :raises CommandError: systemd refuses.
        """
        if self.has_systemd:
            self._systemctl("enable", _TARGET)

    def disable(self) -> None:
        """Undo :meth:`enable`, before our package is removed.

        :raises CommandError: systemd refuses.
        """
        if self.has_systemd:
            # A unit which is masked cannot be disabled.
            self._systemctl("unmask", "--runtime", _TARGET)
            if self._is_loaded(_TARGET):
                self._systemctl("disable", _TARGET)

    def start_target(self) -> None:
        """Start our daemons and timers, where the machine has systemd.

        :raises CommandError: they cannot be started.
        """
        if self.has_systemd:
            self._systemctl("start", _TARGET)

    def restart_original(self) -> bool:
        """Start the daemons of the original in their own service, where the machine has systemd.

        It counts as active as long as a guest runs which was started in it, so that a start would
        do nothing. Debian's packages restart it in the same way; guests go on.

        :returns: whether the machine has such a service.
        :raises CommandError: the service cannot be restarted.
        """
        if not self.has_systemd or not self._is_loaded(_SERVICE):
            return False
        self._systemctl("restart", _SERVICE)
        return True

    def _is_loaded(self, unit: str) -> bool:
        shown = self._systemctl("show", "--property=LoadState", unit)
        return "LoadState=loaded" in shown.split()

    def _systemctl(self, *words: str) -> str:
        return self._run(["systemctl", *words], timeout_s=_SYSTEMCTL_S).stdout


_OPTIONS = ("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")


def kept_file(directory: str, name: str, version: str) -> str | None:
    """Return the path of a package file which was kept; None if there is none."""
    escaped = version.replace(":", "%3a")
    found = glob.glob(f"{glob.escape(f'{directory}/{name}_{escaped}_')}*.deb")
    return found[0] if found else None


def parse_removed(text: str) -> list[str]:
    """Read the packages which a simulation of ``apt-get`` would remove."""
    return [
        words[1]
        for line in text.splitlines()
        if (words := line.split())[:1] == ["Remv"] and words[1:]
    ]
