"""One handler per call."""

import importlib

import pytest

from ganeti import errors
from ganeti.backend import registry
from ganeti.wire import calls


def test_every_call_has_a_handler():
    assert set(registry.handlers()) == set(calls.TABLE)


def test_modules_of_the_table_are_named_like_the_packages_of_the_handlers():
    for name, handler in registry.handlers().items():
        package = handler.__module__.removeprefix("ganeti.backend.").split(".")[0]
        module = importlib.import_module(f"ganeti.wire.calls.{package}")
        assert getattr(module, name.upper(), None) is calls.TABLE[name], name


def test_second_handler_is_refused():
    registry.handlers()
    with pytest.raises(errors.ProgrammerError, match="two handlers"):

        @registry.serves(calls.VERSION)
        def again() -> int:
            return 1


def test_parameters_must_be_the_arguments():
    with pytest.raises(errors.ProgrammerError, match="has parameters"):
        registry.serves(calls.Call("made_up", (calls.Arg("a"),)))(lambda b: None)
