"""Made-up clusters in the text format, with everything that counts for placement."""

from __future__ import annotations

import random
from typing import Any


def make(seed: int, *, forthcoming: bool = False) -> tuple[str, list[str]]:
    """Make a cluster.

    :returns: the cluster in the text format, and options for ``hbal``.
    """
    r = random.Random(seed)
    tags = _tags(r)
    exclusive = r.random() < 0.15
    nodes = [_node(r, number, exclusive) for number in range(r.randint(2, 7))]
    names = [str(node["name"]) for node in nodes]
    used = {name: [0, 0, 0] for name in names}
    instances = [
        _instance(r, number, names, used, exclusive, forthcoming)
        for number in range(r.randint(1, 25))
    ]
    lines = ["grp|u1|preferred||", ""]
    for node in nodes:
        memory, disk, spindles = used[str(node["name"])]
        total, own, space = int(node["memory"]), int(node["own"]), int(node["disk"])
        lines.append(
            f"{node['name']}|{total}|{own}|{total - own - memory + r.choice([0, 0, 0, -300, 100])}"
            f"|{space}|{max(0, space - disk)}|{r.choice([2, 4, 8, 8, 8, 8])}|{node['flag']}|u1"
            f"|{node['spindles']}|{node['tags']}|{'Y' if exclusive else 'N'}"
            f"|{max(0, int(node['spindles']) - spindles) if exclusive else 0}|1"
            f"|{r.choice([1.0, 1.0, 1.5])}"
        )
    policy = (
        "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|diskless,file,sharedfile,plain,"
        f"blockdev,drbd,rbd,ext|{r.choice([4.0, 4.0, 1.0, 0.7])}|{r.choice([32.0, 32.0, 4.0])}"
    )
    lines += ["", *instances, "", *tags, "", f"|{policy}", f"grp|{policy}"]
    return "".join(f"{line}\n" for line in lines), _options(r)


def _tags(r: random.Random) -> list[str]:
    found = []
    if r.random() < 0.4:
        found.append("htools:iextags:svc")
    if r.random() < 0.5:
        found.append("htools:nlocation:pw")
        if r.random() < 0.5:
            found.append("htools:desiredlocation:pw")
    if r.random() < 0.3:
        found.append("htools:migration:hv")
        if r.random() < 0.5:
            found.append("htools:allowmigration:hv:a::hv:b")
    return found


def _node(r: random.Random, number: int, exclusive: bool) -> dict[str, object]:
    tags = [r.choice(["pw:1", "pw:2", "pw:3"])] if r.random() < 0.6 else []
    if r.random() < 0.6:
        tags.append(r.choice(["hv:a", "hv:b"]))
    return {
        "name": f"node{number}",
        "memory": r.choice([8192, 16384, 12000, 4000]),
        "own": r.choice([0, 512]),
        "disk": r.choice([100000, 200000, 50000]),
        "flag": "Y" if r.random() < 0.12 else "N",
        "tags": ",".join(tags),
        "spindles": r.randint(5, 20) if exclusive else r.choice([1, 2, 4]),
    }


def _instance(
    r: random.Random,
    number: int,
    names: list[str],
    used: dict[str, list[int]],
    exclusive: bool,
    forthcoming: bool,
) -> str:
    template = r.choice(["drbd"] * 5 + ["plain", "ext", "file", "sharedfile", "diskless"])
    primary = r.choice(names)
    secondary = r.choice([n for n in names if n != primary]) if template == "drbd" else ""
    memory, disk = r.choice([128, 512, 1024, 700]), r.choice([1024, 2048, 5000])
    status = r.choice(
        ["running"] * 6 + ["ADMIN_down", "ADMIN_offline", "ERROR_up", "ERROR_down", "USER_down"]
    )
    tags = [r.choice(["svc:a", "svc:b", "svc:c"])] if r.random() < 0.4 else []
    if r.random() < 0.3:
        tags.append(r.choice(["pw:1", "pw:2"]))
    reserved = forthcoming and r.random() < 0.1
    spindles = r.choice([1, 2])
    if not reserved:
        for name in filter(None, (primary, secondary)):
            if template in ("drbd", "plain", "file"):
                used[name][1] += disk
                used[name][2] += spindles
        if status in ("running", "ERROR_up"):
            used[primary][0] += memory
    return (
        f"inst{number}|{memory}|{disk}|{r.choice([1, 1, 2, 4])}|{status}"
        f"|{'N' if r.random() < 0.08 else 'Y'}|{primary}|{secondary}|{template}|{','.join(tags)}"
        f"|{r.choice([1, 1, 2, 3])}|{spindles if exclusive else '-'}|{'Y' if reserved else 'N'}"
    )


