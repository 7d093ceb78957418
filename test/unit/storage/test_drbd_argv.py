"""Commands of DRBD in both syntaxes."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.storage.drbd import argv
from ganeti.storage.drbd.argv import Commands83, Commands84, Endpoint, NetOptions

PARAMS = {
    "resync-rate": 61440,
    "dynamic-resync": False,
    "disabled-barriers": "n",
    "disable-meta-flush": False,
    "disk-custom": "",
    "net-custom": "",
    "protocol": "C",
    "c-plan-ahead": 20,
    "c-fill-target": 0,
    "c-delay-target": 1,
    "c-max-rate": 61440,
    "c-min-rate": 4096,
}
HERE, THERE = Endpoint("192.0.2.1", 11000), Endpoint("192.0.2.2", 11000)


def joined(commands):
    return [" ".join(map(str.__str__, words)) for words in commands]


def test_make():
    assert joined(Commands84(3).make()) == [
        "drbdsetup new-resource resource3",
        "drbdsetup new-minor resource3 3 0",
    ]
    assert Commands83(3).make() == []


def test_attach_84():
    commands = Commands84(3)
    found = [
        *commands.prepare_attach("/dev/vg/m"),
        commands.dump_metadata("/dev/vg/m"),
        commands.attach("/dev/vg/d", "/dev/vg/m", 1024 * 2048, PARAMS),
    ]
    assert joined(found) == [
        "drbdmeta /dev/drbd3 v08 /dev/vg/m flex-external apply-al",
        "drbdmeta /dev/drbd3 v08 /dev/vg/m flex-external dump-md",
        "drbdsetup attach 3 /dev/vg/d /dev/vg/m flexible --on-io-error=detach --size 1024m"
        " --c-plan-ahead 0 --resync-rate 61440",
    ]


def test_attach_83():
    commands = Commands83(3)
    found = [
        *commands.prepare_attach("/dev/vg/m"),
        commands.dump_metadata("/dev/vg/m"),
        commands.attach("/dev/vg/d", "/dev/vg/m", 1024 * 2048, PARAMS),
    ]
    assert joined(found) == [
        "drbdmeta /dev/drbd3 v08 /dev/vg/m 0 dump-md",
        "drbdsetup /dev/drbd3 disk /dev/vg/d /dev/vg/m 0 -e detach --create-device -d 1024m",
    ]


def test_a_size_which_is_no_multiple_of_1_mib():
    for commands in (Commands84(3), Commands83(3)):
        assert "2097153s" in commands.attach("/dev/vg/d", "/dev/vg/m", 1024 * 2048 + 1, PARAMS)


RATE = ["--c-plan-ahead", "0", "--resync-rate", "61440"]


@pytest.mark.parametrize(
    ("disabled", "meta", "new", "old"),
    [
        ("n", False, [], []),
        ("n", True, ["--md-flushes=no"], ["--no-md-flushes"]),
        ("b", False, ["--disk-barrier=no"], ["--no-disk-barrier"]),
        (
            "bf",
            False,
            ["--disk-barrier=no", "--disk-flushes=no"],
            ["--no-disk-barrier", "--no-disk-flushes"],
        ),
        (
            "dfb",
            True,
            ["--disk-barrier=no", "--disk-flushes=no", "--disk-drain=no", "--md-flushes=no"],
            ["--no-disk-barrier", "--no-disk-flushes", "--no-disk-drain", "--no-md-flushes"],
        ),
    ],
)
def test_barriers(disabled, meta, new, old):
    params = {**PARAMS, "disabled-barriers": disabled, "disable-meta-flush": meta}
    assert Commands84(0).attach("d", "m", None, params)[7:] == [*new, *RATE]
    assert Commands83(0).attach("d", "m", None, params)[9:] == old


@pytest.mark.parametrize("value", ["x", "bb", "nb", "", "bfdx"])
def test_wrong_barriers(value):
    with pytest.raises(errors.BlockDeviceError, match="barriers"):
        argv.check_barriers(value)


def test_custom_words_come_last():
    params = {**PARAMS, "disk-custom": "--al-extents 257 --x 'a b'"}
    words = Commands84(0).attach("d", "m", 1, params)
    assert words[-4:] == ["--al-extents", "257", "--x", "a b"]
    with pytest.raises(errors.BlockDeviceError, match="disk-custom"):
        Commands84(0).attach("d", "m", 1, {**PARAMS, "disk-custom": "it's"})


def test_connect_84():
    options = NetOptions(protocol="C", secret="s3cret", dual_primary=True, custom="--ko-count 2")
    assert joined(Commands84(1).connect(HERE, THERE, options)) == [
        "drbdsetup connect resource1 ipv4:192.0.2.1:11000 ipv4:192.0.2.2:11000 --protocol C "
        "--after-sb-0pri discard-zero-changes --after-sb-1pri consensus --allow-two-primaries "
        "--cram-hmac-alg md5 --shared-secret s3cret --ko-count 2"
    ]


def test_connect_83():
    options = NetOptions(protocol="A", secret="s3cret", dual_primary=True)
    assert joined(Commands83(1).connect(HERE, THERE, options)) == [
        "drbdsetup /dev/drbd1 net ipv4:192.0.2.1:11000 ipv4:192.0.2.2:11000 A "
        "-A discard-zero-changes -B consensus --create-device -m -a md5 -x s3cret"
    ]


def test_secret_is_never_shown():
    words = Commands84(1).connect(HERE, THERE, NetOptions(protocol="C", secret="s3cret"))[-1]
    assert "s3cret" not in repr(words)


def test_without_secret():
    words = Commands84(1).connect(HERE, THERE, NetOptions(protocol="C", secret=""))[-1]
    assert "--shared-secret" not in words and "--allow-two-primaries" not in words


def test_ipv6():
    assert str(Endpoint("2001:db8::1", 11001)) == "ipv6:[2001:db8::1]:11001"


def test_rates():
    """They are set with the storage: until a connected device has negotiated, it refuses them."""

    def rate(**params):
        words = joined([Commands84(2).attach("/dev/vg/d", "/dev/vg/m", None, {**PARAMS, **params})])
        return words[0].partition("--on-io-error=detach ")[2]

    assert Commands84(2).sync_options(PARAMS) is None
    assert rate() == "--c-plan-ahead 0 --resync-rate 61440"
    assert rate(**{"dynamic-resync": True}) == (
        "--c-plan-ahead 20 --c-fill-target 0 --c-delay-target 1"
        " --c-max-rate 61440 --c-min-rate 4096"
    )
    assert " ".join(Commands83(2).sync_options(PARAMS)) == (
        "drbdsetup /dev/drbd2 syncer -r 61440 --create-device"
    )
    with pytest.raises(errors.BlockDeviceError, match=r"8\.3\.9"):
        Commands83(2, release=8).sync_options({**PARAMS, "dynamic-resync": True})


@pytest.mark.parametrize(
    ("new", "old", "verb", "args"),
    [
        ("primary 5", "/dev/drbd5 primary", "primary", {"force": False}),
        ("primary 5 --force", "/dev/drbd5 primary -o", "primary", {"force": True}),
        ("secondary 5", "/dev/drbd5 secondary", "secondary", {}),
        ("detach 5", "/dev/drbd5 detach", "detach", {}),
        ("down resource5", "/dev/drbd5 down", "down", {}),
        ("outdate 5", "/dev/drbd5 outdate", "outdate", {}),
        ("pause-sync 5", "/dev/drbd5 pause-sync", "pause_sync", {}),
        ("resume-sync 5", "/dev/drbd5 resume-sync", "resume_sync", {}),
        ("show 5", "/dev/drbd5 show", "show", {}),
        ("resize 5 --size 640m", "/dev/drbd5 resize -s 640m", "resize", {"size_mib": 640}),
        (
            "disconnect ipv4:192.0.2.1:11000 ipv4:192.0.2.2:11000",
            "/dev/drbd5 disconnect",
            "disconnect",
            {"local": HERE, "remote": THERE},
        ),
    ],
)
def test_short_commands(new, old, verb, args):
    assert " ".join(getattr(Commands84(5), verb)(**args)) == f"drbdsetup {new}"
    assert " ".join(getattr(Commands83(5), verb)(**args)) == f"drbdsetup {old}"


def test_single_primary_without_disconnecting():
    assert " ".join(Commands84(5).single_primary(HERE, THERE)) == (
        "drbdsetup net-options ipv4:192.0.2.1:11000 ipv4:192.0.2.2:11000 --allow-two-primaries=no"
    )
    assert Commands83(5).single_primary(HERE, THERE) is None


def test_metadata():
    assert " ".join(Commands84(5).create_metadata("/dev/vg/m")) == (
        "drbdmeta --force /dev/drbd5 v08 /dev/vg/m flex-external create-md"
    )
    assert " ".join(Commands83(5).create_metadata("/dev/vg/m")) == (
        "drbdmeta --force /dev/drbd5 v08 /dev/vg/m 0 create-md"
    )


def test_syntax_follows_the_module():
    assert isinstance(argv.commands((8, 4, 11), 0), Commands84)
    assert isinstance(argv.commands((8, 3, 13), 0), Commands83)
    assert isinstance(argv.commands((9, 1, 0), 0), argv.Commands9)
    with pytest.raises(errors.BlockDeviceError, match=r"version 10\.0\.0"):
        argv.commands((10, 0, 0), 0)


def test_a_device_which_waits_for_its_peer():
    commands = Commands84(3)
    words = "drbdsetup disk-options 3 --fencing"
    assert joined([commands.wait_for_peer(True)]) == [f"{words} resource-and-stonith"]
    assert joined([commands.wait_for_peer(False)]) == [f"{words} dont-care"]
    assert joined([commands.resume_requests()]) == ["drbdsetup resume-io 3"]
    # The policy of 8.3 is chosen when the storage is attached.
    assert Commands83(3).wait_for_peer(True) is None
