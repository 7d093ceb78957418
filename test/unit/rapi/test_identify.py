"""The ways in which users identify themselves, and the answer to a request without credentials."""

from __future__ import annotations

import asyncio

import pytest

from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi.identify import Identities
from ganeti.rapi.rights import Rights
from ganeti.rapi.users import User


def request(*headers: str) -> Incoming:
    text = "\r\n".join(("GET /2/info HTTP/1.1", "Host: h", *headers))
    return Incoming(messages.parse_head(text.encode()), "192.0.2.1")


class Way:
    def __init__(self, header: str, asked: list[str]) -> None:
        self.header = header
        self.asked = asked

    async def identify(self, incoming: Incoming) -> User | None:
        self.asked.append(self.header)
        name = incoming.head.headers.get(self.header)
        if name == "wrong":
            raise Refused(401)
        return None if name is None else User(name, Rights())


def test_the_first_way_with_credentials_decides() -> None:
    asked: list[str] = []
    identities = Identities([Way("one", asked), Way("two", asked)])
    assert asyncio.run(identities.identify(request())) is None
    found = asyncio.run(identities.identify(request("One: jack", "Two: jill")))
    assert found is not None and found.name == "jack"
    assert asked == ["one", "two", "one"]
    with pytest.raises(Refused):
        asyncio.run(identities.identify(request("One: wrong", "Two: jill")))


@pytest.mark.parametrize(
    ("headers", "window"),
    [
        ((), True),
        (("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), True),
        (("Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"), False),
        (("Sec-Fetch-Mode: websocket", "Sec-Fetch-Dest: websocket"), False),
        (("Cookie: a=b; __Host-ganeti-session=x",), False),
        (("Cookie: a=b",), True),
    ],
)
def test_a_script_of_a_page_makes_the_browser_open_no_window(
    headers: tuple[str, ...], window: bool
) -> None:
    refused = Identities([]).challenge(request(*headers).head)
    assert refused.status == 401
    assert ("WWW-Authenticate" in dict(refused.headers)) is window
