"""Names of a package which are imported when they are first used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def test_names_are_imported_at_their_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lazy_example"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from ganeti.utils import lazy\n__getattr__ = lazy.names(__name__, {'WORD': 'words'})\n"
    )
    (package / "words.py").write_text("WORD = 'said'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import lazy_example  # type: ignore[import-not-found]

    assert "lazy_example.words" not in sys.modules
    assert lazy_example.WORD == "said"
    assert vars(lazy_example)["WORD"] == "said"
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'OTHER'"):
        lazy_example.OTHER  # noqa: B018