def _options(r: random.Random) -> list[str]:
    possible = (
        (0.2, ["--ignore-soft-errors"]),
        (0.15, ["--evac-mode"]),
        (0.15, ["--restricted-migration"]),
        (0.1, ["--no-disk-moves"]),
        (0.1, ["--no-instance-moves"]),
        (0.2, ["--min-disk", "0.2"]),
        (0.2, ["--max-cpu", "1.5"]),
        (0.2, ["--ignore-dynu"]),
    )
    return [word for chance, words in possible if r.random() < chance for word in words]


def make_larger(seed: int) -> str:
    """Make a cluster with up to 16 nodes in one or two groups, of equal or of different sizes.

    :returns: the cluster in the text format.
    """
    r = random.Random(seed)
    different = r.random() < 0.5
    groups = r.choice([1, 1, 2])
    group = {f"node{number:02}": r.randrange(groups) for number in range(r.randint(4, 16))}
    used = {name: [0, 0] for name in group}
    rows = []
    for number in range(r.choice([0, 0, len(group), 4 * len(group)])):
        chosen = r.randrange(groups)
        members = [name for name in group if group[name] == chosen]
        if len(members) < 2:
            continue
        first, second = r.sample(members, 2)
        memory, disk = r.choice([512, 1024, 2048]), r.choice([10, 20]) * 1024
        status = r.choice(["running", "running", "running", "ADMIN_down", "ADMIN_offline"])
        rows.append(
            f"inst{number}|{memory}|{disk}|{r.choice([1, 2])}|{status}|{r.choice('YYYN')}|{first}"
            f"|{second}|drbd||1|-|N"
        )
        used[first][0] += memory if status != "ADMIN_offline" else 0
        for name in (first, second):
            used[name][1] += disk
    nodes = []
    for name, (memory, disk) in used.items():
        total = r.choice([16384, 32768, 24000]) if different else 32768
        space = r.choice([300000, 600000]) if different else 600000
        unknown = r.choice([0, 0, -50, 100]) if different else 0
        nodes.append(
            f"{name}|{total}|512|{total - 512 - memory + unknown}|{space}|{space - disk}"
            f"|{r.choice([8, 16]) if different else 16}|{'Y' if r.random() < 0.05 else 'N'}"
            f"|u{group[name]}|{r.choice([1, 2]) if different else 1}||N|0|1"
            f"|{r.choice([1.0, 1.5]) if different else 1.0}"
        )
    policy = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd,plain|4.0|32.0"
    lines = [f"group{number}|u{number}|preferred||" for number in range(groups)]
    lines += ["", *nodes, "", *rows, "", "", f"|{policy}"]
    lines += [f"group{number}|{policy}" for number in range(groups)]
    return "".join(f"{line}\n" for line in lines)


def make_plain(seed: int) -> str:
    """Make a cluster without tags and with little memory, whose nodes can nearly all be lost.

    :returns: the cluster in the text format.
    """
    r = random.Random(seed)
    count = r.randint(2, 8)
    used = {number: [0, 0] for number in range(count)}
    instances = []
    for number in range(r.randint(1, 30)):
        template = r.choice(r.choice([["drbd"], ["drbd", "drbd", "ext", "plain"], ["sharedfile"]]))
        memory, disk, primary = (
            r.choice([128, 256, 512]),
            r.choice([1024, 2048]),
            r.randrange(count),
        )
        secondary = r.choice([n for n in range(count) if n != primary])
        for node in (primary, secondary) if template == "drbd" else (primary,):
            used[node][1] += disk if template in ("drbd", "plain") else 0
        used[primary][0] += memory
        other = f"node{secondary}" if template == "drbd" else ""
        instances.append(
            f"inst{number}|{memory}|{disk}|1|running|{r.choice('YYYN')}|node{primary}|{other}"
            f"|{template}||1|-|N"
        )
    total = r.choice([3000, 6000, 12000])

    def units(free: int) -> str:
        """The column with storage units, in every second cluster."""
        lvm = f"{free},60000,lvm-vg,vg;{free},60000,drbd8,vg"
        return f"|{lvm};7000,9000,sharedfile,/shared" if seed % 2 else ""

    nodes = [
        f"node{number}|{total}|200|{total - 200 - memory}|60000|{60000 - disk}|8|N"
        f"|{r.choice(['u1', 'u1', 'u1', 'u2'])}|1||N|0|1|1.0{units(60000 - disk)}"
        for number, (memory, disk) in used.items()
    ]
    policy = (
        "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|diskless,file,sharedfile,plain,"
        "blockdev,drbd,rbd,ext|4.0|32.0"
    )
    groups = ["grp|u1|preferred||", "two|u2|preferred||"]
    parts = [*groups, "", *nodes, "", *instances, "", "", f"|{policy}", f"grp|{policy}"]
    return "".join(f"{line}\n" for line in [*parts, f"two|{policy}"])


