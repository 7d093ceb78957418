"""Fields of the rules which jobs pass before they run."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_OTHER
from ganeti.objects import FilterRule
from ganeti.query.field import Field, Resource, attribute
from ganeti.query.view import View


def _rules(view: View) -> list[FilterRule]:
    """In the order in which they are applied."""
    return sorted(
        view.config.filters.values(), key=lambda rule: (rule.priority, rule.watermark, rule.uuid)
    )


RESOURCE = Resource(
    query_c.FILTER,
    [
        Field("uuid", "UUID", KIND_OTHER, "UUID of the rule", attribute("uuid")),
        Field(
            "watermark",
            "Watermark",
            KIND_OTHER,
            "Highest job number when the rule was made",
            attribute("watermark"),
        ),
        Field(
            "priority",
            "Priority",
            KIND_OTHER,
            "Rules with lower numbers come first",
            attribute("priority"),
        ),
        Field(
            "predicates",
            "Predicates",
            KIND_OTHER,
            "Which jobs the rule is about",
            lambda view, rule: list(rule.predicates),
        ),
        Field("action", "Action", KIND_OTHER, "What happens to them", attribute("action")),
        Field(
            "reason_trail",
            "ReasonTrail",
            KIND_OTHER,
            "Who made the rule and why",
            lambda view, rule: list(rule.reason_trail),
        ),
    ],
    _rules,
    name_field="uuid",
)
