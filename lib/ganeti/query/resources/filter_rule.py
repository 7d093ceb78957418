"""Fields of filter rules for jobs."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_OTHER
from ganeti.objects import FilterRule
from ganeti.query.field import Field, Resource, attribute
from ganeti.query.view import View


def _rules(view: View) -> list[FilterRule]:
    """Return all rules in the order in which they are applied."""
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
            "Highest job ID when the rule was made",
            attribute("watermark"),
        ),
        Field(
            "priority",
            "Priority",
            KIND_OTHER,
            "Priority: rules with lower numbers are applied first",
            attribute("priority"),
        ),
        Field(
            "predicates",
            "Predicates",
            KIND_OTHER,
            "Predicates which select the jobs",
            lambda view, rule: list(rule.predicates),
        ),
        Field("action", "Action", KIND_OTHER, "Action for the selected jobs", attribute("action")),
        Field(
            "reason_trail",
            "ReasonTrail",
            KIND_OTHER,
            "Reason trail of the rule",
            lambda view, rule: list(rule.reason_trail),
        ),
    ],
    _rules,
    name_field="uuid",
)
