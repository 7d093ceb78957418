"""The program ``cfgupgrade``: converts a configuration to this version, or to the version before.

The master daemon upgrades a configuration itself when it starts. This program does the same before
that, and shows with ``--dry-run`` what will happen. It also converts the other files in which
versions differ: the list of directories for disks, and the file with the users of the REST
interface. ``--downgrade`` converts back to the version before.

The former file remains beside the new one as ``config.data.backup-<version>``. The program writes
nothing before it has checked everything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cli import terminal
from ganeti.config import releases, ssconf, upgrade
from ganeti.constants import cli as exit_codes
from ganeti.constants import cluster as const
from ganeti.objects import disk_templates
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.tools.config_files import say
from ganeti.utils import fs, log


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    here = paths.current()
    parser = argparse.ArgumentParser(
        prog="cfgupgrade", description="Upgrade the configuration of a cluster."
    )
    parser.add_argument(
        "--dry-run", action="store_true", dest="dry_run", help="check everything and write nothing"
    )
    parser.add_argument("-f", "--force", action="store_true", help="do not ask for confirmation")
    parser.add_argument("-d", "--debug", action="count", default=0, help="print debug messages")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print the path of each file that is written"
    )
    parser.add_argument(
        "--ignore-hostname", action="store_true", help="do not check that this node is the master"
    )
    parser.add_argument(
        "--path",
        dest="data_dir",
        default=here.data_dir,
        metavar="DIR",
        help="directory of the configuration (default: %(default)s)",
    )
    parser.add_argument(
        "--confdir",
        dest="conf_dir",
        default=here.conf_dir,
        metavar="DIR",
        help="directory of the files which the administrator writes (default: %(default)s)",
    )
    parser.add_argument(
        "--no-verify",
        action="store_true",
        dest="no_verify",
        help="do not look for contradictions in the result",
    )
    parser.add_argument(
        "--downgrade",
        action="store_true",
        help="convert to a version of the original Ganeti; --to says to which",
    )
    versions = {upgrade.version_text(one): one for one in upgrade.DOWNGRADE_VERSIONS}
    parser.add_argument(
        "--to",
        choices=versions,
        default=upgrade.version_text(upgrade.DOWNGRADE_VERSION),
        metavar="VERSION",
        help="with --downgrade: %(choices)s (default: %(default)s)",
    )
    parser.add_argument(
        "--facts",
        action="store_true",
        help="print what this release can read, as JSON, and do nothing else",
    )
    parser.add_argument(
        "--back-to",
        metavar="FILE",
        help="convert to the form of an earlier release; the file has what its --facts prints",
    )
    return parser


class _Run:
    """One upgrade or downgrade."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._path = f"{options.data_dir}/config.data"

    def execute(self) -> int:
        """Check the configuration, ask for confirmation, and write the files.

        :returns: the exit code.
        :raises ConfigurationError: the configuration cannot be converted; nothing was written.
        :raises OSError: a file could not be written; the files before it were written.
        """
        options = self._options
        if not options.ignore_hostname:
            config_files.refuse_elsewhere(options.data_dir)
        config_files.refuse_while_master_runs(options.data_dir)
        raw = config_files.read_raw(self._path)
        version = upgrade.version_of(raw)
        new = self._converted(raw)
        old_text, new_text = map(upgrade.version_text, (version, new["version"]))
        if new != raw:
            config_files.refuse_unfinished_jobs(options.data_dir)
        if options.downgrade:
            present = upgrade.upgrade(raw)
            texts = [one.text for one in upgrade.own_features(present)]
            texts += [one.text for one in upgrade.newer_in(present, new["version"])]
            for text in texts:
                say(
                    f"Warning: the original Ganeti {new_text} does not have this, so it is lost:"
                    f" {text}"
                )
        if new == raw:
            say(f"{self._path} has version {old_text} already.")
        elif not self._agreed(f"Convert {self._path} from version {old_text} to {new_text}?"):
            say("Nothing was changed.")
            return exit_codes.EXIT_CONFIRMATION
        problems = self._problems(new)
        if new != raw:
            self._write(raw, new, old_text)
        if not options.downgrade and not options.back_to:
            self._storage_paths(new)
            self._rapi_users()
        if options.dry_run:
            say("Dry run: nothing was written.")
        elif new != raw:
            say(f"The configuration has version {new_text} now.")
        for problem in problems:
            say(f"Warning: {problem}")
        return exit_codes.EXIT_FAILURE if problems else exit_codes.EXIT_SUCCESS

    def _converted(self, raw: dict[str, Any]) -> dict[str, Any]:
        if self._options.back_to:
            config_files.problems_of(upgrade.upgrade(raw))
            other = releases.parse_facts(fs.read_file(self._options.back_to))
            return releases.convert_back(upgrade.upgrade(raw), other)
        if not self._options.downgrade:
            return upgrade.upgrade(raw)
        # A configuration which this version cannot read is not downgraded.
        config_files.problems_of(upgrade.upgrade(raw))
        wanted = {upgrade.version_text(one): one for one in upgrade.DOWNGRADE_VERSIONS}
        return upgrade.downgrade(raw, wanted[self._options.to])

    def _problems(self, new: dict[str, Any]) -> list[str]:
        """Check that the result can be read, and return its contradictions.

        :raises ConfigurationError: the result cannot be read.
        """
        again = upgrade.upgrade(new)
        data, problems = config_files.problems_of(again)
        if data.cluster.master_node not in data.nodes:
            raise errors.ConfigurationError(
                f"cluster/master_node: node {data.cluster.master_node} is not in the configuration",
                "cluster/master_node",
            )
        ssconf.values(data)
        return [] if self._options.no_verify else problems

    def _agreed(self, question: str) -> bool:
        if self._options.force or self._options.dry_run:
            return True
        return terminal.confirm(question)

    def _note(self, text: str) -> None:
        if self._options.verbose or self._options.dry_run:
            say(text)

    def _write(self, raw: dict[str, Any], new: dict[str, Any], label: str) -> None:
        self._note(f"Writing {self._path}, and {self._path}.backup-{label}")
        if not self._options.dry_run:
            config_files.backup(self._path, label)
            config_files.write(self._path, new)

    def _storage_paths(self, new: dict[str, Any]) -> None:
        """Write the list of directories for disks in files, which exists since version 2.7."""
        path = f"{self._options.conf_dir}/file-storage-paths"
        cluster = new["cluster"]
        wanted = [
            cluster.get(key)
            for template, key in disk_templates.directory_fields().items()
            if template in cluster["enabled_disk_templates"] and cluster.get(key)
        ]
        if os.path.exists(path) or not wanted:
            return
        self._note(f"Writing {path}")
        if not self._options.dry_run:
            fs.make_dirs(self._options.conf_dir)
            fs.write_file(
                path,
                "# Written by cfgupgrade: directories which may contain disks of instances.\n"
                + "".join(f"{directory}\n" for directory in wanted),
                mode=0o600,
            )

    def _rapi_users(self) -> None:
        """Move the file of the users of the REST interface to its own directory."""
        old = f"{self._options.data_dir}/rapi_users"
        new = f"{self._options.data_dir}/rapi/users"
        if not os.path.isfile(old) or os.path.islink(old) or os.path.exists(new):
            return
        self._note(f"Moving {old} to {new}")
        if not self._options.dry_run:
            fs.make_dirs(os.path.dirname(new), 0o750)
            os.rename(old, new)
            os.symlink(new, old)
            fs.flush_dir(os.path.dirname(old))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    :returns: the exit code: 1 after an error or for contradictions, 13 if the user did not confirm.
    """
    options = make_parser().parse_args(argv)
    if options.facts:
        print(releases.facts_text(releases.own_facts()))
        return exit_codes.EXIT_SUCCESS
    log.setup("cfgupgrade", debug=options.debug, stderr=bool(options.debug))
    try:
        return _Run(options).execute()
    except errors.ConfigVersionMismatch as err:
        wanted, found = err.args
        say(
            f"cfgupgrade: the file has version {upgrade.version_text(found)}; versions "
            f"{upgrade.version_text(upgrade.VERSIONS[0])} to "
            f"{upgrade.version_text(const.CONFIG_VERSION)} can be converted to "
            f"{upgrade.version_text(wanted)}"
        )
    except (errors.GenericError, OSError) as err:
        say(f"cfgupgrade: {err}")
    return exit_codes.EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
