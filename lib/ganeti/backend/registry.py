"""The table of handlers: which function of the node answers which call.

A handler is a plain function with the arguments of the call as parameters, marked
``@serves(CALL)``. The node daemon calls :func:`handlers` once at its start, which imports every
module of the package; a child process then calls the function with decoded arguments. A test
asserts that each call of the table has one handler.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ganeti import errors
from ganeti.wire.calls.base import Call

Handler = Callable[..., Any]
_Function = TypeVar("_Function", bound=Handler)
_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_handlers: dict[str, Handler] = {}


def serves(call: Call) -> Callable[[_Function], _Function]:
    """Return a decorator which registers a function as the handler of a call.

    :raises ProgrammerError: the call has a handler already, or the parameters are not the call's
        arguments.
    """

    def register(function: _Function) -> _Function:
        if call.name in _handlers:
            raise errors.ProgrammerError(f"node call {call.name} has two handlers")
        parameters = list(inspect.signature(function).parameters)
        if parameters != [arg.name for arg in call.args]:
            raise errors.ProgrammerError(
                f"handler of node call {call.name} has parameters {parameters}, "
                f"the call has {[arg.name for arg in call.args]}"
            )
        _handlers[call.name] = function
        return function

    return register


def attempt(step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | Exception:
    """Return the result of a step for one of several things of a call, or its failure."""
    try:
        return step(*args, **kwargs)
    except (errors.GenericError, OSError) as err:
        _log.error("%s", err)
        return err


def handlers() -> dict[str, Handler]:
    """Import all modules of the package; return every handler by the name of its call."""
    package = importlib.import_module("ganeti.backend")
    for module in pkgutil.walk_packages(package.__path__, prefix="ganeti.backend."):
        importlib.import_module(module.name)
    return dict(_handlers)
