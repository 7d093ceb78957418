"""Kinds of events (``WaitForEvents``, ``/2/events``, ``gnt-cluster events``)."""

JOB, INSTANCE, NODE, GROUP = "job", "instance", "node", "group"
NETWORK, FILTER, CLUSTER = "network", "filter", "cluster"
FINDING, LOG, PROGRESS = "finding", "log", "progress"

KINDS = (JOB, INSTANCE, NODE, GROUP, NETWORK, FILTER, CLUSTER, FINDING, LOG, PROGRESS)
#: The kinds which a client gets that asks for none.
DEFAULT_KINDS = frozenset({JOB, INSTANCE})
#: Kinds of which there may be thousands in a minute. They are only made while a client asks.
NOISY = frozenset({LOG, PROGRESS})
#: Member of what is known about the events of a job: name, tags and groups of each instance that it
#: names, for the rights of users of the REST interface.
INSTANCES = "instances"
