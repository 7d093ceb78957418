"""Messages between the master daemon and a job process."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fakes.config import instance_of
from ganeti import errors
from ganeti.jobexec import messages
from ganeti.jobexec.messages import Channel, ChannelClosed, ChannelTimeout


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Channel]]:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    yield ours, channel
    ours.close()
    channel.close()


def test_messages_arrive_in_their_order(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    for number in range(3):
        Channel(ours).send({"number": number})
    assert [channel.receive()["number"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("first", [2, 4, 7])
def test_a_timeout_in_the_middle_of_a_message_loses_nothing(
    pair: tuple[socket.socket, Channel], first: int
) -> None:
    ours, channel = pair
    whole = b"\0\0\0\x0a" + b'{"a": "b"}' + b"\0\0\0\x01" + b"7"
    ours.sendall(whole[:first])
    with pytest.raises(ChannelTimeout):
        channel.receive(0.01)
    ours.sendall(whole[first:])
    assert channel.receive(60.0) == {"a": "b"}
    assert channel.receive() == 7


def test_the_end_of_the_other_process(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    ours.sendall(b"\0\0\0\x0a{")
    ours.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    with pytest.raises(ChannelClosed):
        for _ in range(100):
            channel.send("x" * 10000)


def test_objects_and_errors_keep_their_class() -> None:
    instance = instance_of("web")
    packed = messages.pack({"one": instance, "many": (instance,), "plain": {1}})
    assert messages.unpack(packed) == {"one": instance, "many": [instance], "plain": [1]}
    for error in (
        errors.OpPrereqError("not like this", errors.ECODE_STATE),
        errors.RetryTimeout("too late"),
        errors.JobCanceled("by request"),
    ):
        found = messages.unpack_error(messages.pack_error(error))
        assert type(found) is type(error) and found.args == error.args


def test_an_error_which_is_more_than_its_arguments_keeps_its_text() -> None:
    error = errors.NodeCallFailed("node2.example.com", "x", "no space left")
    assert str(messages.unpack_error(messages.pack_error(error))) == str(error)
    odd = errors.OpExecError("odd", {1, 2})
    found = messages.unpack_error(messages.pack_error(odd))
    assert isinstance(found, errors.OpExecError) and "odd" in str(found)
