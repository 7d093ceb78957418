"""Lists over a real socket: what the master is asked, and what the client gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fakes.rest_client import Rest, rest_lab
from ganeti import errors
from ganeti.luxi import methods
from ganeti.master.queries import pages
from ganeti.rapi import client
from unit.master.test_queries import context

__all__ = ["context"]

EXPRESSION = quote('be/maxmem >= 64 and name =* "instance*"')


@pytest.fixture
def rest(tmp_path: Path, context: Any) -> Iterator[Rest]:
    """In front of the real code for pages of the master, with a configuration of ten instances."""
    users = "root pw write\nlook pw read\nnone pw\n"

    def page(*args: Any) -> Any:
        methods.QUERY_PAGE.check_args(list(args))
        return pages.query_page(context, *args)

    with rest_lab(tmp_path, users=users) as one:
        one.master.answers["QueryPage"] = page
        yield one


def follow(rest: Rest, path: str) -> list[Any]:
    """All objects of a list, by the links to the next pages."""
    found: list[Any] = []
    while path:
        status, items, headers = rest("GET", path)
        assert status == 200, items
        found += items
        link = headers.get("link", "")
        assert not link or link.endswith('>; rel="next"')
        path = link.removesuffix('>; rel="next"').removeprefix("<")
    return found


def test_a_page_has_the_form_of_the_list(rest: Rest) -> None:
    status, found, headers = rest("GET", "/2/instances?limit=2", user=None)
    names = [f"instance{n}.example.com" for n in (1, 2)]
    assert found == [{"id": name, "uri": f"/2/instances/{name}"} for name in names]
    assert (status, headers["x-total-count"]) == (200, "10")
    assert headers["link"] == '</2/instances?limit=2&after=instance2.example.com>; rel="next"'
    found = rest("GET", "/2/groups?limit=1")[1]
    assert found == [{"name": "default", "uri": "/2/groups/default"}]
    assert rest("GET", "/2/jobs?limit=1")[1] == [{"id": 2, "uri": "/2/jobs/2"}]
    assert rest("GET", "/2/networks?limit=1")[1][0]["name"] == "net1"
    # Unknown arguments have no effect, as everywhere.
    known, unknown = (rest("GET", f"/2/nodes?limit=1{more}") for more in ("", "&no%C3%BC=1&=2"))
    assert (known[:2], known[2]["etag"]) == (unknown[:2], unknown[2]["etag"])
    assert rest("GET", "/2/nodes?limit=1&offset=1")[1][0]["id"] == "node2.example.com"


def test_the_links_lead_through_the_list(rest: Rest) -> None:
    whole = follow(rest, "/2/instances?offset=0")
    assert len(whole) == 10
    for limit in (1, 3, 10):
        assert follow(rest, f"/2/instances?limit={limit}") == whole
        found = follow(
            rest, f"/2/instances?filter={EXPRESSION}&sort=-be/maxmem&limit={limit}&fields=name"
        )
        assert [one["name"].split(".")[0] for one in found][:2] == ["instance2", "instance1"]
    assert [one["id"] for one in follow(rest, "/2/jobs?sort=-id&limit=1")] == [10, 3, 2]
    assert [one["id"] for one in follow(rest, "/2/jobs?limit=2")] == [2, 3, 10]


def test_fields(rest: Rest) -> None:
    path = "/2/instances?fields=name,be/maxmem,snodes&limit=1"
    status, found, _headers = rest("GET", path)
    assert status == 200 and list(found[0]) == ["name", "be/maxmem", "snodes"]
    status, found, _headers = rest("GET", "/2/instances?fields=name,statsu")
    assert status == 400
    assert "no field 'statsu' of instance objects. Did you mean 'status'?" in found["explain"]
    assert rest("GET", "/2/instances?fields=")[0] == 400
    assert rest("GET", "/2/groups?bulk=1&limit=1")[1][0]["node_cnt"] == 4
    beparams = rest("GET", "/2/instances?fields=beparams&limit=1")[1][0]["beparams"]
    assert beparams["memory"] == beparams["maxmem"]


def test_the_number_alone(rest: Rest) -> None:
    status, found, headers = rest("GET", f"/2/instances?filter={EXPRESSION}&limit=0")
    assert (status, found, headers["x-total-count"]) == (200, [], "10")
    assert "link" not in headers


def test_a_query(rest: Rest) -> None:
    path = f"/2/query/instance?fields=name&filter={EXPRESSION}&limit=3"
    status, found, headers = rest("GET", path)
    assert status == 200 and set(found) == {"fields", "data"}
    assert [row[0][0] for row in found["data"]] == [0, 0, 0]
    assert headers["x-total-count"] == "10"
    assert "after=instance3.example.com" in headers["link"]
    body = {"fields": ["name"], "qfilter": [">", "be/maxmem", 100]}
    status, found, headers = rest("PUT", "/2/query/instance?limit=1&sort=-be/maxmem", body)
    assert found["data"] == [[[0, "instance2.example.com"]]]
    assert rest("PUT", "/2/query/nosuch?limit=1", body)[0] == 404


def test_without_the_arguments_the_list_is_asked_for_as_ever(rest: Rest) -> None:
    status, found, headers = rest("GET", "/2/instances")
    assert rest.master.asked == [("QueryInstances", ([], ["name"], False))]
    assert "x-total-count" not in headers and "link" not in headers
    assert [one["id"] for one in found] == ["a", "b"]


@pytest.mark.parametrize("argument", ["filter=name", "sort=name", "fields=name"])
def test_what_can_show_more_than_the_list_needs_the_right_to_read(
    rest: Rest, argument: str
) -> None:
    path = f"/2/instances?{argument}&limit=1"
    assert rest("GET", path, user=None)[0] == 401
    status, found, _headers = rest("GET", path, user="none:pw")
    assert status == 403 and argument.partition("=")[0] in found["explain"]
    assert not rest.master.asked
    assert rest("GET", path, user="look:pw")[0] in (200, 400)
    assert rest("GET", "/2/instances?limit=1&offset=1", user=None)[0] == 200


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (f"filter={quote('status =')}", "cannot read the filter at column 9"),
        (
            f"filter={quote('statsu == 1')}",
            "no field 'statsu' to filter by. Did you mean 'status'?",
        ),
        (f"filter={quote('status ~ 1')}", "column 8"),
        ("filter=", "column 1"),
        (f"filter={quote('[1')}", "cannot parse query argument 'filter'"),
        (f"filter={quote('[1]')}", "filter must be a list beginning with an operator"),
        (f"filter={quote('be/maxmem > ')}%22x%22", "cannot be compared"),
        (f"filter={quote('name =~ /(/')}", "field name"),
        ("sort=nmae", "Did you mean 'name'?"),
        ("sort=name,name", "different fields"),
        ("limit=-1", "'limit' must not be less than 0"),
        ("limit=x", "'limit' must be a number"),
        ("offset=-5", "'offset' must not be less than 0"),
        ("limit=99999999999999999", "'limit' must be a number from 0"),
        ("after=%5B", "cannot parse query argument 'after'"),
        ("after=%5B%5D", "has a name"),
        ("after=%5B1,2,3%5D", "has a name"),
        ("after=web1&sort=pnode", "only in a list without 'sort'"),
        ("limt=5", "Did you mean 'limit'?"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(rest: Rest, arguments: str, text: str) -> None:
    for path in ("/2/instances?", "/2/query/instance?fields=name&"):
        status, found, _headers = rest("GET", path + arguments)
        assert (status, found["code"]) == (400, 400)
        assert text in found["explain"], found["explain"]


def test_asking_again_costs_the_master_one_comparison(rest: Rest, context: Any) -> None:
    path = "/2/instances?fields=name,pnode&sort=-pnode&limit=2"
    status, found, headers = rest("GET", path)
    tag = headers["etag"]
    assert status == 200 and len(found) == 2
    status, found, again = rest("GET", path, If_None_Match=tag)
    assert (status, found, again["etag"]) == (304, b"", tag)
    assert rest.master.asked[-1][1][3]["known"] is not None
    # Another list has another tag, and what another list has is not asked about.
    for other in (path.replace("limit=2", "limit=3"), path.replace("pnode&sort", "status&sort")):
        context.rpc.answers = {
            ("all_instances_info", f"node{n}.example.com"): {} for n in range(1, 5)
        }
        status, _found, headers = rest("GET", other, If_None_Match=f'W/"x", {tag}')
        assert status == 200 and headers["etag"] != tag
        assert rest.master.asked[-1][1][3]["known"] is None
    assert rest("GET", path, If_None_Match=f'"x", W/{tag}')[0] == 304
    assert rest("GET", path, If_None_Match="*")[0] == 304
    yaml = rest("GET", path, If_None_Match=tag, Accept="application/yaml")
    assert yaml[0] == 200 and yaml[2]["etag"] != tag


def test_a_list_with_live_values_has_the_tag_of_its_content(rest: Rest, context: Any) -> None:
    answers = {("all_instances_info", f"node{n}.example.com"): {} for n in range(1, 5)}
    context.rpc.answers = answers
    path = "/2/instances?fields=name,oper_ram&limit=2"
    tag = rest("GET", path)[2]["etag"]
    assert rest("GET", path, If_None_Match=tag)[0] == 304
    up = {"memory": 64, "state": 0, "vcpus": 1, "time": 1.0}
    context.rpc.answers = {
        **answers,
        ("all_instances_info", "node4.example.com"): {"instance1.example.com": up},
    }
    assert rest("GET", path, If_None_Match=tag)[0] == 200


def test_the_address_of_the_next_page_is_one_word(rest: Rest) -> None:
    status, _found, headers = rest("GET", "/2/nodes?sort=-group,name&limit=1&fields=name")
    assert status == 200
    address = headers["link"].partition(">")[0]
    assert "after=%5B%22" in address and '"' not in address and " " not in address


def test_the_client_reads_the_headers(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(method: str, path: str, query: Any, content: Any, headers: Any = None) -> Any:
        text = "&".join(f"{name}={quote(str(value))}" for name, value in query or ())
        status, value, found = rest(method, f"{path}?{text}", content)
        if status != 200:
            raise client.GanetiApiError(str(value), code=status)
        if headers is not None:
            headers.update(found)
        return value

    one = client.GanetiRapiClient("h")
    monkeypatch.setattr(one, "_SendRequest", send)
    page = one.GetPage("instances", sort="-be/maxmem", limit=1, fields=["name"])
    assert page.items == [{"name": "instance2.example.com"}]
    assert page.total == 10 and page.next == {"after": '[256,"instance2.example.com"]'}
    assert one.GetPage("instances").total == 10
    assert one.GetPage("instances", limit=3, after="instance1.example.com").items[0][8] == "2"
    names = list(one.GetAll("instances", page_size=3))
    assert len(names) == len(set(names)) == 10
    assert list(one.GetAll("instances", qfilter="be/maxmem > 200")) == names[1:2]
    found = one.QueryPage("instance", ["name"], [">", "be/maxmem", 100], limit=1)
    assert found.items == [[[0, "instance1.example.com"]]] and found.total == 5
    second = one.QueryPage("instance", ["name"], [">", "be/maxmem", 100], **found.next or {})
    assert second.items[0] == [[0, "instance2.example.com"]] and second.next is None
    with pytest.raises(client.GanetiApiError, match="column") as caught:
        one.GetPage("instances", qfilter="name ==")
    assert caught.value.code == 400


def test_a_master_which_is_too_busy_or_gone(rest: Rest) -> None:
    rest.master.answers["QueryPage"] = errors.NoMasterError("the master daemon does not run")
    assert rest("GET", "/2/instances?limit=1")[0] == 502
