"""Completion: the program that answers, and each real shell with it, against a small table."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest

from devel import completion
from devel.completion import engine, shells, tables
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program
from ganeti.cli.options import flag
from ganeti.client import PROGRAMS
from ganeti.utils import net, process

PATIENCE_S = 120.0
TOP = Path(__file__).resolve().parents[3]

PROGRAM = Program(
    "gnt-instance",
    "A program.",
    [
        Command("move", lambda values, arguments: 0,
                [Argument("instance", 1, 1), Argument("node", 0, None)],
                [flag("-f", "--force", help="do not ask; ever. Or so"),
                 Option("-n", "--node", kind="string", help="where", completion="pnode:snode"),
                 Option("-B", "--backend", kind="keyval", dest="beparams", help="sizes"),
                 Option("--os", kind="string", help="what", completion="os"),
                 Option("--mode", choices=("live", "non-live"), help="how")],
                "Move"),
        Command("list", lambda values, arguments: 0, [Argument("instance")],
                [opt.OUTPUT, opt.SORT_BY], "List"),
        Command("list-fields", lambda values, arguments: 0, [Argument("unknown")], [], "Fields"),
        Command("watch", lambda values, arguments: 0, [Argument("jobid", 1, 1)], [], "Watch"),
        Command("join", lambda values, arguments: 0, [Argument("group", 1, 1)], [], "Join"),
        Command("power", lambda values, arguments: 0,
                [Argument("choice", 1, 1, choices=("on", "off"))], [], "Power"),
        Command("read", lambda values, arguments: 0, [Argument("file", 1, 1)], [], "Read"),
        Command("version", lambda values, arguments: 0, [], [], "Version"),
        Command("add-tags", lambda values, arguments: 0,
                [Argument("instance", 1, 1), Argument("unknown")], [opt.DRY_RUN], "Add"),
        Command("remove-tags", lambda values, arguments: 0,
                [Argument("instance", 1, 1), Argument("unknown")], [opt.DRY_RUN], "Remove"),
        Command("search-tags", lambda values, arguments: 0, [Argument("unknown", 1, 1)], [],
                "Search"),
        Command("remove-snapshot", lambda values, arguments: 0,
                [Argument("instance", 1), Argument("unknown", 1, 1)], [opt.DRY_RUN], "Remove"),
    ],
    aliases={"mv": "move"},
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the shells, and the root of a node."""
    place = tmp_path_factory.mktemp("completion")
    data = place / "root/var/lib/ganeti"
    (data / "queue").mkdir(parents=True)
    (data / "ssconf_instance_list").write_text("web1.example.com\nweb2.example.com\ndb\n")
    (data / "ssconf_node_list").write_text("node1\nnode2\n")
    (data / "ssconf_nodegroups").write_text("uuid-1 default\nuuid-2 rack2\n")
    for name in ("job-7", "job-12", "serial"):
        (data / "queue" / name).write_text("")
    for name, variants in (("noop", None), ("tiny", "plain\n# a comment\n\nlarge\n")):
        (place / "root/srv/ganeti/os" / name).mkdir(parents=True)
        if variants:
            (place / "root/srv/ganeti/os" / name / "variants.list").write_text(variants)
    (data / "ssconf_cluster_tags").write_text("of:cluster\n")
    (place / "some-file").write_text("")
    _commands_with_tags(place)
    for name in ("0.9", "0.10", "os"):
        (place / "root/usr/lib/ganeti" / name).mkdir(parents=True)
    programs = [PROGRAM, *tables.load_without_options()]
    (place / "gnt-complete").write_text(engine.generate(programs, tables.load_plain()))
    (place / "gnt-complete").chmod(0o755)
    for name, text in shells.generate(
        ["gnt-instance", "hbal"], str(place / "gnt-complete")
    ).items():
        (place / name).write_text(text)
    return place


def _commands_with_tags(place: Path) -> None:
    """Commands which answer as the real ones do, and a socket as sign of a master."""
    for name, tags in (
        ("instance", ["env:prod", "owner:al"]),
        ("node", ["rack:1"]),
        ("group", []),
        ("network", ["env:prod"]),
    ):
        path = place / "bin" / f"gnt-{name}"
        path.parent.mkdir(exist_ok=True)
        answer = json.dumps([{"tags": tags}, {"tags": []}], indent=2)
        path.write_text(f"""#!/bin/sh
            case "$*" in
                "list-tags web1.example.com") echo owner:al ;;
                "list-snapshots --no-headers -o snapshot web1") printf 'old\\nnew\\nold\\n' ;;
                "list -o tags -o json") echo {shlex.quote(answer)} ;;
                *) echo "$0: no such command: $*" >&2; exit 1 ;;
            esac
            """)
        path.chmod(0o755)
    sockets = place / "root/var/run/ganeti/socket"
    sockets.mkdir(parents=True)
    with contextlib.closing(net.unix_listen(str(sockets / "ganeti-master"))):
        pass


