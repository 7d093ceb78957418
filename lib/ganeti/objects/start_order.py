"""The order in which instances start when many have to, for example after a power cut.

Source: ganeti-watcher(8), *Which instances are started*.
"""

from __future__ import annotations

from collections.abc import Iterable

#: An instance with the tag ``ganeti:watcher:order:N`` starts before those with a larger N.
ORDER_TAG = "ganeti:watcher:order:"
#: The order of an instance without that tag.
DEFAULT_ORDER = 1000


def start_order(tags: Iterable[str]) -> int:
    """Return the place of an instance among those which start; smaller ones come first.

    A tag without a number is ignored; of several tags the smallest number counts.
    """
    given = [tag.removeprefix(ORDER_TAG) for tag in tags if tag.startswith(ORDER_TAG)]
    numbers = [int(number) for number in given if number.isascii() and number.isdecimal()]
    return min(numbers, default=DEFAULT_ORDER)
