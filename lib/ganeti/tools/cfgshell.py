"""The program ``cfgshell``: shows and changes the configuration of a cluster.

It shows the configuration as a tree of directories: ``cd instances/web1``, ``ls``, ``cat nics/0``.
Objects are found by name and by UUID. The program changes nothing unless it was started with
``--write``. With this option, commands change values in memory, and ``save`` checks the whole
configuration and writes it. The program never writes a configuration which a master daemon uses.

It reads commands from the terminal, from standard input, or from the command line
(``cfgshell -c 'cat cluster/tags'``). Unless it reads them from a terminal, the first error ends the
program.
"""

from __future__ import annotations

import argparse
import cmd
import copy
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.config import upgrade
from ganeti.configfile import files as configfile
from ganeti.constants import cli as exit_codes
from ganeti.platform import paths
from ganeti.tools import config_files, config_journal
from ganeti.tools.config_files import say
from ganeti.utils import fs, text
from ganeti.wire import json

_UNSAVED: Final = "there are changes which are not saved. Save them, or discard them with 'quit!'."

#: Path in the tree: keys of dictionaries and numbers of list entries, from the top.
Trail = tuple[str, ...]


class Tree:
    """A configuration as a tree of directories and values.

    :param config: plain dictionaries and lists, in the format of this version.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def resolve(self, here: Trail, path: str) -> Trail:
        """Convert a path to keys; an object can be given by its name instead of its UUID.

        :raises ParameterError: the path does not exist.
        """
        keys: list[str] = [] if path.startswith("/") else list(here)
        for part in path.split("/"):
            if part == "..":
                del keys[-1:]
            elif part not in ("", "."):
                keys.append(self._key(tuple(keys), part))
        return tuple(keys)

    def _key(self, trail: Trail, part: str) -> str:
        place = self.get(trail)
        if isinstance(place, list):
            if part.isdecimal() and int(part) < len(place):
                return part
        elif isinstance(place, dict):
            if part in place:
                return part
            named = [
                str(key)
                for key, item in place.items()
                if isinstance(item, dict) and item.get("name") == part
            ]
            if len(named) == 1:
                return named[0]
        raise errors.ParameterError(f"there is no {'/'.join((*trail, part))}")

    def get(self, trail: Trail) -> Any:
        """Return the directory or value at a path."""
        place: Any = self.config
        for key in trail:
            place = place[int(key)] if isinstance(place, list) else place[key]
        return place

    def entries(self, trail: Trail) -> list[tuple[str, str]]:
        """List a directory.

        :returns: the key of each entry, and its name, number of entries, or value.
        :raises ParameterError: the path is a value.
        """
        place = self.get(trail)
        if isinstance(place, dict):
            items = sorted(place.items(), key=lambda item: text.natural_key(item[0]))
        elif isinstance(place, list):
            items = [(str(number), item) for number, item in enumerate(place)]
        else:
            raise errors.ParameterError(f"{'/'.join(trail) or '/'} is a value. Use cat.")
        return [(key, _summary(item)) for key, item in items]

    def find(self, trail: Trail, word: str) -> Iterator[tuple[str, str]]:
        """Find the paths below a directory whose name or value contains a word, ignoring case."""
        word = word.lower()
        for path, value in _leaves("/".join(trail), self.get(trail)):
            shown = json.dumps(value)
            if word in path.lower() or word in shown.lower():
                yield path, shown

    def put(self, trail: Trail, value: Any) -> None:
        """Change a value, or add a key to a directory.

        :param trail: the parent must exist.
        """
        changed = copy.deepcopy(self.config)
        place: Any = Tree(changed).get(trail[:-1])
        place[int(trail[-1]) if isinstance(place, list) else trail[-1]] = value
        self.config = changed

    def drop(self, trail: Trail) -> None:
        """Remove a key or an entry of a list."""
        changed = copy.deepcopy(self.config)
        place: Any = Tree(changed).get(trail[:-1])
        del place[int(trail[-1]) if isinstance(place, list) else trail[-1]]
        self.config = changed


def _summary(item: Any) -> str:
    if isinstance(item, dict):
        name = item.get("name") or item.get("cluster_name")
        return f"{name}/" if name else f"({len(item)} keys)/"
    if isinstance(item, list):
        return f"({len(item)} entries)/" if item else "[]"
    return json.dumps(item)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}/{key}", item)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(f"{path}/{number}", item)
    else:
        yield path, value


class Shell(cmd.Cmd):
    """Reads and executes commands.

    :ivar failed: whether a command failed.
    """

    def __init__(self, path: str, tree: Tree, *, writable: bool, strict: bool) -> None:
        super().__init__()
        self._path = path
        self._tree = tree
        self._saved = tree.config
        self._here: Trail = ()
        self._writable = writable
        # The first error ends the program.
        self._strict = strict
        self.failed = False
        self._set_prompt()

    def _set_prompt(self) -> None:
        self.prompt = f"/{'/'.join(map(self._shown, range(len(self._here))))}> "

    def _shown(self, depth: int) -> str:
        item = self._tree.get(self._here[: depth + 1])
        return (
            str(item.get("name") or self._here[depth])
            if isinstance(item, dict)
            else self._here[depth]
        )

    # -- reading commands
    # ----------------------------------------------------------------------------

    def onecmd(self, line: str) -> bool:
        """Execute a command and print its errors; returns whether the program ends."""
        if line.strip() == "quit!":
            return True
        try:
            return bool(super().onecmd(line))
        except (errors.GenericError, OSError, ValueError) as err:
            say(f"cfgshell: {err}")
            self.failed = True
            return self._strict

    def emptyline(self) -> bool:
        """Do nothing for an empty line; the base class would repeat the last command."""
        return False

    def do_EOF(self, line: str) -> bool:  # noqa: N802 (cmd.Cmd calls it so)
        """end of the input: exit like quit"""
        return self.do_quit("")

    def default(self, line: str) -> None:
        """Refuse an unknown command.

        :raises ParameterError: always.
        """
        raise errors.ParameterError(
            f"there is no command '{line.split()[0]}'. The command 'help' lists them."
        )

    def completedefault(self, *ignored: Any) -> list[str]:
        """Return the keys and names which complete a path."""
        line, begin = ignored[1], ignored[2]
        word = line[:begin].split(" ")[-1] + ignored[0]
        directory, slash, start = word.rpartition("/")
        try:
            trail = self._tree.resolve(self._here, directory + slash)
            place = self._tree.get(trail)
        except errors.ParameterError:
            return []
        words = []
        items = place.items() if isinstance(place, dict) else []
        for key, item in items:
            words += [key, str(item.get("name") or "")] if isinstance(item, dict) else [key]
        return [word for word in words if word and word.startswith(start)]

    def _one(self, line: str, what: str = "path") -> str:
        words = shlex.split(line)
        if len(words) != 1:
            raise errors.ParameterError(f"exactly one {what} is needed")
        return words[0]

    def _place(self, line: str) -> Trail:
        return self._tree.resolve(self._here, self._one(line)) if line else self._here

    # -- reading ------------------------------------------------------------------------------

    def do_ls(self, line: str) -> None:
        """ls [PATH]: list the content of a directory"""
        entries = self._tree.entries(self._place(line))
        width = max((len(key) for key, _ in entries), default=0)
        for key, summary in entries:
            print(f"{key:<{width}}  {summary}")

    def do_cd(self, line: str) -> None:
        """cd [PATH]: go to a directory; without PATH, to the top directory"""
        trail = self._place(line) if line else ()
        self._tree.entries(trail)
        self._here = trail
        self._set_prompt()

    def do_pwd(self, line: str) -> None:
        """pwd: print the path of the current directory"""
        print("/" + "/".join(self._here))

    def do_cat(self, line: str) -> None:
        """cat [PATH]: print everything below a path, as JSON"""
        print(json.dumps_pretty(self._tree.get(self._place(line))), end="")

    def do_copy(self, line: str) -> None:
        """copy FILE: write the configuration on the disk, with its journal, to a new file"""
        target = self._one(line, "file")
        if os.path.lexists(target):
            raise errors.ParameterError(f"{target} exists already")
        fs.write_file(target, configfile.read(self._path), mode=0o600)

    def do_find(self, line: str) -> None:
        """find WORD: list the paths below here whose name or value contains WORD"""
        for path, shown in self._tree.find(self._here, self._one(line, "word")):
            print(f"{path if path.startswith('/') else '/' + path}: {shown}")

    def do_verify(self, line: str) -> None:
        """verify: look for contradictions in the configuration"""
        _data, problems = config_files.problems_of(self._tree.config)
        for problem in problems:
            print(problem)
        print(f"{len(problems)} problems" if problems else "The configuration has no problems.")

    # -- changing -----------------------------------------------------------------------------

    def _require_writable(self) -> None:
        if not self._writable:
            raise errors.ParameterError(
                "the configuration was opened for reading only. Start cfgshell with --write."
            )

    def do_set(self, line: str) -> None:
        """set PATH VALUE: change a value, or add one to a directory; VALUE is JSON"""
        self._require_writable()
        words = line.split(None, 1)
        if len(words) != 2:
            raise errors.ParameterError("'set' needs a path and a value")
        directory, _slash, last = words[0].rpartition("/")
        parent = self._tree.resolve(
            self._here, directory or ("/" if words[0].startswith("/") else ".")
        )
        try:
            trail = self._tree.resolve(parent, last)
        except errors.ParameterError:
            if not isinstance(self._tree.get(parent), dict):
                raise
            trail = (*parent, last)
        if not last or not trail:
            raise errors.ParameterError(f"'{words[0]}' is not the path of a value")
        self._change(lambda: self._tree.put(trail, json.loads(words[1])))

    def do_unset(self, line: str) -> None:
        """unset PATH: remove a key, or an entry of a list"""
        self._require_writable()
        trail = self._place(line)
        if not trail:
            raise errors.ParameterError("the top directory cannot be removed")
        if trail == self._here[: len(trail)]:
            raise errors.ParameterError(
                f"/{'/'.join(trail)} contains the current directory. Leave it first."
            )
        self._change(lambda: self._tree.drop(trail))

    def _change(self, action: Callable[[], None]) -> None:
        before = self._tree.config
        action()
        try:
            self._tree.get(self._here)
        except (KeyError, IndexError, TypeError):
            self._tree.config = before
            raise errors.ParameterError(
                f"the change would remove the current directory, /{'/'.join(self._here)}"
            ) from None

    def do_save(self, line: str) -> None:
        """save: check the whole configuration and write it; the former file is kept beside it"""
        self._require_writable()
        if self._tree.config == self._saved:
            print("Nothing was changed.")
            return
        config = config_files.next_serial(self._tree.config)
        _data, problems = config_files.problems_of(config)
        if problems:
            raise errors.ConfigVerifyError("the configuration contradicts itself", problems)
        config_files.refuse_while_master_runs(self._path.rpartition("/")[0] or ".")
        kept = config_files.backup(self._path, str(self._saved["serial_no"]))
        config_files.write(self._path, config)
        self._tree.config = self._saved = config
        print(f"Written. The former file is {kept}.")

    def do_quit(self, line: str) -> bool:
        """quit: exit; 'quit!' exits and discards changes which are not saved"""
        if self._tree.config != self._saved:
            raise errors.ParameterError(_UNSAVED)
        return True


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="cfgshell", description="Show or change the configuration of a cluster."
    )
    parser.add_argument(
        "path",
        nargs="?",
        default=paths.current().cluster_conf_file,
        metavar="FILE",
        help="file of the configuration (default: %(default)s)",
    )
    parser.add_argument("--write", action="store_true", help="allow changes")
    parser.add_argument(
        "--journal",
        choices=config_journal.ACTIONS,
        metavar="ACTION",
        help="do something with the journal of the file, and exit: show it, set it aside, or apply"
        " it to a copy of the file (show, set-aside, apply)",
    )
    parser.add_argument(
        "--base",
        metavar="COPY",
        help="for --journal=apply: a copy of the file, made before it was edited or replaced",
    )
    parser.add_argument(
        "-c",
        "--command",
        action="append",
        default=[],
        metavar="COMMAND",
        help="run this command and exit; the option may be given several times",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = make_parser().parse_args(argv)
    if options.journal is not None:
        return config_journal.run(
            options.journal, options.path, base=options.base, write=options.write
        )
    try:
        raw = config_files.read_raw(options.path)
        version = upgrade.version_of(raw)
        tree = Tree(upgrade.upgrade(raw))
        if options.write:
            config_files.refuse_while_master_runs(options.path.rpartition("/")[0] or ".")
    except errors.GenericError as err:
        say(f"cfgshell: {err}")
        return exit_codes.EXIT_FAILURE
    if version != tree.config["version"]:
        say(
            f"The file has version {upgrade.version_text(version)}; cfgshell shows it as version "
            f"{upgrade.version_text(tree.config['version'])}."
        )
    interactive = not options.command and sys.stdin.isatty()
    shell = Shell(options.path, tree, writable=options.write, strict=not interactive)
    if options.command:
        shell.cmdqueue = [*options.command, "quit"]
    elif not interactive:
        shell.use_rawinput = False
        shell.prompt = ""
        shell._set_prompt = lambda: None  # type: ignore[method-assign]
    while True:
        try:
            shell.cmdloop()
            break
        except KeyboardInterrupt:
            say("")
    return exit_codes.EXIT_FAILURE if shell.failed and not interactive else exit_codes.EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
