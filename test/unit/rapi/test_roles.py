"""The roles file: what its lines define, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from ganeti.rapi import roles
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.rights import ROLES, parse
from ganeti.rapi.selectors import Selector

HANDLERS = {resource.handler for resource in RESOURCES}
FILE = """\
# pools and roles of the shop
pool web = tag:web, instance:www-*
role tenant = write@own, networks
role lead=@tenant,operator@pool:web

quota alice = instances 10, memory 64g, disk 2t, vcpus 40
quota pool:web = instances 100
quota * = instances 3
"""


def test_what_lines_define() -> None:
    rules, problems = roles.parse(FILE, HANDLERS)
    assert problems == []
    assert rules.pools == {"web": (Selector("tag", "web"), Selector("instance", "www-*"))}
    assert set(rules.roles) == {*ROLES, "@tenant", "@lead"}
    found, _problems = parse("@lead", rules.roles, HANDLERS)
    assert [str(grant) for grant in found.grants][0] == "write@own" and found.words == {"networks"}
    assert rules.quotas["alice"].limits == {
        "instances": 10,
        "memory": 65536,
        "disk": 2097152,
        "vcpus": 40,
    }
    assert rules.quotas["*"].limits == {"instances": 3}
    assert rules.quotas["pool:web"].selector == Selector("pool", "web")
    assert rules.lines == {
        "pool web": 2,
        "role tenant": 3,
        "role lead": 4,
        "quota alice": 6,
        "quota pool:web": 7,
        "quota *": 8,
    }
    assert roles.parse("", HANDLERS)[0] == roles.Rules()


def test_tags_that_give_rights() -> None:
    rules, _problems = roles.parse(FILE + "role b = write@tag:b\nquota tag:c = vcpus 1\n", HANDLERS)
    assert rules.tags_with_rights() == {"web", "b", "c"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("role a", "the line is not 'role NAME = right"),
        ("rule a = write", "the line is not 'role NAME = right"),
        ("role a b = write", "the line is not"),
        ("role a =", "has an empty item"),
        ("role a = write,,read", "has an empty item"),
        ("role a = writ", "role a: 'writ' is not a right. Did you mean 'write'?"),
        ("role a = @b", "role a: '@b' is not a right"),
        ("role a = write@tag:", "has no name after tag:"),
        ("role operator = write", "role operator always exists and cannot be changed"),
        ("role a/b = write", "'a/b' cannot be the name of a role"),
        ("pool a = web", "'web' is not a selector"),
        ("pool a = pool:b", "pool a cannot contain 'pool:b'"),
        ("pool a = own", "pool a cannot contain 'own'"),
        ("quota a = memory", "memory: cannot read '' as a size"),
        ("quota a = memory 1x", "memory: unknown unit 'x'"),
        ("quota a = instances -1", "instances needs a number, not '-1'"),
        ("quota a = instances 1, instances 2", "quota a limits instances twice"),
        ("quota a = ram 2g", "'ram' cannot be limited; instances, memory, disk, vcpus can"),
        ("quota pool:b = vcpus 1", "there is no pool 'b' above"),
        ("quota tga:b = vcpus 1", "'tga:b' is not a selector"),
        ("quota group:g = vcpus 1", "quota group:g: a quota cannot be for a node group"),
        ("quota a,b = vcpus 1", "neither the name of a user nor a selector"),
    ],
)
def test_a_wrong_line_defines_nothing(line: str, problem: str) -> None:
    rules, problems = roles.parse(f"# first\n{line}\nrole good = read\n", HANDLERS)
    assert len(problems) == 1
    assert problems[0].startswith("line 2: ") and problem in problems[0]
    assert rules.lines == {"role good": 3} and not rules.pools and not rules.quotas


def test_no_quota_for_a_pool_with_a_node_group() -> None:
    rules, problems = roles.parse("pool p = tag:x, group:g\nquota pool:p = vcpus 1\n", HANDLERS)
    assert not rules.quotas
    assert problems[0].startswith("line 2: quota pool:p: a quota cannot be for a node group")


def test_the_first_of_two_lines_counts() -> None:
    rules, problems = roles.parse("role a = read\nrole a = write\n", HANDLERS)
    assert problems == ["line 2: role a is already defined in line 1, which counts"]
    assert rules.roles["@a"] == {"read"}
