"""OS definitions: what is valid, what scripts are given, what a failure tells."""

import dataclasses
import os
import shutil
import time

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from ganeti import errors, ht
from ganeti.backend.instance import os as os_definitions
from ganeti.objects import Nic, fill
from ganeti.storage import rbd

VALID = {
    "ganeti_api_version": "20\n15\n",
    "variants.list": "# comment\nsmall\nlarge # big\n\n",
    "parameters.list": "root_size  size of the disk in MiB\nPassword\tof root\n",
}
SCRIPTS = ("create", "export", "import", "rename", "verify")


@pytest.fixture
def tiny(here, script):
    """A valid definition; its scripts print their environment and arguments."""
    path = f"{here.os_search_path[0]}/tiny"
    for name in SCRIPTS:
        script(f"{path}/{name}", 'tr "\\0" "\\n" < /proc/$$/environ; echo "args=$*"; pwd; umask')
    for name, text in VALID.items():
        with open(f"{path}/{name}", "w") as stream:
            stream.write(text)
    return path


def instance(os_name="tiny+small", **changes):
    stored = instance_of(
        "web",
        os=os_name,
        disks=(disk_of("web").uuid,),
        osparams={"root_size": "100"},
        osparams_private=ht.PrivateDict({"password": "x y"}),
        nics=(Nic(mac="aa:00:00:00:00:01", ip="192.0.2.7", nicparams={}, uuid="nic-uuid"),),
        **changes,
    )
    return fill.filled_instance(cluster_of(instances=(stored,), disks=(disk_of("web"),)), stored)


def log_of(here):
    [name] = os.listdir(here.log_os_dir)
    with open(f"{here.log_os_dir}/{name}") as stream:
        return name, stream.read()


def test_diagnose(here, tiny):
    assert os_definitions.os_diagnose() == [
        [
            "tiny",
            tiny,
            True,
            "",
            ["small", "large"],
            [["root_size", "size of the disk in MiB"], ["password", "of root"]],
            [20, 15],
            True,
        ]
    ]


def test_only_create_is_needed_of_the_main_scripts(here, tiny):
    for name in ("export", "import", "rename"):
        os.unlink(f"{tiny}/{name}")
    assert os_definitions.os_diagnose()[0][2] is True
    assert os_definitions.require("tiny").export_script is None


def test_hidden_definition_shows_up(here, tiny):
    shutil.copytree(tiny, f"{here.os_search_path[2]}/tiny")
    assert [row[1] for row in os_definitions.os_diagnose()] == [
        tiny,
        f"{here.os_search_path[2]}/tiny",
    ]


def break_api(path):
    with open(f"{path}/ganeti_api_version", "w") as stream:
        stream.write("5\n")


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda path: os.unlink(f"{path}/ganeti_api_version"), "'ganeti_api_version' is missing"),
        (break_api, "API versions 5 are none"),
        (lambda path: open(f"{path}/ganeti_api_version", "w").write("x"), "not a number"),
        (lambda path: open(f"{path}/ganeti_api_version", "w").write("\n"), "is empty"),
        (lambda path: os.unlink(f"{path}/create"), "neither a script 'create'"),
        (lambda path: os.chmod(f"{path}/export", 0o644), "'export' is not an executable file"),
        (lambda path: os.unlink(f"{path}/verify"), "script 'verify' is missing"),
        (lambda path: os.unlink(f"{path}/parameters.list"), "'parameters.list' is missing"),
        (lambda path: open(f"{path}/variants.list", "w").write("# none\n"), "contains no variant"),
    ],
)
def test_invalid_definitions(here, tiny, harm, text):
    harm(tiny)
    [row] = os_definitions.os_diagnose()
    assert row[:3] == ["tiny", tiny, False]
    assert text in row[3]
    with pytest.raises(errors.OpExecError, match="is not valid"):
        os_definitions.require("tiny+small")


def test_api_10_needs_neither_verify_nor_lists(here, tiny):
    with open(f"{tiny}/ganeti_api_version", "w") as stream:
        stream.write("10\n")
    for name in ("verify", "parameters.list", "variants.list"):
        os.unlink(f"{tiny}/{name}")
    [row] = os_definitions.os_diagnose()
    assert row[2:] == [True, "", [], [], [10], True]
    assert os_definitions.core_env(os_definitions.require("tiny"), "tiny", {})["OS_VARIANT"] == ""


