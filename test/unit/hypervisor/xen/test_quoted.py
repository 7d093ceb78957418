"""Strings of the configuration file of Xen: xl reads what was written, or it is refused."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.hypervisor.xen import config

#: The sequences which the scanner of xl knows in strings with double quotes.
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def as_xl_reads(text):
    """Read one string, which must end with the line (xlu_cfg_l.l of Xen, xl.cfg(5))."""
    assert "\n" not in text and text[0] == text[-1] == '"'
    inner = text[1:-1]
    assert re.fullmatch(r'(?:[^"\\]|\\["\\])*', inner), "the string ends before the line"
    return _ESCAPE.sub(r"\1", inner)


@given(st.text(max_size=60))
@example('a"b\\c\\\\"')
@example("\\")
@example("two\nlines")
def test_a_string_is_read_as_it_was_written(value):
    try:
        written = config.quoted(value, "parameter kernel_args")
    except errors.HypervisorError:
        assert not value.isprintable()
        return
    assert as_xl_reads(written) == value
