"""Made-up clusters in the text format, with everything that counts for placement."""

from __future__ import annotations

import random


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
