"""Answers to the client for programs by others which are larger than any that a server sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import endless_server
from fakes.endless_server import EndlessServer
from ganeti.rapi.client import GanetiApiError, GanetiRapiClient
from ganeti.utils import x509


@pytest.mark.parametrize("answer", endless_server.ANSWERS)
def test_an_answer_without_end_is_not_received(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GanetiRapiClient, "MAX_ANSWER_BYTES", 1 << 20)
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    with EndlessServer(str(pem), answer) as server:
        asker = GanetiRapiClient(endless_server.ADDRESS, port=server.port)
        with pytest.raises(GanetiApiError, match=r"the answer has more than (1048576|65536) bytes"):
            asker.GetVersion()
        assert server.sent_bytes < 16 << 20
