"""The call table and its encodings."""

import pytest

from fakes.config import FakeConfig, cluster_of, disk_of, instance_of
from ganeti import errors, ht
from ganeti.objects import BlockDevStatus, FilledInstance
from ganeti.wire import calls, json
from ganeti.wire.calls import base


@pytest.fixture
def config():
    instance = instance_of("web", disks=(disk_of("web").uuid,))
    return FakeConfig(cluster_of(instances=(instance,), disks=(disk_of("web"),)))


def through_the_wire(call, config, **args):
    body = json.loads(json.dumps(call.encode_args(args, config)))
    return call.decode_args(body)


def test_every_call_is_in_the_table_under_its_name():
    constants = {
        name: value for name, value in vars(calls).items() if isinstance(value, calls.Call)
    }
    assert set(calls.TABLE.values()) == set(constants.values())
    assert all(name == call.name.upper() for name, call in constants.items())
    assert set(constants) <= set(calls.__all__)


def test_instance_arrives_filled(config):
    args = through_the_wire(
        calls.INSTANCE_START,
        config,
        instance=config.instances()[0],
        startup_paused=False,
        reason=[["user", "", 1]],
    )
    instance = args["instance"]
    assert isinstance(instance, FilledInstance)
    assert instance.beparams["vcpus"] == 1
    assert instance.nics[0].nicparams["mode"] == "bridged"
    assert [disk.dev_type for disk in instance.disks_info] == ["sharedfile"]
    assert args["startup_paused"] is False


def test_instance_with_overrides(config):
    args = through_the_wire(
        calls.INSTANCE_OS_ADD,
        config,
        reinstall=False,
        debug_level=0,
        instance=(config.instances()[0], None, {"vcpus": 7}, {"root_size": "1"}),
    )
    assert args["instance"].beparams["vcpus"] == 7
    assert args["instance"].osparams == {"root_size": "1"}


def test_disk_arrives_with_parameters(config):
    pair = (disk_of("web"), config.instances()[0])
    args = through_the_wire(calls.BLOCKDEV_FIND, config, disk=pair)
    assert args["disk"].logical_id == disk_of("web").logical_id
    assert isinstance(args["disk"].params, dict)
    args = through_the_wire(calls.BLOCKDEV_GETDIMENSIONS, config, disks=[pair, pair])
    assert len(args["disks"]) == 2


def test_disk_renames(config):
    args = through_the_wire(
        calls.BLOCKDEV_RENAME,
        config,
        renames=[(disk_of("web"), config.instances()[0], ("loop", "/srv/new"))],
    )
    disk, new_id = args["renames"][0]
    assert (disk.uuid, new_id) == (disk_of("web").uuid, ("loop", "/srv/new"))


def test_missing_and_unknown_arguments_are_the_callers_fault(config):
    with pytest.raises(errors.ProgrammerError, match="duration_s"):
        calls.TEST_DELAY.encode_args({}, config)
    with pytest.raises(errors.ProgrammerError, match="color"):
        calls.VERSION.encode_args({"color": 1}, config)


@pytest.mark.parametrize(
    ("call", "body", "text"),
    [
        (calls.TEST_DELAY, None, "takes 1 arguments, got no list"),
        (calls.TEST_DELAY, {}, "takes 1 arguments"),
        (calls.TEST_DELAY, [1, 2], "takes 1 arguments, got 2"),
        (calls.TEST_DELAY, ["x"], "argument duration_s is not"),
        (calls.TEST_DELAY, [True], "argument duration_s is not"),
        (calls.BLOCKDEV_FIND, [17], "argument disk: expected a disk"),
        (calls.BLOCKDEV_FIND, [{"dev_type": "file"}], "argument disk: .*missing"),
        (
            calls.BLOCKDEV_FIND,
            [{"dev_type": "file", "logical_id": [], "size": 1, "x": 1}],
            "x: unknown key",
        ),
        (calls.INSTANCE_MIGRATABLE, [[]], "argument instance: expected an instance"),
        (calls.JOBQUEUE_UPDATE, ["job-1", ["x"]], "argument content: expected an encoded text"),
        (calls.JOBQUEUE_UPDATE, ["job-1", [2, "x"]], "unknown text encoding 2"),
        (calls.JOBQUEUE_UPDATE, ["job-1", [1, "!"]], "damaged compressed text"),
        (calls.JOBQUEUE_UPDATE, ["job-1", [1, "AAAA"]], "damaged compressed text"),
        (calls.JOBQUEUE_UPDATE_MANY, [[["job-1"]]], "expected a file name and a text"),
        (calls.UPLOAD_FILE, [["/x"]], "expected a file"),
        (calls.UPLOAD_FILE, [["/x", [0, ""], "7", "root", "root", 0, 0]], "expected path, content"),
        (calls.BLOCKDEV_RENAME, [[[1]]], "expected a disk and a new id"),
    ],
)
def test_bad_bodies(call, body, text):
    with pytest.raises(errors.ParseError, match=text) as caught:
        call.decode_args(body)
    assert call.name in str(caught.value)