def test_a_disk_without_a_device_has_an_address(here, tiny, monkeypatch):
    """With access=userspace the hypervisor reaches an image itself, and so may a script."""
    monkeypatch.setattr(rbd.RbdDevice, "_mapped", lambda self: None)
    guest = instance(hypervisor="kvm")
    (disk,) = guest.disks_info
    for access, uri in (("userspace", "rbd:pool1/img"), ("kernelspace", None)):
        image = dataclasses.replace(
            disk,
            dev_type="rbd",
            logical_id=("rbd", "img"),
            params={"pool": "pool1", "access": access},
        )
        found = dataclasses.replace(guest, disks_info=(image,))
        env = os_definitions.instance_env(os_definitions.require("tiny+small"), found)
        assert env.get("DISK_0_URI") == uri
        assert env["DISK_0_BACKEND_TYPE"] == "block"


@pytest.mark.programs
def test_create_gets_exactly_the_documented_environment(here, tiny, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    guest = instance()
    os_definitions.instance_os_add(guest, reinstall=False, debug_level=2)
    name, text = log_of(here)
    assert name.startswith("add-tiny+small-web.example.com-20")
    lines = text.splitlines()
    assert lines[-3:] == ["args=", tiny, "0077"]
    disk = guest.disks_info[0]
    assert dict(line.split("=", 1) for line in lines[:-3]) == {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "OS_API_VERSION": "20",
        "OS_NAME": "tiny",
        "OS_VARIANT": "small",
        "DEBUG_LEVEL": "2",
        "IMAGES_DIR": here.images_dir,
        "OSP_ROOT_SIZE": "100",
        "OSP_PASSWORD": "x y",
        "INSTANCE_NAME": "web.example.com",
        "INSTANCE_UUID": guest.uuid,
        "INSTANCE_OS": "tiny+small",
        "INSTANCE_CTIME": "0",
        "INSTANCE_MTIME": "0",
        "INSTANCE_PRIMARY_NODE": guest.primary_node,
        "INSTANCE_SECONDARY_NODES": "",
        "HYPERVISOR": "fake",
        "DISK_COUNT": "1",
        "NIC_COUNT": "1",
        **{f"INSTANCE_BE_{key}": str(value) for key, value in guest.beparams.items()},
        **{f"INSTANCE_HV_{key}": str(value) for key, value in guest.hvparams.items()},
        "DISK_0_PATH": here.to_local(disk.logical_id[1]),
        "DISK_0_ACCESS": "rw",
        "DISK_0_SIZE": "1024",
        "DISK_0_UUID": disk.uuid,
        "DISK_0_BACKEND_TYPE": "file:loop",
        "NIC_0_MAC": "aa:00:00:00:00:01",
        "NIC_0_UUID": "nic-uuid",
        "NIC_0_MODE": "bridged",
        "NIC_0_IP": "192.0.2.7",
        "NIC_0_LINK": "xen-br0",
        "NIC_0_BRIDGE": "xen-br0",
    }


@pytest.mark.programs
def test_reinstall_is_told(here, tiny):
    os_definitions.instance_os_add(instance(), reinstall=True, debug_level=0)
    assert "INSTANCE_REINSTALL=1" in log_of(here)[1].splitlines()


@pytest.mark.programs
def test_failure_brings_the_last_twenty_lines(here, tiny, script):
    script(f"{tiny}/create", "for n in $(seq 1 50); do echo line $n; done; echo oops >&2; exit 4")
    with pytest.raises(errors.OpExecError) as caught:
        os_definitions.instance_os_add(instance(), reinstall=False, debug_level=0)
    text = str(caught.value)
    assert "create of tiny+small for instance web.example.com failed" in text
    assert "exited with exit code 4" in text
    assert here.log_os_dir in text
    assert text.splitlines()[1:] == [f"line {n}" for n in range(32, 51)] + ["oops"]
    assert log_of(here)[1].startswith("line 1\n")


def test_untrusted_definition_is_not_run_here(here, tiny, script):
    script(f"{tiny}/create_untrusted", "exit 0")
    assert os_definitions.os_diagnose()[0][7] is False
    with pytest.raises(errors.OpExecError, match="not trusted"):
        os_definitions.instance_os_add(instance(), reinstall=False, debug_level=0)


def test_misspelt_definition(here, tiny):
    with pytest.raises(errors.OpExecError, match=r"on this node\. Did you mean 'tiny'\?"):
        os_definitions.instance_os_add(instance("tniy+plain"), reinstall=False, debug_level=0)


def test_a_missing_definition_and_others(here, tiny):
    with pytest.raises(errors.OpExecError, match="not exist on this node, which has tiny"):
        os_definitions.validate(True, "other", ["parameters"], {}, False)


def test_missing_definition(here):
    with pytest.raises(
        errors.OpExecError, match="OS nothing does not exist on this node, which has"
    ):
        os_definitions.instance_os_add(instance("nothing"), reinstall=False, debug_level=0)
    assert not os_definitions.validate(False, "nothing", ["parameters"], {}, False)
    with pytest.raises(errors.OpExecError, match="OS nothing does not exist"):
        os_definitions.validate(True, "nothing", ["parameters"], {}, False)


@pytest.mark.parametrize("name", ["", "..", "../tiny", "a/b", "+small"])
def test_names_that_are_paths(here, tiny, name):
    with pytest.raises(errors.OpExecError, match="not a name"):
        os_definitions.validate(True, name, [], {}, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [("tiny", "needs a variant, one of small, large"), ("tiny+huge", "no variant 'huge'")],
)
def test_variants(here, tiny, name, text):
    with pytest.raises(errors.OpExecError, match=text):
        os_definitions.validate(True, name, [], {}, False)


@pytest.mark.programs
def test_settings_of_the_cluster_are_for_all_variants_or_for_one(here, tiny, script):
    """``gnt-os modify tiny`` and ``gnt-os modify tiny+small``."""
    for name in ("tiny", "tiny+small", "tiny+new"):
        assert os_definitions.validate(False, name, ["parameters"], {"root_size": "1"}, True)
    script(f"{tiny}/verify", 'echo "no $OSP_ROOT_SIZE for $OS_VARIANT"; exit 1')
    with pytest.raises(errors.OpExecError, match="no 7 for small"):
        os_definitions.validate(False, "tiny", ["parameters"], {"root_size": "7"}, True)


def test_forced_variant(here, tiny):
    assert os_definitions.validate(True, "tiny+huge", [], {}, True)


@pytest.mark.programs
def test_verify_script(here, tiny, script):
    assert os_definitions.validate(True, "tiny+small", ["parameters"], {"root_size": "1"}, False)
    script(f"{tiny}/verify", '[ "$1" = parameters ] && echo "size $OSP_ROOT_SIZE is bad"; exit 1')
    with pytest.raises(errors.OpExecError, match="size 7 is bad"):
        os_definitions.validate(True, "tiny+small", ["parameters"], {"root_size": "7"}, False)


def test_unknown_parameters_and_checks(here, tiny):
    with pytest.raises(errors.OpExecError, match="no parameters color. It has password, root_size"):
        os_definitions.validate(True, "tiny+small", ["parameters"], {"color": "red"}, False)
    with pytest.raises(errors.OpExecError, match="unknown checks .* colors"):
        os_definitions.validate(True, "tiny+small", ["colors"], {}, False)


def test_nic_of_a_network(here, tiny):
    guest = instance()
    network = type(
        "Network",
        (),
        {
            "name": "net",
            "uuid": "u",
            "network": "192.0.2.0/24",
            "gateway": None,
            "network6": None,
            "gateway6": None,
            "mac_prefix": None,
            "tags": ("a", "b"),
        },
    )
    nic = dataclasses.replace(guest.nics[0], netinfo=network)
    env = os_definitions.instance_env(
        os_definitions.require("tiny"), dataclasses.replace(guest, nics=(nic,))
    )
    assert {key: value for key, value in env.items() if key.startswith("NIC_0_NETWORK")} == {
        "NIC_0_NETWORK_NAME": "net",
        "NIC_0_NETWORK_UUID": "u",
        "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
        "NIC_0_NETWORK_TAGS": "a b",
    }


def test_the_version_is_the_first_line(tiny):
    with open(f"{tiny}/os_version", "w") as stream:
        stream.write(" 2.1 \nmore\n")
    [row] = os_definitions.os_diagnose()
    assert row[7:] == [True, "2.1", []]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("size one\nSIZE two\n", "two parameters size"),
        ("root size\n$(rm) x\n", "'\\$\\(rm\\)' is not the name"),
        ("a=b\n", "not the name"),
    ],
)
def test_parameters_that_cannot_be_variables(tiny, text, fragment):
    with open(f"{tiny}/parameters.list", "w") as stream:
        stream.write(text)
    [row] = os_definitions.os_diagnose()
    assert row[2] is False
    with pytest.raises(errors.OpExecError, match=fragment):
        os_definitions.require("tiny")


