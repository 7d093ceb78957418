"""Commands of DRBD 9, compared with what drbd-utils 9.22 says of them and would run itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ganeti import errors
from ganeti.storage.drbd import argv, parse
from ganeti.storage.drbd.argv import Commands9, Endpoint, NetOptions

from .test_drbd_argv import PARAMS, joined

DATA = Path(__file__).parents[2] / "data/drbd"
HERE, THERE = Endpoint("10.77.2.1", 11000), Endpoint("10.77.2.2", 11000)
STORE, META = "/dev/xenvg/d0.data", "/dev/xenvg/d0.meta"
NET = NetOptions(protocol="C", secret="secret", dual_primary=True, sync=PARAMS)
DYNAMIC = NetOptions(protocol="A", secret="", sync={**PARAMS, "dynamic-resync": True})
WITHOUT_FLUSHES = {**PARAMS, "disabled-barriers": "f", "disable-meta-flush": True}
# Differences to what drbdadm would run.
NAME, AUTO = "--_name=node2", "--auto-promote=no"


def commands() -> Commands9:
    return Commands9(5, node_id=0)


def all_commands() -> list[list[str]]:
    """Each command which the driver can run, of drbdsetup."""
    one = commands()
    found = [
        *one.make(),
        one.attach(STORE, META, 1048576, WITHOUT_FLUSHES),
        one.attach(STORE, META, 1048577, {**PARAMS, "disabled-barriers": "bd"}),
        *one.connect(HERE, THERE, NET),
        *one.connect(HERE, Endpoint("2001:db8::1", 11000), DYNAMIC),
        one.disconnect(HERE, THERE),
        one.forget_peer(),
        one.remove_unused(),
        one.single_primary(HERE, THERE),
        one.primary(force=True),
        one.primary(force=False),
        one.secondary(),
        one.detach(),
        one.down(),
        one.outdate(),
        one.pause_sync(),
        one.resume_sync(),
        one.resume_requests(),
        one.resize(640),
        one.show(),
        ["drbdsetup", "status", "all", "--json"],
    ]
    return [[str.__str__(word) for word in words] for words in found if words]


def described() -> dict[str, tuple[int, dict[str, ElementTree.Element]]]:
    """Number of arguments and the options of each command, as drbdsetup has them."""
    root = ElementTree.parse(DATA / "drbdsetup-9.22-help.xml").getroot()
    return {
        one.attrib["name"]: (
            len(one.findall("argument")),
            {option.attrib["name"]: option for option in one.findall("option")},
        )
        for one in root.findall("command")
    }


def is_value(option: ElementTree.Element, value: str) -> bool:
    kind = option.attrib["type"]
    if kind == "handler":
        return value in [one.text for one in option.findall("handler")]
    if kind == "boolean":
        return value in ("yes", "no")
    if kind == "numeric":
        scale = {"m": 2048, "s": 1}.get(value[-1], 1)
        number = int(value.rstrip("ms")) * scale
        limits = [int(option.findtext(name) or "") for name in ("min", "max")]
        return limits[0] <= number <= limits[1]
    return bool(value)


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_drbdsetup_has_this_command(words: list[str]) -> None:
    count, options = described()[words[1]]
    rest, given = [], {}
    following = iter(words[2:])
    for word in following:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            rest.append(word)
        elif name == "_name":
            given[name] = value
        elif name in ("force", "json"):
            assert name in options and not equals
        else:
            given[name] = value if equals else next(following)
    # The alternative of one resource and all of them is described without arguments.
    assert len(rest) == count or (count == 0 and len(rest) == 1)
    for name, value in given.items():
        if name != "_name":
            assert name in options and is_value(options[name], value), name
    assert (words[1] == "new-peer") == ("_name" in given)


def would_run(command: str) -> list[list[str]]:
    """What ``drbdadm`` runs for a command."""
    blocks = (DATA / "drbd-9.22-drbdadm.txt").read_text().split("== ")[1:]
    (lines,) = (one.splitlines()[1:] for one in blocks if one.splitlines()[0] == command)
    return [shlex.split(line) for line in lines]


def same(ours: list[list[str]], theirs: list[list[str]]) -> None:
    """Compare the commands, in their order, with options in any order and form."""
    assert [normal(words) for words in ours] == [normal(words) for words in theirs]


def normal(words: list[str]) -> tuple[list[str], set[str]]:
    plain, options = [], set()
    following = iter(str.__str__(word) for word in words)
    for word in following:
        if word in (NAME, "--_name=node1", AUTO):
            continue
        if word.startswith("--") and "=" not in word and word != "--force":
            word = f"{word}={next(following)}"
        if not word.startswith("--"):
            plain.append(word)
        else:
            options.add(word.replace("=61440k", "=61440").replace("=1048576s", "=512m"))
    return plain, options


def test_up_is_what_drbdadm_would_run() -> None:
    one = commands()
    new_resource, new_minor, *peer, apply, attach, connect = would_run("up")
    same(one.make(), [new_resource, new_minor])
    same(one.prepare_attach(META), [apply])
    same([one.attach(STORE, META, 1048576, WITHOUT_FLUSHES)], [attach])
    same(one.connect(HERE, THERE, NET), [*peer, connect])
    # Opening a device never promotes it.
    assert AUTO in one.make()[0]


def test_the_rest_is_what_drbdadm_would_run() -> None:
    one = commands()
    same([one.disconnect(HERE, THERE)], would_run("disconnect"))
    same([one.primary(force=True)], would_run("primary --force"))
    same([one.secondary()], would_run("secondary"))
    same([one.detach()], would_run("detach"))
    same([one.pause_sync()], would_run("pause-sync"))
    same([one.resume_sync()], would_run("resume-sync"))
    same([one.down()], would_run("down"))
    same([one.dump_metadata(META)], would_run("dump-md"))
    (create,) = would_run("create-md")
    assert one.create_metadata(META) == [create[0], "--force", *create[1:]]


def test_the_other_node() -> None:
    found = joined(
        Commands9(7, node_id=1).connect(THERE, HERE, NetOptions(protocol="C", secret=""))
    )
    assert found == [
        "drbdsetup new-peer resource7 0 --_name=node0 --protocol=C"
        " --after-sb-0pri=discard-zero-changes --after-sb-1pri=consensus",
        "drbdsetup new-path resource7 0 ipv4:10.77.2.2:11000 ipv4:10.77.2.1:11000",
        "drbdsetup connect resource7 0",
    ]


def test_secret_is_never_shown() -> None:
    (new_peer, *_rest) = commands().connect(HERE, THERE, NetOptions(protocol="C", secret="s3cret"))
    (word,) = [word for word in new_peer if str.__str__(word) == "s3cret"]
    assert "s3cret" not in repr(word)


def test_custom_options_of_the_administrator() -> None:
    net = NetOptions(protocol="C", secret="", custom="--ko-count 2 --x 'a b'")
    assert commands().connect(HERE, THERE, net)[0][-4:] == ["--ko-count", "2", "--x", "a b"]


def test_commands_which_need_the_number_of_the_node() -> None:
    one = argv.commands((9, 1, 4), 5)
    assert one.show("theirs") == ["drbdsetup", "show", "theirs"]
    assert one.down() == ["drbdsetup", "down", "resource5"]
    with pytest.raises(errors.BlockDeviceError, match="minor 5: the number of this node"):
        one.make()


SHOWN = """
resource "resource5" {
    options {
        auto-promote    \tno;
    }
    _this_host {
        node-id\t\t\t0;
        volume 0 {
            device\t\t\tminor 5;
            disk\t\t\t"/dev/xenvg/d0.data";
            meta-disk\t\t\t"/dev/xenvg/d0.meta";
            disk {
                size            \t1048576s; # bytes
                on-io-error     \tdetach;
            }
        }
    }
    connection {
        _peer_node_id 1;
        path {
            _this_host ipv4 10.77.2.1:11000;
            _remote_host ipv4 10.77.2.2:11000;
        }
        _cstate Connecting;
        net {
            allow-two-primaries \tyes;
            cram-hmac-alg   \t"md5";
            shared-secret   \t"secret";
            fencing         \tresource-and-stonith;
            _name           \t"node1";
        }
        volume 0 {
            disk {
                resync-rate     \t61440k; # bytes/second
            }
        }
    }
}
"""


def test_show() -> None:
    found = parse.parse_show(SHOWN)
    assert (found.resource, found.minor, found.node_id, found.peer_node_id) == (
        "resource5",
        5,
        0,
        1,
    )
    assert (found.data_device, found.meta_device) == (STORE, META)
    assert found.local_address == ("10.77.2.1", 11000)
    assert found.remote_address == ("10.77.2.2", 11000)
    assert (found.hmac, found.secret) == ("md5", "secret")
    assert found.dual_primary and found.waits_for_peer


def test_show_without_storage_and_with_several_connections() -> None:
    """The first connection and its first path count; a device may be meant to have no storage."""
    second = """connection { _peer_node_id 2; path { _this_host ipv4 10.9.9.9:1; _remote_host ipv4
        10.9.9.8:1; } net { shared-secret "other"; } }"""
    path = "path { _this_host ipv4 10.8.8.8:1; _remote_host ipv4 10.8.8.7:1; } _cstate"
    text = SHOWN.replace("_cstate", path, 1).rstrip().removesuffix("}") + second + "}"
    text = text.replace('disk\t\t\t"/dev/xenvg/d0.data";', "disk\t\t\tnone;")
    found = parse.parse_show(text)
    assert (found.peer_node_id, found.secret) == (1, "secret")
    assert found.remote_address == ("10.77.2.2", 11000)
    assert found.data_device is None


def test_show_of_an_unknown_resource_prints_nothing() -> None:
    assert parse.parse_show("") == parse.MinorConfig()
