"""Who may call."""

import pytest

from ganeti import errors
from ganeti.http import auth


def test_parse():
    assert auth.parse_candidate_certs("u1=AA:BB\n\nu2=cc:dd\n") == {"u1": "AA:BB", "u2": "CC:DD"}


@pytest.mark.parametrize("text", ["u1", "=AA", "u1="])
def test_parse_damaged(text):
    with pytest.raises(errors.ParseError, match="not a line"):
        auth.parse_candidate_certs(text)


def test_empty_list_means_own_certificate_only(tmp_path):
    path = tmp_path / "certs"
    may = auth.CandidatesOnly(str(path), "OWN")
    assert may("OWN") is None
    assert "no master candidates" in may("AA")
    path.write_text("")
    assert may("OWN") is None


def test_listed_only(tmp_path):
    path = tmp_path / "certs"
    path.write_text("u1=AA\n")
    may = auth.CandidatesOnly(str(path), "OWN")
    assert may("AA") is None
    assert "does not belong" in may("OWN")
    path.write_text("u1=BB\n")
    assert "does not belong" in may("AA")


def test_damaged_list_lets_nobody_in(tmp_path):
    path = tmp_path / "certs"
    path.write_text("garbage\n")
    assert "cannot read" in auth.CandidatesOnly(str(path), "OWN")("OWN")