CASES = [
    (["m"], ["move", "mv"]),
    (
        [""],
        [
            "move",
            "list",
            "list-fields",
            "watch",
            "join",
            "power",
            "read",
            "version",
            "add-tags",
            "remove-tags",
            "search-tags",
            "remove-snapshot",
            "mv",
            "--help",
            "--version",
        ],
    ),
    (["move", "web"], ["web1.example.com", "web2.example.com"]),
    (["mv", "d"], ["db"]),
    (["move", "db", "n"], ["node1", "node2"]),
    (["move", "db", "node1", "n"], ["node1", "node2"]),
    (["move", "-f", "d"], ["db"]),
    (["move", "--", "d"], ["db"]),
    (["move", "-n", "node1", "d"], ["db"]),
    (["move", "--mode=live", "d"], ["db"]),
    (["move", "--fo"], ["--force"]),
    # Options may stand behind arguments, unless these are for another program.
    (["move", "db", "--fo"], ["--force"]),
    (["move", "db", "-n", "node1", "node1", "--fo"], ["--force"]),
    (["move", "--", "db", "--fo"], []),
    (["list", "--sort-by", "oper_r"], ["oper_ram"]),
    (["list", "--sort-by", "name,oper_r"], ["name,oper_ram"]),
    (["move", "--mode", ""], ["live", "non-live"]),
    (["move", "--mode=n"], ["--mode=non-live"]),
    (["move", "--nosuch=n"], []),
    (["move", "-n", "node1:no"], ["node1:node1", "node1:node2"]),
    (["move", "--os", ""], ["noop", "tiny+plain", "tiny+large"]),
    (["move", "-B", "me"], ["memory="]),
    (["move", "-B", "memory=1g,vc"], ["memory=1g,vcpus="]),
    (["move", "-B", "memory="], []),
    (["list", "-o", "oper_r"], ["oper_ram"]),
    (["list", "-o", "name,oper_r"], ["name,oper_ram"]),
    (["list", "-o", "+oper_r"], ["+oper_ram"]),
    (["list", "--output=cs"], ["--output=csv"]),
    (["list", "web1.example.com", "d"], ["db"]),
    (["list-fields", "name", "oper_v"], ["oper_vcpus"]),
    (["join", ""], ["default", "rack2"]),
    (["watch", ""], ["12", "7"]),
    (["watch", "1"], ["12"]),
    (["watch", "7", ""], []),
    (["power", "o"], ["on", "off"]),
    (["version", ""], []),
    (["remove-tags", "web1"], ["web1.example.com"]),
    (["remove-tags", "--dry-run", "web1.example.com", ""], ["owner:al"]),
    (["remove-tags", "--", "web1.example.com", "owner:al", "o"], ["owner:al"]),
    (["remove-tags", "db", ""], []),
    (["add-tags", "db", ""], ["env:prod", "owner:al"]),
    (["search-tags", ""], ["env:prod", "of:cluster", "owner:al", "rack:1"]),
    (["search-tags", "rack:"], ["rack:1"]),
    (["remove-snapshot", "d"], ["db"]),
    (["remove-snapshot", "web1", "o"], ["old"]),
    (
        ["remove-snapshot", "--dry-run", "web1", ""],
        ["new", "old", "web1.example.com", "web2.example.com", "db"],
    ),
    (["nonsense", ""], []),
    (["move", "$(touch x)"], []),
    (["move", "*"], []),
]