def capacity_options(seed: int) -> list[str]:
    """Options for ``hspace``, which fit the cluster of a seed.

    The sizes are small, because the original needs minutes to shrink large ones. The loss of nodes
    is not looked at for mirrored instances, for which the original does not do it.
    """
    r = random.Random(-seed)
    template = r.choice(["drbd", "drbd", "plain", "ext", "file", "diskless"])
    words = ["--disk-template", template]
    words += ["-l", str(r.choice([3, 10, 20]))] if r.random() < 0.5 else []
    for option in ("--independent-groups", "--accept-existing-errors"):
        if r.random() < 0.35:
            words.append(option)
    if template == "drbd" or r.random() < 0.35:
        words.append("--no-capacity-checks")
    words += ["--standard-alloc", r.choice(["1g,256m,1", "2g,1g,2", "5g,512m,1"])]
    return [*words, "--tiered-alloc", r.choice(["5g,2g,4", "4g,3g,2", "3g,1g,8"])]


_SMALL = {"memory-size": 128, "cpu-count": 1, "disk-size": 1024, "disk-count": 1, "nic-count": 0,
          "spindle-use": 1}  # fmt: skip
_LARGE = {"memory-size": 32768, "cpu-count": 8, "disk-size": 1048576, "disk-count": 16,
          "nic-count": 8, "spindle-use": 12}  # fmt: skip
_TEMPLATES = ("drbd", "drbd", "drbd", "plain", "ext", "sharedfile", "diskless")


def make_request(seed: int) -> dict[str, Any]:
    """Make a request to an allocator, of any kind, with its cluster."""
    r = random.Random(seed)
    ratios = r.choice([(4.0, 32.0), (4.0, 32.0), (1.0, 4.0)])
    policy = {
        "std": _SMALL, "minmax": [{"min": _SMALL, "max": _LARGE}],
        "disk-templates": ["drbd", "plain", "ext", "sharedfile", "diskless"],
        "vcpu-ratio": ratios[0], "spindle-ratio": ratios[1],
    }  # fmt: skip
    groups = ["u1", "u2"][: r.choice([1, 2, 2])]
    members = {f"node{n}": r.choice(groups) for n in range(r.randint(2, 8))}
    used = {name: [0, 0] for name in members}
    instances = {}
    for number in range(r.randint(1, 20)):
        first = r.choice(list(members))
        others = [n for n in members if n != first and members[n] == members[first]]
        one = _described(r, r.choice(_TEMPLATES))
        if one["disk_template"] == "drbd" and not others:
            one = _described(r, "plain")
        mirrored = one["disk_template"] == "drbd"
        nodes = [first, r.choice(others)] if mirrored else [first]
        state = r.choice(["up", "up", "up", "down", "offline"])
        instances[f"inst{number}"] = {
            **one, "nodes": nodes, "admin_state": state, "admin_state_source": "admin",
        }  # fmt: skip
        if state == "up":
            used[first][0] += one["memory"]
        if one["disk_template"] in ("drbd", "plain"):
            for name in nodes:
                used[name][1] += one["disk_space_total"]
    nodes_found = {name: _described_node(r, group, *used[name]) for name, group in members.items()}
    return {
        "version": 2, "cluster_name": "c.example.com", "enabled_hypervisors": ["xen-pvm"],
        "cluster_tags": r.choice([[], ["htools:iextags:svc"], ["htools:nlocation:pw"]]),
        "ipolicy": policy,
        "nodegroups": {
            uuid: {
                "name": f"group-{uuid}", "networks": [], "tags": [], "ipolicy": policy,
                "alloc_policy": r.choice(["preferred", "preferred", "last_resort", "unallocable"]),
            }
            for uuid in groups
        },
        "nodes": nodes_found, "instances": instances,
        "request": _question(r, list(instances), instances, groups, members),
    }  # fmt: skip


