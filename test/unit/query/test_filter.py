"""The filter language: text to lists, lists to decisions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.query import filter as query_filter
from ganeti.query import resources
from ganeti.query.field import (
    HOSTNAME,
    JOB_ID,
    PLAIN,
    TIMESTAMP,
    UNAVAIL,
    Field,
    Resource,
)
from ganeti.utils import text


def field(name, kind="text", compare=PLAIN, live=""):
    return Field(
        name,
        name,
        kind,
        "doc",
        lambda view, item: item.get(name, UNAVAIL),
        compare=compare,
        live=live,
    )


RESOURCE = Resource(
    "thing",
    [
        field("name", compare=HOSTNAME),
        field("os"),
        field("mem", "number"),
        field("up", "bool"),
        field("tags", "other"),
        field("id", "number", JOB_ID),
        field("ts", "other", TIMESTAMP),
        field("status", live="things"),
    ],
    lambda view: [],
)
WEB = {
    "name": "web1.example.com",
    "os": "deb",
    "mem": 64,
    "up": True,
    "tags": ["prod", "x"],
    "id": 12,
    "ts": [100, 500000],
    "status": "running",
}


def matches(qfilter, item=WEB):
    return query_filter.compile_filter(qfilter, RESOURCE).matches(None, item)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("up", ["?", "up"]),
        ('name == "web1"', ["==", "name", "web1"]),
        ("name = 'web1'", ["==", "name", "web1"]),
        ('os != "deb"', ["!=", "os", "deb"]),
        ("be/maxmem>=64", [">=", "be/maxmem", 64]),
        ("mem < -5", ["<", "mem", -5]),
        ('"prod" in tags', ["=[]", "tags", "prod"]),
        ('"prod" not in tags', ["!", ["=[]", "tags", "prod"]]),
        ("5 in tags", ["=[]", "tags", 5]),
        ("name =~ m/^web/", ["=~", "name", "^web"]),
        ("name =~ /^web/si", ["=~", "name", "(?is)^web"]),
        ("name !~ #a/b#", ["!", ["=~", "name", "a/b"]]),
        ("name =~ ^web^i", ["=~", "name", "(?i)web"]),
        ("name =~ |web|", ["=~", "name", "web"]),
        (r"name =~ m/a\/b\.c\\d/", ["=~", "name", r"a/b\.c\\d"]),
        ('name =* "web*"', ["=~", "name", r"^web[^.]*(\..*)?$"]),
        ('name !* "w?b"', ["!", ["=~", "name", r"^w[^.]b(\..*)?$"]]),
        ("not up", ["!", ["?", "up"]]),
        ("not not up", ["!", ["!", ["?", "up"]]]),
        ("a or b and c", ["|", ["?", "a"], ["&", ["?", "b"], ["?", "c"]]]),
        ("a and b and c", ["&", ["?", "a"], ["?", "b"], ["?", "c"]]),
        ("(a or b) and not c", ["&", ["|", ["?", "a"], ["?", "b"]], ["!", ["?", "c"]]]),
        ("notes and order", ["&", ["?", "notes"], ["?", "order"]]),
        ("((up))", ["?", "up"]),
        (r'os == "a \"quoted\" word"', ["==", "os", 'a "quoted" word']),
        ("disk.size/0 > 5", [">", "disk.size/0", 5]),
    ],
)
def test_text_form(text, tree):
    assert query_filter.parse(text) == tree


@pytest.mark.parametrize(
    ("text", "column", "wanted"),
    [
        ("", 1, "ends too early"),
        ("and", 4, "ends too early"),
        ("name ==", 8, "text in quotes"),
        ("mem == 1.5", 8, "integer"),
        ("(up", 4, "')'"),
        ("up)", 3, "from ')'"),
        ("a b", 3, "from 'b'"),
        ('name == "web', 9, "text in quotes"),
        ("name == web", 9, "in quotes"),
        ("name =~ web", 9, "a regular expression such as"),
        ("mem == 5x", 8, "integer"),
        ("not", 4, "a condition"),
        ("up or", 6, "a condition"),
        ("up and (a or) b", 13, "a condition"),
        ("name =* 5", 9, "text in quotes"),
        ("== 5", 1, "from '== 5'"),
        ('"a" on tags', 5, "'not in'"),
        ('"a" in', 7, "field name"),
        ('a == "b" or (c == "d"', 22, "')'"),
        # Columns are those of the text as it was given.
        ("\tup :", 5, "from ':'"),
        ("up\nand :", 8, "a condition"),
    ],
)
def test_what_is_no_text_form(text, column, wanted):
    with pytest.raises(errors.QueryFilterParseError, match=re.escape(wanted)) as caught:
        query_filter.parse(text)
    assert (caught.value.text, caught.value.column) == (text, column)
    assert len(caught.value.details()) == 3
    assert "{" not in str(caught.value)


def test_too_deep_a_text():
    with pytest.raises(errors.QueryFilterParseError, match="deep"):
        query_filter.parse("(" * 20000 + "up" + ")" * 20000)


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [
        ("a", r"^a(\..*)?$"),
        ("*.site", r"^[^.]*\.site(\..*)?$"),
        ("web?", r"^web[^.](\..*)?$"),
        ("node1*.example.com", r"^node1[^.]*\.example\.com(\..*)?$"),
    ],
)
def test_globs(pattern, regex):
    assert text.glob_to_regex(pattern) == regex


@pytest.mark.parametrize(
    "qfilter",
    [
        ["==", "name", "web1"],
        ["=", "name", "web1.example"],
        ["==", "name", "web1.example.com"],
        ["!=", "name", "web"],
        ["==", "os", "deb"],
        [">", "mem", 63],
        [">=", "mem", 64],
        ["<", "mem", 65],
        ["<=", "mem", 64],
        ["!=", "mem", 1],
        ["?", "up"],
        ["=[]", "tags", "x"],
        ["=~", "os", "e"],
        ["=~", "name", "(?i)^WEB"],
        ["=~", "tags", "^pro"],
        ["!", ["==", "os", "x"]],
        ["&"],
        ["&", ["?", "up"], ["==", "os", "deb"]],
        ["|", ["==", "os", "x"], ["?", "up"]],
        ["==", "id", "12"],
        ["==", "id", 12],
        ["<", "ts", 101],
        [">", "ts", 100],
        ["==", "status", "running"],
        ["<", "os", "e"],
    ],
)
def test_what_matches(qfilter):
    assert matches(qfilter) is True


@pytest.mark.parametrize(
    "qfilter",
    [
        ["==", "name", "web"],
        ["==", "name", "example.com"],
        ["!=", "name", "web1"],
        ["==", "os", "de"],
        [">", "mem", 64],
        ["!", ["?", "up"]],
        ["=[]", "tags", "y"],
        ["=~", "os", "^e"],
        ["=~", "tags", "^rod"],
        ["|"],
        ["&", ["?", "up"], ["==", "os", "x"]],
        ["<", "ts", 100],
        ["==", "id", 1],
    ],
)
def test_what_does_not_match(qfilter):
    assert matches(qfilter) is False


@pytest.mark.parametrize(
    "qfilter",
    [
        [],
        "x",
        5,
        {},
        True,
        ["bogus"],
        [["?", "up"]],
        ["?"],
        ["?", "up", "up"],
        ["?", "nosuch"],
        ["?", 5],
        ["==", "name"],
        ["==", "name", 1, 2],
        ["==", "nosuch", "x"],
        ["==", "name", None],
        ["==", "mem", 1.5],
        ["==", "up", True],
        ["==", "mem", []],
        ["!"],
        ["!", None],
        ["&", None],
        ["=~", "name", "("],
        ["=~", "name", 5],
        ["=~", "name", "(?=a)"],
        ["==", "id", "twelve"],
        ["==", ["name"], "x"],
    ],
)
def test_malformed_filters_are_refused_before_anything_is_tried(qfilter):
    with pytest.raises(errors.ParameterError):
        query_filter.compile_filter(qfilter, RESOURCE)


@pytest.mark.parametrize(
    "qfilter",
    [
        ["==", "name", 5],
        ["<", "mem", "x"],
        ["?", "os"],
        ["=[]", "os", "x"],
        ["=~", "mem", "6"],
        ["==", "tags", "x"],
        ["==", "up", 1],
    ],
)
def test_values_which_cannot_be_compared(qfilter):
    with pytest.raises(errors.ParameterError, match=qfilter[1] if qfilter[0] != "?" else "'deb'"):
        matches(qfilter)


def test_nested_too_deeply():
    qfilter = ["?", "up"]
    for _ in range(500):
        qfilter = ["!", qfilter]
    with pytest.raises(errors.ParameterError, match="nested"):
        query_filter.compile_filter(qfilter, RESOURCE)


def test_a_regular_expression_of_a_user_cannot_stop_the_master():
    """With the module "re" this search takes longer than anybody waits, and nothing ends it."""
    names = [{"name": f"instance{number:040}.example.com"} for number in range(100)]
    condition = query_filter.compile_filter(["=~", "name", "(((((.+)+)+)+)+)+Z"], RESOURCE)
    assert not any(condition.matches(None, one) for one in names)


def test_no_filter():
    assert query_filter.compile_filter(None, RESOURCE) is None


def test_a_field_without_a_value_accepts():
    assert matches(["==", "os", "deb"], {"name": "a"}) is True
    assert matches(["&", [">", "mem", 5], ["==", "name", "b"]], {"name": "a"}) is False


@pytest.mark.parametrize(
    ("qfilter", "possible"),
    [
        (["==", "status", "x"], True),
        (["!", ["==", "status", "x"]], True),
        (["!", ["!", ["==", "status", "x"]]], True),
        (["!", ["!", ["!", ["==", "status", "x"]]]], True),
        (["&", ["==", "status", "x"], ["==", "name", "other"]], False),
        (["|", ["==", "status", "x"], ["==", "name", "other"]], True),
        (["!", ["|", ["==", "status", "x"], ["?", "up"]]], False),
    ],
)
def test_before_live_data_is_there_nothing_is_lost(qfilter, possible):
    condition = query_filter.compile_filter(qfilter, RESOURCE)
    item = {key: value for key, value in WEB.items() if key != "status"}
    assert condition.may_match(None, item) is possible
    assert "status" in condition.field_names


@pytest.mark.parametrize("name", ["name", "os"])
def test_many_names_decide_like_few(name):
    values = ["web1", "deb", "c", "d", "e"]
    many = ["|", *(["==", name, value] for value in values)]
    for item in (WEB, {"name": "web12.example.com", "os": "debian"}, {"name": "x", "os": "c"}):
        few = any(matches(["==", name, value], item) for value in values)
        assert matches(many, item) is few


def test_many_numbers_and_many_wrong_values():
    assert matches(["|", *(["==", "mem", n] for n in range(60, 70))]) is True
    with pytest.raises(errors.ParameterError):
        matches(["|", *(["==", "mem", str(n)] for n in range(10))])


@pytest.mark.parametrize(
    ("qfilter", "names"),
    [
        (["==", "id", 5], [5]),
        (["=", "id", 5], [5]),
        (["|", ["==", "id", 5], ["=", "id", "6"]], [5, "6"]),
        (["|"], None),
        (["|", ["==", "id", 5], ["==", "os", "x"]], None),
        (["!=", "id", 5], None),
        (None, None),
        (["&", ["==", "id", 5]], None),
        (["==", "id"], None),
    ],
)
def test_requested_names(qfilter, names):
    assert query_filter.requested_names(qfilter, "id") == names


def test_names_filter():
    assert query_filter.names_filter([], "name") is None
    assert query_filter.names_filter(["a"], "name") == ["|", ["==", "name", "a"]]


def test_the_list_form_needs_no_parser():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, ganeti.query.filter, ganeti.query.engine\n"
            "print('pyparsing' in sys.modules)",
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("qfilter", "pinned"),
    [
        (["==", "name", "a"], ("name", {"a"})),
        (["|", ["==", "uuid", "a"], ["=", "uuid", "b"]], ("uuid", {"a", "b"})),
        (["&", ["?", "admin_up"], ["==", "name", "a"]], ("name", {"a"})),
        (["|", ["==", "name", "a"], ["?", "admin_up"]], None),
        (["|", ["==", "name", "a"], ["==", "uuid", "b"]], None),
        (["|"], None),
        (["!", ["==", "name", "a"]], None),
        (["==", "name", 5], None),
        (["==", "os", "a"], None),
        (None, None),
    ],
)
def test_which_objects_a_filter_is_about(qfilter, pinned):
    found = query_filter.pinned(qfilter, resources.lookup("instance"))
    assert found == (None if pinned is None else (pinned[0], frozenset(pinned[1])))


def test_a_misspelt_field_is_guessed():
    with pytest.raises(
        errors.ParameterError,
        match=r"'admin_sate' to filter by\. Did you mean "
        "'admin_state'?",
    ):
        query_filter.compile_filter(["==", "admin_sate", "up"], resources.lookup("instance"))


def test_comparing_a_list_says_how_to_search_it():
    resource = Resource("thing", [field("tags", "other")], lambda view: [])
    condition = query_filter.compile_filter(["==", "tags", "web"], resource)
    with pytest.raises(errors.ParameterError, match="Write 'web' in tags to search a list"):
        condition.matches(None, {"tags": ["web"]})


def test_the_size_is_limited_before_a_part_is_compiled(monkeypatch) -> None:
    monkeypatch.setattr(query_filter, "_compile", lambda *args: pytest.fail("compiled"))
    for tree in (
        ["|", *(["==", "os", str(number)] for number in range(query_filter.MAX_CONDITIONS))],
        ["&", *([] for _ in range(600_000))],
        ["==", "os", [[] for _ in range(600_000)]],
    ):
        with pytest.raises(errors.ParameterError, match="more than 20000 conditions"):
            query_filter.compile_filter(tree, RESOURCE)


def test_the_number_of_comparisons() -> None:
    def comparisons(tree):
        return query_filter.compile_filter(tree, RESOURCE).comparisons

    assert comparisons(["?", "up"]) == 1
    assert comparisons(["&", ["?", "up"], ["!", ["|", ["==", "os", "a"], ["=~", "os", "b"]]]]) == 3
    # A choice of names, or of jobs, is one look-up.
    assert comparisons(["|", *(["==", "name", f"web{number}"] for number in range(1000))]) == 1
    jobs = ["|", *(["==", "id", number] for number in range(10, 1000))]
    assert comparisons(jobs) == 1
    assert matches(jobs) and not matches(["|", *(["==", "id", number] for number in range(9))])
    assert matches(["|", *(["==", "id", str(number)] for number in range(10, 20))])
    mixed = ["|", *(["==", "name", f"web{number}"] for number in range(9)), ["?", "up"]]
    assert comparisons(mixed) == 10


def test_expressions_of_a_filter_share_their_limits() -> None:
    with pytest.raises(errors.ParameterError, match="alone or together"):
        query_filter.compile_filter(["|", *(["=~", "os", "a{3000}"] for _ in range(10))], RESOURCE)


def test_a_long_text_is_not_parsed() -> None:
    with pytest.raises(errors.QueryFilterParseError, match="characters; 131072 are allowed"):
        query_filter.parse("up or " * 30_000 + "up")