PLAIN = [
    (["hbal", "--min-g"], ["--min-gain", "--min-gain-limit"]),
    (["hbal", ""], []),
    (["hbal", "-t", "cluster.data", "--excl"], ["--exclusion-tags", "--exclude-instances"]),
    (["hbal", "-G", ""], ["default", "rack2"]),
    (["hbal", "-O", "node1"], ["node1"]),
    (["hbal", "--select-instances", "db,web1"], ["db,web1.example.com"]),
    (["hbal", "--select-instances=db,web1"], ["--select-instances=db,web1.example.com"]),
    (["hbal", "--priority", ""], ["low", "normal", "high"]),
    # The value of this option may be left out, so it is never the next word.
    (["hbal", "--mond", ""], []),
    (["hbal", "--mond="], ["--mond=yes", "--mond=no"]),
    (["hspace", "--disk-template=pl"], ["--disk-template=plain"]),
    (["hspace", "--what-if", "remove"], ["remove-node=", "remove-group="]),
    (["hspace", "--what-if", "remove-node=node2"], ["remove-node=node2"]),
    (["hspace", "--what-if", "add-nodes=3:"], ["add-nodes=3:node1", "add-nodes=3:node2"]),
    (["hspace", "--what-if", "vcpu-ratio="], []),
    (["hcheck", "--what-if=std"], ["--what-if=std-size="]),
    (["hcheck", "--what-if=remove-node=node1"], ["--what-if=remove-node=node1"]),
    (["hspace", "--no-such", ""], []),
    (["hail", "--restrict-allocation-to", "node1,"], ["node1,node1", "node1,node2"]),
    (["hroller", "--node-t"], ["--node-tags"]),
    (["hsqueeze", "--minimal-r"], ["--minimal-resources"]),
    (["hinfo", "--vers"], ["--version"]),
    (["harep", "--job-d"], ["--job-delay"]),
    (["burnin", "-t", "sh"], ["sharedfile"]),
    (["burnin", "--steps", "modify,mi"], ["modify,migrate"]),
    (["burnin", "-n", "node1,"], ["node1,node1", "node1,node2"]),
    (["burnin", "--no-name"], []),
    (["ganeti-cleaner", ""], ["node", "master"]),
    (["ganeti-cleaner", "-n", "m"], ["master"]),
    (["ganeti-watcher", "--ignore-p"], ["--ignore-pause"]),
    (["ganeti-join", "--tok"], ["--token-file"]),
]  # fmt: skip


@pytest.mark.programs
@pytest.mark.parametrize(("words", "offered"), PLAIN)
def test_answers_for_programs_without_commands(
    place: Path, words: list[str], offered: list[str]
) -> None:
    answers = ask(place, *words[1:], program=words[0])
    found = [line.partition("\t")[0] for line in answers if not line.startswith(":")]
    assert found == offered


@pytest.mark.programs
@pytest.mark.parametrize(
    "words", [["hbal", "-t", "x"], ["hail", "x"], ["hscan", "-d", ""], ["ganeti-join",
                                                                          "--token-file", ""]]
)  # fmt: skip
def test_files_of_programs_without_commands(place: Path, words: list[str]) -> None:
    assert ask(place, *words[1:], program=words[0]) == [":files"]


@pytest.mark.programs
def test_commands_and_options_of_vcluster(place: Path) -> None:
    assert [word.strip() for word in ask(place, "sto", program="vcluster")] == ["stop"]
    assert ask(place, "start", "", program="vcluster") == [":files"]
    assert ask(place, "create", "--mon", program="vcluster") == [
        "--monitoring\trun the monitoring daemon on each node"
    ]


def test_each_installed_program_without_commands_is_known() -> None:
    starters = {path.name for path in (TOP / "scripts").iterdir()}
    # The daemons are started by systemd, and most tools are seldom needed.
    starters |= {"ganeti-cleaner", "ganeti-watcher", "burnin"}
    starters |= {"cluster-merge", "lvmstrap", "ovfconverter", "query-config", "users-setup"}
    starters |= {"ganeti-takeover", "vcluster"}
    assert starters - set(PROGRAMS) == {one.name for one in tables.load_plain()}


def ask(place: Path, *words: str, program: str = "gnt-instance") -> list[str]:
    """What the program answers, line for line."""
    done = process.run(
        [str(place / "gnt-complete"), f"/some/where/{program}", *words],
        timeout_s=PATIENCE_S,
        env=environment(place),
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def environment(place: Path) -> dict[str, str]:
    return {"GANETI_ROOTDIR": str(place / "root"), "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.programs
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_answers(place: Path, words: list[str], offered: list[str]) -> None:
    found = [line.partition("\t")[0] for line in ask(place, *words) if not line.startswith(":")]
    assert found == offered


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["use-"], ["use-systemctl", "use-version"]),
        (["use-version", ""], ["0.10", "0.9"]),
        (["start", "ganeti-m"], ["ganeti-metad", "ganeti-mond", "ganeti-masterd"]),
        (["stop-all", ""], []),
        (["stop", "--"], []),
    ],
)
def test_answers_for_daemon_util(place: Path, words: list[str], offered: list[str]) -> None:
    answers = ask(place, *words, program="daemon-util")
    assert [line.partition("\t")[0] for line in answers] == offered


