"""``OP_INSTANCE_RENAME``: names of which one is the short form of another."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.instance import OpInstanceRename


@pytest.fixture
def master():
    return Master(cluster_of(2, (instance_of("web1"), instance_of("web2"))))


def rename(new, **others):
    return OpInstanceRename(instance_name="web2.example.com", new_name=new, **others)


def test_a_name_which_shortens_that_of_another_instance_is_refused(master):
    text = master.refused(rename("web1"), errors.ECODE_NOTUNIQUE)
    assert "web1 is the short form of web1.example.com" in text


def test_the_uuid_of_another_instance_is_refused(master):
    text = master.refused(rename(uuid_of("web1"), exact_name=True), errors.ECODE_NOTUNIQUE)
    assert "it is the UUID of another instance" in text


def test_an_instance_may_get_the_short_form_of_its_own_name(master):
    assert master.run(rename("web2")) == "web2"


def test_an_option_accepts_the_name(master):
    assert master.run(rename("web1", exact_name=True)) == "web1"


def test_a_name_of_which_no_files_can_be_made_is_refused(master):
    """The renaming worked, and the instance could not be started any more."""
    text = master.refused(rename(".".join(["x" * 60] * 4)), errors.ECODE_INVAL)
    assert "the name of the instance has 243 bytes" in text
