"""The command line of ``burnin``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti.burnin import options, steps

REFERENCE = Path(__file__).resolve().parents[2] / "data/cli/burnin.json"


def test_defaults() -> None:
    chosen = options.parse(["-o", "debian", "a", "b"], steps.NAMES)
    assert chosen.instances == ("a", "b")
    assert (chosen.template, chosen.disks_mib, chosen.growth_mib) == ("drbd", (1024,), (128,))
    assert (chosen.min_memory_mib, chosen.max_memory_mib, chosen.vcpus) == (128, 256, 3)
    assert chosen.nics == ({},) and not chosen.nodes and chosen.iallocator is None
    assert chosen.reboot_types == ("full", "hard", "soft")
    assert chosen.net_timeout_s == 15 and not chosen.parallel and not chosen.left_out
    assert not chosen.name_check and not chosen.ip_check


def test_every_published_option_exists() -> None:
    known = options.parser(steps.NAMES)
    names = {name for action in known._actions for name in action.option_strings}
    for published in json.loads(REFERENCE.read_text(encoding="utf-8")):
        assert set(published["names"]) <= names, published


def test_every_step_can_be_left_out_but_the_one_which_has_to_be_asked_for() -> None:
    assert {*options.LEFT_OUT.values(), "grow", "rename"} == set(steps.NAMES)


def test_one_growth_counts_for_all_disks() -> None:
    words = ["-o", "x", "--disk-size", "1g,2g", "--disk-growth", "64m", "a"]
    assert options.parse(words, steps.NAMES).growth_mib == (64, 64)
    words[5] = "0"
    assert options.parse(words, steps.NAMES).growth_mib == (0, 0)


def test_other_forms() -> None:
    chosen = options.parse(
        ["-o", "x", "-t", "diskless", "--mem-size", "512m", "-H", "kvm:acpi=yes", "--no-nics",
         "--no-move", "--no-confd", "--reboot-types", "soft,soft", "--no-name-check", "-p", "a"],
        steps.NAMES,
    )  # fmt: skip
    assert chosen.disks_mib == () and chosen.growth_mib == () and chosen.nics == ()
    assert (chosen.min_memory_mib, chosen.max_memory_mib) == (512, 512)
    assert (chosen.hypervisor, chosen.hvparams) == ("kvm", {"acpi": True})
    assert chosen.left_out == {"move", "confd"}
    assert chosen.reboot_types == ("soft",)


@pytest.mark.parametrize(
    "words, problem",
    [
        ("-o x", "name at least one instance"),
        ("a", "option -o (--os) is missing"),
        ("-o x a a", "an instance is named twice"),
        ("-o x -n n1 -I hail a", "--nodes and --iallocator exclude each other"),
        ("-o x --rename c a b", "--rename works with one instance only"),
        ("-o x --steps migrat a", "there is no step 'migrat'"),
        ("-o x --disk-size 1g,0 a", "which must not be 0"),
        ("-o x --disk-size wide a", "wide"),
        ("-o x --disk-size 1g --disk-growth 1g,1g a", "--disk-growth has 2 values"),
        ("-o x --minmem-size 1g a", "the minimum of the memory (1024 MiB)"),
        ("-o x --mem-size 0 a", "must be above 0"),
        ("-o x --vcpu-count 0 a", "0 is less than 1"),
        ("-o x --retries -1 a", "-1 is less than 0"),
        ("-o x --reboot-types cold a", "'cold' is not one of"),
        ("-o x -t block a", "invalid choice: 'block'"),
        ("-o x -H kvm:wrong=1 a", "-H: "),
        ("-o x -H -kvm a", "-H"),
        ("-o x --nonsense a", "unrecognized arguments: --nonsense"),
    ],
)
def test_mistakes(words: str, problem: str) -> None:
    with pytest.raises(options.UsageError) as caught:
        options.parse(words.split(), steps.NAMES)
    assert problem in str(caught.value)