@pytest.mark.programs
def test_meanings_and_instructions(place: Path) -> None:
    assert "watch\tWatch" in ask(place, "w")
    assert ask(place, "move", "--fo") == ["--force\tdo not ask"]
    assert ask(place, "read", "x") == [":files"]
    assert ask(place, "list", "-o", "uui") == [":open", "uuid"]


@pytest.mark.programs
def test_jobs_are_asked_of_the_queue_directory_only(place: Path, tmp_path: Path) -> None:
    done = process.run(
        [str(place / "gnt-complete"), "gnt-instance", "watch", ""],
        timeout_s=PATIENCE_S,
        env={"GANETI_ROOTDIR": str(tmp_path)},
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_help_is_shortened() -> None:
    assert engine.about("short") == "short"
    assert engine.about("one; two") == "one"
    assert engine.about("one. Two") == "one"
    assert len(engine.about("x" * 500)) == 70


def test_kinds_of_the_real_tables() -> None:
    programs = {program.name: program for program in tables.load()}
    node = programs["gnt-node"]
    listing = node.commands["list"]
    fields, order = [
        tables.option_kind(node, listing, option)
        for option in listing.options
        if option.completion == "fields"
    ]
    assert fields.startswith(",")
    assert {"name", "mfree", "all", "wide", "json"} <= set(fields[1:].split())
    assert {"name", "mfree"} <= set(order[1:].split())
    assert not {"all", "wide", "json"} & set(order[1:].split())
    cluster = programs["gnt-cluster"]
    assert tables.argument_kinds(cluster, cluster.commands["command"]) == ["command*"]
    assert tables.argument_kinds(node, listing) == ["node*"]
    jobs = programs["gnt-job"]
    assert tables.argument_kinds(jobs, jobs.commands["info"]) == ["jobid*"]
    locks = programs["gnt-debug"]
    assert tables.field_names(locks, locks.commands["locks"]) == [
        "mode",
        "name",
        "owner",
        "pending",
    ]


@pytest.mark.programs
def test_the_real_tables(tmp_path: Path) -> None:
    completion.build(str(tmp_path), str(tmp_path / "gnt-complete"))
    process.run(["sh", "-n", str(tmp_path / "gnt-complete")], timeout_s=PATIENCE_S)
    names = [*PROGRAMS, *(one.name for one in tables.load_plain())]
    check = f"source {tmp_path}/bash; complete -p {' '.join(names)}"
    done = process.run(["bash", "-c", check], timeout_s=PATIENCE_S)
    assert done.stdout.count("_ganeti_complete") == len(names)
    words = [str(tmp_path / "gnt-complete"), "gnt-cluster", "simulate", "--what-if", "remove"]
    assert process.run(words, timeout_s=PATIENCE_S).stdout == ":open\nremove-node=\nremove-group=\n"
    done = process.run([str(tmp_path / "gnt-complete"), "gnt-cluster", "ver"], timeout_s=PATIENCE_S)
    assert {"verify", "version"} <= {line.partition("\t")[0] for line in done.stdout.splitlines()}
    root = tmp_path / "root"
    (root / "usr/lib/ganeti/0.9").mkdir(parents=True)
    done = process.run(
        [str(tmp_path / "gnt-complete"), "gnt-cluster", "upgrade", "--to="],
        timeout_s=PATIENCE_S,
        env={"GANETI_ROOTDIR": str(root)},
    )
    assert done.stdout == "--to=0.9\n"


# -- the shells themselves ------------------------------------------------------------------------


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}. Run: devel/install-packages {shell}")


