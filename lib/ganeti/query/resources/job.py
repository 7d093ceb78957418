"""Fields of jobs; the rows come from the job queue, which uses the same names."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_BOOL, KIND_NUMBER, KIND_OTHER, KIND_TEXT
from ganeti.query.field import JOB_ID, TIMESTAMP, Resource
from ganeti.query.resources.rows import null_field, row_field, rows

RESOURCE = Resource(
    query_c.JOB,
    [
        row_field("id", "ID", KIND_NUMBER, "ID of the job", compare=JOB_ID),
        row_field(
            "status",
            "Status",
            KIND_TEXT,
            "State: queued, waiting, canceling, running, canceled, success or error",
        ),
        row_field("priority", "Priority", KIND_NUMBER, "Priority, from 19 (last) to -20 (first)"),
        row_field("archived", "Archived", KIND_BOOL, "Whether the job is in the archive"),
        row_field("summary", "Summary", KIND_OTHER, "One line for each opcode"),
        row_field(
            "received_ts",
            "Received",
            KIND_OTHER,
            "Time when the job was submitted: seconds, microseconds",
            compare=TIMESTAMP,
        ),
        row_field(
            "start_ts",
            "Start",
            KIND_OTHER,
            "Time when the job was started: seconds, microseconds",
            compare=TIMESTAMP,
        ),
        row_field(
            "end_ts",
            "End",
            KIND_OTHER,
            "Time when the job ended: seconds, microseconds",
            compare=TIMESTAMP,
        ),
        null_field("ops", "OpCodes", KIND_OTHER, "Parameters of each opcode, a dictionary"),
        null_field("opresult", "OpCode_result", KIND_OTHER, "Result of each opcode"),
        null_field("opstatus", "OpCode_status", KIND_OTHER, "State of each opcode"),
        null_field("oplog", "OpCode_log", KIND_OTHER, "Messages of each opcode"),
        null_field(
            "opstart",
            "OpCode_start",
            KIND_OTHER,
            "Time when each opcode was started, before it acquired its locks",
        ),
        null_field(
            "opexec",
            "OpCode_exec",
            KIND_OTHER,
            "Time when each opcode was executed, after it acquired its locks",
        ),
        null_field("opend", "OpCode_end", KIND_OTHER, "Time when each opcode ended"),
        null_field("oppriority", "OpCode_prio", KIND_OTHER, "Priority of each opcode"),
    ],
    rows,
    name_field="id",
)