@pytest.mark.parametrize("text", ["", "short", "x" * 511, "x" * 512, "ü" * 3000])
def test_texts_survive_compression(text):
    wire = base.compress(text)
    assert wire[0] == (1 if len(text.encode()) >= 512 else 0)
    assert base.decompress(json.loads(json.dumps(wire))) == text


def test_compressed_bomb_is_stopped(monkeypatch):
    monkeypatch.setattr(base, "TEXT_MAX_BYTES", 1000)
    with pytest.raises(errors.ParseError, match="longer than 1000 bytes"):
        base.decompress(base.compress("x" * 100_000))


def test_many_compressed_texts_share_one_limit(monkeypatch):
    monkeypatch.setattr(base, "TEXT_MAX_BYTES", 1000)
    whole = [["a", base.compress("x" * 600)], ["b", base.compress("y" * 400)]]
    assert base.TEXTS.decode(whole) == [("a", "x" * 600), ("b", "y" * 400)]
    for more in (base.compress("z" * 600), [0, "z"]):
        with pytest.raises(errors.ParseError, match="longer than 1000 bytes"):
            base.TEXTS.decode([*whole, ["c", more]])


def test_cut_text_is_noticed():
    wire = base.compress("x" * 100_000)
    wire[1] = wire[1][: len(wire[1]) // 8 * 4]
    with pytest.raises(errors.ParseError, match="cut short|damaged"):
        base.decompress(wire)


def test_result_shapes():
    plain = base.ResultCodec(ht.ListOf(ht.Int))
    assert plain.decode(plain.encode([1])) == [1]
    with pytest.raises(errors.ResultValidationError, match="handler returned"):
        plain.encode("x")
    with pytest.raises(errors.ParseError, match="expected list"):
        plain.decode("x")


def test_result_objects():
    status = BlockDevStatus(dev_path="/dev/x", is_degraded=False)
    one = calls.BLOCKDEV_FIND.result
    assert one.decode(json.loads(json.dumps(one.encode(status)))) == status
    assert one.decode(one.encode(None)) is None
    with pytest.raises(errors.ResultValidationError):
        one.encode({})
    with pytest.raises(errors.ParseError):
        one.decode([])
    many = calls.BLOCKDEV_GETMIRRORSTATUS.result
    assert many.decode(many.encode([status])) == [status]


def test_time_limits():
    assert calls.VERSION.time_limit_s({}) == 60
    assert calls.TEST_DELAY.time_limit_s({"duration_s": 10}) == 15
    assert calls.INSTANCE_SHUTDOWN.time_limit_s({"timeout_s": 120}) > 120


def test_results_for_each_of_several():
    codec = calls.BLOCKDEV_FIND_MULTI.result
    status = BlockDevStatus(dev_path="/dev/x", is_degraded=False)
    wire = json.loads(json.dumps(codec.encode([status, None, errors.BlockDeviceError("broken")])))
    first, second, third = codec.decode(wire)
    assert (first, second, third.text) == (status, None, "broken")
    assert isinstance(third.cause, errors.BlockDeviceError)
    with pytest.raises(errors.ResultValidationError):
        codec.encode([{}])
    for bad in ({}, [1], [[True]], [[False, "x"]], [[False, 1, None]]):
        with pytest.raises(errors.ParseError):
            codec.decode(bad)


def test_the_time_limit_of_a_call_for_several_disks_grows_with_them():
    limit = calls.BLOCKDEV_REMOVE_MULTI.time_limit_s
    one = calls.BLOCKDEV_REMOVE.time_limit_s({})
    assert [limit({"disks": [None] * count}) for count in (1, 8)] == [one, 8 * one]