@pytest.mark.programs
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("gnt-instance m", ["move", "mv"]),
        ("gnt-instance mv web", ["web1.example.com", "web2.example.com"]),
        # bash puts back what stands before an equals sign or a colon.
        ("gnt-instance move --mode=n", ["non-live"]),
        ("gnt-instance move -n node1:no", ["node1", "node2"]),
        ("gnt-instance list -o name,oper_r", ["name,oper_ram"]),
        ("gnt-instance move -B memory=1g,vc", ["1g,vcpus="]),
        ("gnt-instance watch ", ["12", "7"]),
        ("gnt-instance read some", ["some-file"]),
        ("gnt-instance version ", []),
        ("gnt-instance remove-tags web1.example.com owner:", ["al"]),
        ("hbal --mond=y", ["yes"]),
        ("hbal -G r", ["rack2"]),
        ("hspace --what-if=remove-node=node2", ["node2"]),
        ("hbal -t some", ["some-file"]),
    ],
)
def test_bash(place: Path, line: str, replies: list[str]) -> None:
    script = f"""
        set -u
        cd {shlex.quote(str(place))}
        source ./bash
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        _ganeti_complete gnt-instance
        [ ${{#COMPREPLY[@]}} -eq 0 ] || printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = process.run(["bash", "-c", script], timeout_s=PATIENCE_S, env=environment(place))
    assert done.stderr == ""
    assert done.stdout.splitlines() == replies


@pytest.mark.programs
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gnt-instance wat", ["watch\tWatch"]),
        ("gnt-instance mv web", ["web1.example.com", "web2.example.com"]),
        ("gnt-instance move --mode=n", ["--mode=non-live"]),
        ("gnt-instance move -n node1:no", ["node1:node1", "node1:node2"]),
        ("gnt-instance list -o name,oper_r", ["name,oper_ram"]),
        ("gnt-instance read some", ["some-file"]),
        ("gnt-instance version ", []),
        ("gnt-instance remove-tags web1.example.com ow", ["owner:al"]),
        ("hbal --mond=y", ["--mond=yes"]),
        ("hbal -G r", ["rack2"]),
    ],
)
def test_fish(place: Path, line: str, offered: list[str]) -> None:
    need("fish")
    script = f"cd {shlex.quote(str(place))}; source ./fish; complete -C {shlex.quote(line)}"
    done = process.run(
        ["fish", "--no-config", "-c", script],
        timeout_s=PATIENCE_S,
        env={**environment(place), "HOME": str(place)},
    )
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == sorted(offered)


@pytest.mark.programs
def test_zsh(place: Path, tmp_path: Path) -> None:
    """On a terminal of its own: what stands on the line after a tab."""
    need("zsh")
    cases = [
        ("gnt-instance wat", "gnt-instance watch "),
        ("gnt-instance mv web1", "gnt-instance mv web1.example.com "),
        ("gnt-instance move --mode=n", "gnt-instance move --mode=non-live "),
        ("gnt-instance move -n node1:node", "gnt-instance move -n node1:node"),
        # More may follow, so there is no blank.
        ("gnt-instance list -o name,oper_r", "gnt-instance list -o name,oper_ram"),
        ("gnt-instance move -B vc", "gnt-instance move -B vcpus="),
        ("gnt-instance version x", "gnt-instance version x"),
        ("hbal -G r", "hbal -G rack2 "),
        ("hbal --what-if remove-node=node2", "hbal --what-if remove-node=node2 "),
        (
            "gnt-instance remove-tags web1.example.com ow",
            "gnt-instance remove-tags web1.example.com owner:al ",
        ),
    ]
    seen = tmp_path / "seen"
    (tmp_path / ".zshrc").write_text(
        f"fpath=({shlex.quote(str(place))} $fpath)\n"
        "autoload -U compinit && compinit -u -D\n"
        "unsetopt beep; PROMPT='ready> '\n"
        f'show() {{ print -r -- "<$BUFFER>" >>{shlex.quote(str(seen))}; BUFFER= }}\n'
        "zle -N show; bindkey '^X' show\n"
        f"print ready >>{shlex.quote(str(seen))}\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(ZDOTDIR=str(tmp_path), TERM="dumb", **environment(place))
        os.execvp("zsh", ["zsh", "-i"])
    try:
        lines(seen, 1, terminal)
        for number, (typed, _) in enumerate(cases, start=2):
            os.write(terminal, f"{typed}\t\x18".encode())
            lines(seen, number, terminal)
        assert lines(seen, len(cases) + 1, terminal)[1:] == [f"<{after}>" for _, after in cases]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def lines(path: Path, count: int, terminal: int) -> list[str]:
    """Wait until a file has that many lines; the terminal is read meanwhile, so that it flows."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = path.read_text().splitlines() if path.exists() else []
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, f"only {found}"
        if net.wait_readable([terminal], 0.05):
            os.read(terminal, 65536)
