"""The manual: every command parses and names known objects, and generated pages are fresh.

``test/scenario/test_manual.py`` runs the commands.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from devel import manual_blocks, reference_pages
from devel.manual_blocks import Block
from ganeti import client, errors
from ganeti.cli import failures, parser
from ganeti.constants import verify
from ganeti.htools.node import Fail

TOP = Path(__file__).resolve().parents[2]
MANUAL = TOP / "doc" / "manual"

#: Objects which the manual knows: nodes, and instances which a page has added or describes.
NODES = {f"node{number}" for number in range(1, 5)}
INSTANCES = {
    "web1",
    "db1",
    "mail1",
    "files1",
    "guest1",
    "test1",
    "shop1",
    "shop2",
    "shop3",
    "shop4",
}
#: Programs of the machine, with the packages of Debian which have them.
OTHERS = {
    "aa-enforce": "apparmor-utils",
    "apt-get": "apt", "bash": "bash", "cat": "coreutils", "echo": "coreutils", "env": "coreutils",
    "ip": "iproute2", "journalctl": "systemd", "lsblk": "util-linux", "make": "make",
    "modprobe": "kmod", "pvcreate": "lvm2", "rm": "coreutils", "systemctl": "systemd",
    "tar": "tar", "umask": "bash", "vgcreate": "lvm2", "vgextend": "lvm2", "eval": "bash",
    "date": "coreutils", "mkdir": "coreutils", "touch": "coreutils", "cp": "coreutils",
    "export": "bash", "pip": "python3-venv", "python3": "python3",
    "printf": "bash", "chmod": "coreutils", "curl": "curl", "openssl": "openssl",
    "qemu-img": "qemu-utils",
    "hostname": "hostname", "hostnamectl": "systemd", "ls": "coreutils", "netplan": "netplan.io",
    "nohup": "coreutils", "ssh": "openssh-client", "timedatectl": "systemd",
    "scp": "openssh-client", "ssh-keygen": "openssh-client", "virsh": "libvirt-clients",
}  # fmt: skip
#: Programs of this project with a parser of their own: name -> module.
TOOLS = {
    "burnin": "ganeti.burnin.program",
    "cfgshell": "ganeti.tools.cfgshell",
    "cfgupgrade": "ganeti.tools.cfgupgrade",
    "cluster-merge": "ganeti.merge.command",
    "lvmstrap": "ganeti.tools.lvmstrap",
    "move-instance": "ganeti.tools.move_instance",
    "rapi-passwd": "ganeti.tools.rapi_passwd",
    "sanitize-config": "ganeti.tools.sanitize_config",
}
PLACEMENT = {"hbal", "hcheck", "hspace", "hinfo"}
#: What this machine's start script, not the command line, decides.
WITHOUT_PARSER = {"vcluster", "cmd", "daemon-util"}

BLOCKS = [
    block
    for page in manual_blocks.pages()
    for block in manual_blocks.blocks(page)
    if block.kind in ("run", "needs", "prepare")
]


def check_gnt(words: list[str]) -> None:
    """A command with its options parses, and its arguments are known."""
    program = importlib.import_module(client.PROGRAMS[words[0]]).PROGRAM
    if words[1:] == ["--help"]:
        return
    command = program.find(words[1])
    assert command is not None, f"{words[0]} has no command {words[1]}"
    if "--help" in words:
        return
    _values, arguments = parser.parse(command, words[2:])
    for argument in arguments:
        name = argument.removesuffix(".example.com")
        if name != argument or re.fullmatch(r"(node|web|db|mail|files|shop)\d+", argument):
            assert name in NODES | INSTANCES | {"cluster"}, f"the manual has no object {argument}"


def check(words: list[str]) -> None:
    """One command of a block."""
    program = words[0].rpartition("/")[2]
    if program in client.PROGRAMS:
        check_gnt([program, *words[1:]])
    elif program in TOOLS:
        module = importlib.import_module(TOOLS[program])
        subject = getattr(module, "subject_of", lambda _words: None)(words[1:])
        if subject is None:
            module.make_parser().parse_args(words[1:])
        else:
            subject.make_parser().parse_args(words[2:])
    elif program in PLACEMENT or program in WITHOUT_PARSER:
        if program == "vcluster" and words[1] == "run":
            check(words[3:])
        elif program == "cmd":
            check(words[1:])
    else:
        assert program in OTHERS, f"the manual does not explain where {program} comes from"


def test_there_are_blocks() -> None:
    assert sum(block.kind == "run" for block in BLOCKS) > 60


@pytest.mark.parametrize(
    "block", BLOCKS, ids=[f"{block.page}-{number}" for number, block in enumerate(BLOCKS)]
)
def test_every_command_parses(block: Block) -> None:
    found = list(manual_blocks.commands(block.text))
    assert found
    for words in found:
        check(words)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.kind == "needs"], ids=lambda block: block.page
)
def test_what_is_not_run_says_why(block: Block) -> None:
    assert len(block.reason) > 2


@pytest.mark.parametrize("page", manual_blocks.pages())
def test_lines_are_not_too_long(page: str) -> None:
    text = (MANUAL / f"{page}.rst").read_text(encoding="utf-8")
    if text.startswith(".. Generated"):
        return
    assert [line for line in text.splitlines() if len(line) > 140] == []


@pytest.mark.parametrize("name", reference_pages.pages())
def test_generated_pages_are_those_of_the_tables(name: str) -> None:
    text = (MANUAL / name).read_text(encoding="utf-8")
    assert text == reference_pages.pages()[name], "run: make pages"


def test_every_error_is_explained() -> None:
    terms = re.findall(
        r"(?m)^(``\w+``(?:, ``\w+``)*)\n    \S", (MANUAL / "errors.rst").read_text("utf-8")
    )
    explained = [name for line in terms for name in re.findall(r"``(\w+)``", line)]
    codes = [str(value) for name, value in vars(failures).items() if name.startswith("EXIT_")]
    places = [fail.value for fail in Fail]
    wanted = {*codes, *errors.ECODE_ALL, *verify.OBJECT_OF, *places} - {str(failures.EXIT_SUCCESS)}
    assert sorted(explained) == sorted(wanted)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".. need: LVM\n\n::\n\n    lvs\n", "has no meaning"),
        (".. needs: LVM\n\nNothing.\n", "no block follows"),
        (".. needs: LVM\n.. output\n\n::\n\n    lvs\n", "cannot be"),
    ],
)
def test_a_wrong_comment_is_found(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        manual_blocks.blocks("page", text)


def test_comments_belong_to_the_next_block() -> None:
    text = "::\n\n    a\n\n.. needs: LVM\n\n::\n\n    b\n\n.. output\n\n::\n\n    c\n"
    assert [(block.text, block.kind) for block in manual_blocks.blocks("page", text)] == [
        ("a", "run"), ("b", "needs"), ("c", "output"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "wanted"),
    [
        ("a b | c\n", [["a", "b"], ["c"]]),
        ("X=1 a 'b c'  # why\n", [["a", "b c"]]),
        ("a \\\n  b && c; d\n", [["a", "b"], ["c"], ["d"]]),
        ("a > b\nc $(d -e) f\n", [["a"], ["d", "-e"], ["c", "SUBSTITUTED", "f"]]),
        ("for x in 1 2; do\n  a $x\ndone\n", [["a", "$x"]]),
    ],
)
def test_blocks_are_split_into_commands(block: str, wanted: list[list[str]]) -> None:
    assert list(manual_blocks.commands(block)) == wanted


@pytest.mark.parametrize(
    ("expected", "shown", "same"),
    [
        ("a b", "a   b\n", True),
        ("a b", "a c", False),
        ("... b", "much before\nb\n", True),
        ("... b", "b", True),
        ("a ... c", "a b c", True),
        ("node1...com", "node1.example.com", True),
        ("a", "a b", False),
    ],
)
def test_outputs_are_compared(expected: str, shown: str, same: bool) -> None:
    assert manual_blocks.matches(expected, shown) is same