def test_api_5_alone_is_not_supported_but_does_no_harm_beside_20(tiny):
    for text, valid in (("5\n20\n", True), ("5\n", False), ("5\n10\n15", True)):
        with open(f"{tiny}/ganeti_api_version", "w") as stream:
            stream.write(text)
        [row] = os_definitions.os_diagnose()
        assert row[2] is valid, text
    assert row[6] == [5, 10, 15]


def test_hypervisors(tiny):
    check = [os_definitions.VALIDATE_HYPERVISOR + "kvm"]
    assert os_definitions.validate(True, "tiny+small", check, {}, False)
    with open(f"{tiny}/hypervisors", "w") as stream:
        stream.write("# only these\nxen-pvm\nfake\n")
    with pytest.raises(errors.OpExecError, match="not made for hypervisor kvm, only for xen-pvm"):
        os_definitions.validate(True, "tiny+small", check, {}, False)
    assert os_definitions.validate(True, "tiny+small", ["hypervisor:fake"], {}, False)
    [row] = os_definitions.os_diagnose()
    assert row[8:] == ["", ["xen-pvm", "fake"]]
    with pytest.raises(errors.OpExecError, match="not made for hypervisor kvm"):
        os_definitions.instance_os_add(dataclasses.replace(instance(), hypervisor="kvm"), False, 0)
    with open(f"{tiny}/hypervisors", "w") as stream:
        stream.write("\n")
    assert os_definitions.os_diagnose()[0][3] == "file 'hypervisors' contains no hypervisor"


