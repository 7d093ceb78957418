"""Queue directories are compared by what they tell about themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobstore import inventory
from ganeti.jobstore.inventory import Inventory, compare, take
from ganeti.wire import json


def make(top: Path, **files: str) -> Path:
    for name, text in {"serial": "9\n", "version": "1\n", **files}.items():
        path = top / name.replace("__", "/").replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def never(_job_id: int) -> bool:
    return False


def test_what_is_told(tmp_path: Path) -> None:
    make(
        tmp_path,
        job_1="{}",
        job_x="foreign",
        archive__0__job_2="{two}",
        notes="foreign",
        archive__notes__job_1="foreign",
    )
    found = take(str(tmp_path), [0, 7])
    assert found.live.keys() == {1}
    assert found.plain == {"serial": "9\n", "version": "1\n"}
    assert found.archive.keys() == {0}
    assert found.archived == {0: {2: 5}, 7: {}}
    assert not found.drained
    (tmp_path / "drain").touch()
    assert take(str(tmp_path)).drained
    assert Inventory.from_wire(json.loads(json.dumps(found.to_wire()))) == found


def test_an_empty_place(tmp_path: Path) -> None:
    nothing = Inventory({}, {"serial": None, "version": None}, False, {}, {})
    assert take(str(tmp_path / "nowhere")) == nothing
    assert compare(nothing, take(str(make(tmp_path))), never) == ([], [], [], [])


def test_differences(tmp_path: Path) -> None:
    here = take(
        str(
            make(
                tmp_path / "here",
                job_1="a",
                job_2="b",
                job_3="c",
                archive__0__job_4="d",
                archive__1__job_10000="e",
            )
        )
    )
    there = take(
        str(
            make(
                tmp_path / "there",
                serial="8\n",
                job_1="a",
                job_2="B",
                job_4="d",
                job_5="?",
                archive__1__job_10000="e",
                archive__2__job_20000="more",
            )
        )
    )
    found = compare(here, there, lambda job_id: job_id == 4)
    assert found.files == ["serial", "job-2", "job-3"]
    assert found.moved == [4]
    assert found.parts == [0]
    assert found.unknown == [5]


def test_content_of_the_same_length_differs() -> None:
    assert inventory.digest(b"one") != inventory.digest(b"two")


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"live": []},
        {"live": {"x": ""}},
        {"live": {}, "plain": {}, "drained": False, "archive": {}, "archived": {}},
        {
            "live": {},
            "plain": {"serial": None, "version": None},
            "drained": False,
            "archive": {},
            "archived": {"0": 5},
        },
    ],
)
def test_nonsense_is_refused(wire: dict[str, Any]) -> None:
    with pytest.raises(errors.ParseError, match="not the inventory of a job queue"):
        Inventory.from_wire(wire)


def test_an_unreadable_file_differs_from_every_copy(tmp_path: Path) -> None:
    (tmp_path / "job-1").symlink_to("job-1")
    (tmp_path / "job-2").write_text("two")
    found = take(str(tmp_path))
    assert found.live[1] == inventory.UNREADABLE
    assert 2 in found.live


def test_a_job_which_is_archived_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "ids_in", lambda directory: [1])
    assert take(str(tmp_path)).live == {}


def test_archived_jobs_of_other_sizes_differ(tmp_path: Path) -> None:
    digests = []
    for place, text in enumerate(("one", "three")):
        part = tmp_path / str(place) / "archive/0"
        part.mkdir(parents=True)
        (part / "job-1").write_text(text)
        digests.append(take(str(tmp_path / str(place))).archive)
    assert digests[0].keys() == digests[1].keys() == {0}
    assert digests[0] != digests[1]
