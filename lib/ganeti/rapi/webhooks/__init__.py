"""Webhooks: events of the cluster, sent to servers which wait for them.

An administrator adds a *rule*: which events, and the URL of a receiver. The REST daemon on the
master sends each of these events with a signature, in order, and at least once.

* :mod:`.rules` -- the rules and their access records, and how severe an event is
* :mod:`.message` -- the body and the signed headers of a message
* :mod:`.addresses` -- to which addresses messages may go
* :mod:`.courier` -- sends the events of one rule, and tries again
* :mod:`.sender` -- follows the rules, keeps their states, has a courier for each

Source: ``doc/design-webhooks.rst``; the Standard Webhooks specification.
"""