def test_only_the_wanted_checks_are_made(tiny, script):
    script(f"{tiny}/verify", "exit 1")
    assert os_definitions.validate(True, "tiny+small", ["trusted"], {}, False)
    script(f"{tiny}/create_untrusted", "exit 0")
    with pytest.raises(errors.OpExecError, match="is not trusted"):
        os_definitions.validate(True, "tiny+small", ["trusted"], {}, False)
    with pytest.raises(errors.OpExecError, match="unknown checks .*: taste"):
        os_definitions.validate(True, "tiny+small", ["taste"], {}, False)


def test_all_that_is_wrong_is_said_at_once(here, script):
    path = f"{here.os_search_path[0]}/mine"
    script(f"{path}/create", "exit 0", mode=0o644)
    [row] = os_definitions.os_diagnose()
    assert row[3] == (
        "file 'ganeti_api_version' is missing; script 'create' is not an executable file;"
        " script 'verify' is missing; file 'parameters.list' is missing"
    )


def test_one_odd_definition_does_not_hide_the_others(here, tiny):
    top = os.path.dirname(tiny)
    kinds = ("binary", "directory", "fifo", "loop")
    for kind in kinds:
        shutil.copytree(tiny, f"{top}/{kind}")
        os.unlink(f"{top}/{kind}/variants.list")
    with open(f"{top}/binary/variants.list", "wb") as stream:
        stream.write(b"a\xff\x00b\n")
    os.mkdir(f"{top}/directory/variants.list")
    os.mkfifo(f"{top}/fifo/variants.list")
    os.unlink(f"{top}/loop/ganeti_api_version")
    os.symlink("ganeti_api_version", f"{top}/loop/ganeti_api_version")
    rows = {row[0]: row for row in os_definitions.os_diagnose()}
    assert rows["tiny"][2] is True
    assert [rows[kind][2] for kind in kinds] == [False] * 4
    assert "cannot be a name" in rows["binary"][3]


def test_the_log_of_a_script_has_a_name_which_file_systems_take():
    when = time.gmtime(0)
    long = os_definitions.log_name("import", f"{'o' * 60}+v", "i" * 200, when)
    assert len(long) == 255
    assert long.startswith("import-ooo") and long.endswith("i-1970-01-01_00_00_00.log")
    assert (
        os_definitions.log_name("add", "a/b", "web", when) == "add-a_b-web-1970-01-01_00_00_00.log"
    )