def _described(r: random.Random, template: str) -> dict[str, Any]:
    size = r.choice([1024, 2048, 5000])
    total = {"drbd": size + 128, "plain": size}.get(template, 0 if template == "diskless" else size)
    return {
        "disk_template": template, "memory": r.choice([128, 512, 1024, 2048]),
        "vcpus": r.choice([1, 1, 2, 4]), "disk_space_total": total, "nics": [], "os": "noop",
        "hypervisor": "xen-pvm", "spindle_use": 1,
        "tags": r.choice([[], [], ["svc:a"], ["svc:b"]]),
        "disks": [] if template == "diskless" else [
            {"size": size, "mode": "rw", "spindles": 1}
        ],
    }  # fmt: skip


def _described_node(r: random.Random, group: str, memory: int, disk: int) -> dict[str, Any]:
    total, space = r.choice([8192, 16384, 12000]), r.choice([50000, 100000])
    found = {
        "group": group, "tags": r.choice([[], ["pw:1"], ["pw:2"]]), "primary_ip": "192.0.2.1",
        "secondary_ip": "192.0.2.1", "master_candidate": True, "master_capable": True,
        "vm_capable": True, "drained": r.random() < 0.05, "offline": r.random() < 0.08,
        "ndparams": {"spindle_count": r.choice([1, 2]), "oob_program": None,
                     "exclusive_storage": False},
    }  # fmt: skip
    if found["offline"]:
        return found
    return {
        **found, "total_memory": total, "reserved_memory": 512, "total_disk": space,
        "free_memory": max(0, total - 512 - memory), "free_disk": max(0, space - disk),
        "total_cpus": r.choice([2, 4, 8]), "reserved_cpus": 1, "i_pri_memory": memory,
        "i_pri_up_memory": memory, "free_spindles": 0, "total_spindles": 0,
    }  # fmt: skip


def _question(
    r: random.Random,
    names: list[str],
    instances: dict[str, Any],
    groups: list[str],
    members: dict[str, str],
) -> dict[str, Any]:
    kind = r.choice(["allocate"] * 4 + ["multi-allocate", "relocate", "node-evacuate",
                                        "node-evacuate", "change-group"])  # fmt: skip
    if kind in ("allocate", "multi-allocate"):
        new = []
        for number in range(1 if kind == "allocate" else r.randint(1, 3)):
            one = _described(r, r.choice(_TEMPLATES))
            required = 2 if one["disk_template"] == "drbd" else 1
            new.append({**one, "name": f"new{number}", "type": "allocate",
                        "required_nodes": required})  # fmt: skip
        return new[0] if kind == "allocate" else {"type": kind, "instances": new}
    if kind == "relocate":
        mirrored = [n for n in names if len(instances[n]["nodes"]) > 1] or names[:1]
        name = r.choice(mirrored)
        return {
            "type": kind, "name": name, "required_nodes": 1,
            "disk_space_total": instances[name]["disk_space_total"],
            "relocate_from": instances[name]["nodes"][1:] or instances[name]["nodes"],
        }  # fmt: skip
    chosen = r.sample(names, min(len(names), r.randint(1, 4)))
    if kind == "node-evacuate":
        mode = r.choice(["primary-only", "secondary-only", "all"])
        return {"type": kind, "instances": chosen, "evac_mode": mode}
    # The original moves none when one of them is in a target group already.
    away = [one for one in chosen if members[instances[one]["nodes"][0]] != groups[-1]]
    return {"type": kind, "instances": away, "target_groups": groups[-1:]}


def with_units(description: dict[str, Any]) -> dict[str, Any]:
    """Return a request in whose cluster all storage units together are the disk space of a node.

    Nodes which are offline have no units, as in a request of the master daemon.
    """
    nodes = {name: dict(node) for name, node in description["nodes"].items()}
    for node in nodes.values():
        if not node["offline"]:
            # Disk space may not be used up to the last MiB, and a unit may.
            free, total = node["free_disk"] - 1, node["total_disk"]
            node["storage"] = [
                {"sunit": ["drbd8", "xenvg", []], "free": free, "total": total},
                {"sunit": ["lvm-vg", "xenvg", [False]], "free": free, "total": total},
                {"sunit": ["sharedfile", "/srv", []], "free": 10**6, "total": 10**6},
            ]
    return {**description, "nodes": nodes}


def lose(content: str, lost: int) -> str:
    """Return a cluster in the text format one of whose nodes does not answer: all is unknown."""
    sections = content.split("\n\n")
    nodes = sections[1].split("\n")
    columns = nodes[lost].split("|")
    nodes[lost] = "|".join([columns[0], *["?"] * 6, "Y", *columns[8:]])
    return "\n\n".join([sections[0], "\n".join(nodes), *sections[2:]])
