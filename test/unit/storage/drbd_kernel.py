"""A kernel module of DRBD that is a dictionary, and a disk for it."""

from __future__ import annotations

from ganeti import errors
from ganeti.objects import Disk
from ganeti.utils.process import Completed

SECRET = "c0ffee"
DATA, META = "/dev/xenvg/d0_data", "/dev/xenvg/d0_meta"
OTHER = "/dev/xenvg/other_data"


def plain(name, size=1024):
    return Disk(dev_type="plain", logical_id=("xenvg", name), size=size, params={"stripes": 1})


def mirrored(**changes):
    fields = {
        "dev_type": "drbd",
        "size": 1024,
        "uuid": "disk-uuid",
        "iv_name": "disk/0",
        "logical_id": ("node-a", "node-b", 11000, 0, 4, SECRET),
        "children": (plain("d0_data"), plain("d0_meta", 128)),
        "params": {"resync-rate": 61440, "protocol": "A", "disabled-barriers": "n"},
        "dynamic_params": {
            "local-ip": "192.0.2.1",
            "remote-ip": "192.0.2.2",
            "port": 11000,
            "local-minor": 0,
            "remote-minor": 4,
        },
        **changes,
    }
    return Disk(**fields)


class Kernel:
    """DRBD 8.4 with one minor, driven by the commands; nothing else is understood."""

    def __init__(self):
        self.commands = []
        self.failing = {}
        self.resource = self.data = self.meta = self.peer = self.secret = None
        self.dual = self.primary = False
        self.connection, self.local, self.remote = "StandAlone", "Inconsistent", "DUnknown"
        self.meta_sectors = 128 * 2048
        self.agreed = "la-size-sect 0;"
        self.own_size = "# md_size_sect 262144\n"
        self.sectors = None
        self.remote_role = "Unknown"
        self.waits = self.suspended = False

    def state(self):
        if self.data is None and self.peer is None:
            return ""
        role = "Primary" if self.primary else "Secondary"
        return (
            f" 0: cs:{self.connection} ro:{role}/{self.remote_role}"
            f" ds:{self.local if self.data else 'Diskless'}/{self.remote}"
            f" C {'s' if self.suspended else 'r'}---\n    oos:0\n"
        )

    def show(self):
        net = remote = address = disk = ""
        if self.peer:
            dual = "allow-two-primaries yes;" if self.dual else ""
            net = f'net {{ cram-hmac-alg "md5"; shared-secret "{self.secret}"; {dual} }}'
            remote = f"_remote_host {{ address ipv4 {self.peer}; }}"
            address = "address ipv4 192.0.2.1:11000;"
        if self.data:
            disk = f'disk "{self.data}"; meta-disk "{self.meta}";'
            disk += "disk { fencing resource-and-stonith; }" if self.waits else ""
        return (
            f"resource {self.resource} {{ options {{ }} {net} {remote} _this_host {{ {address}"
            f" volume 0 {{ device minor 0; {disk} }} }} }}"
        )

    def run(self, words, *, timeout_s, check=True, **_options):
        words = [str.__str__(word) for word in words]
        self.commands.append(words)
        name = words[1] if words[0] == "drbdsetup" else words[0]
        code, out = 0, ""
        if name in self.failing:
            code, out = 11, self.failing[name]
        else:
            out = getattr(self, "do_" + name.replace("-", "_"), lambda words: "")(words) or ""
        if code and check:
            raise errors.CommandError(words, code, out)
        return Completed(tuple(words), code, out, "", None)

    def do_new_resource(self, words):
        self.resource = words[2]

    def do_attach(self, words):
        assert self.data is None, "attached twice"
        self.data, self.meta = words[3:5]

    def do_connect(self, words):
        self.peer = words[4].partition(":")[2]
        self.secret = words[words.index("--shared-secret") + 1]
        self.dual = "--allow-two-primaries" in words
        self.connection = "WFConnection"

    def do_drbdmeta(self, words):
        if words[-1] != "dump-md":
            return ""
        assert self.data is None, "drbdmeta does not read metadata which are in use"
        return f'version "v08";\n\n{self.own_size}uuid {{ 0x4; }}\n{self.agreed}\nbm {{ }}'

    def do_net_options(self, words):
        assert words[2:] == [
            "ipv4:192.0.2.1:11000",
            "ipv4:192.0.2.2:11000",
            "--allow-two-primaries=no",
        ]
        assert not (self.primary and self.remote_role == "Primary")
        self.dual = False

    def do_disconnect(self, words):
        self.peer = self.secret = None
        self.connection = "StandAlone"

    def do_detach(self, words):
        self.data = self.meta = None

    def do_down(self, words):
        assert words[2] == self.resource
        self.resource = self.data = self.meta = self.peer = None

    def do_primary(self, words):
        self.primary = True

    def do_disk_options(self, words):
        if "--fencing" in words:
            self.waits = words[-1] == "resource-and-stonith"

    def do_resume_io(self, words):
        assert not self.waits, "it would wait again"
        self.suspended = False

    def do_outdate(self, words):
        self.local = "Outdated"

    def do_secondary(self, words):
        self.primary = False

    def do_show(self, words):
        return self.show()

    def do_blockdev(self, words):
        return f"{self.meta_sectors}\n"

    def verbs(self):
        """The commands in short, without those that only look."""
        short = [
            words[1]
            if words[0] == "drbdsetup"
            else words[-1]
            if words[0] == "drbdmeta"
            else words[0]
            for words in self.commands
        ]
        return [verb for verb in short if verb not in ("show", "blockdev")]

    def ours(self, *, connected=True):
        """What a finished assembly leaves."""
        self.resource, self.data, self.meta = "resource0", DATA, META
        if connected:
            self.peer, self.secret = "192.0.2.2:11000", SECRET
            self.connection, self.local, self.remote = "Connected", "UpToDate", "UpToDate"
