"""The REST interface: what the cluster can do, over HTTPS.

The daemon ``ganeti-rapi`` runs on the master and owns nothing; it translates. A request becomes a
question to the master daemon (:mod:`ganeti.rapi.master`), or an opcode which is submitted as a job
and answered with the job's number. Who may ask is in a file of users (:mod:`ganeti.rapi.users`).

Every resource is declared once, in :mod:`ganeti.rapi.resources`: its path, its methods, and for
each what it takes, what it becomes, what it returns and who may use it
(:mod:`ganeti.rapi.declare`). Dispatch and checks (:mod:`ganeti.rapi.application`), the OpenAPI
description (:mod:`ganeti.rapi.openapi`) and the documentation (:mod:`ganeti.rapi.pages`) are
derived from the declarations, so they cannot disagree.

:mod:`ganeti.rapi.client` is the client for programs by others; it imports nothing of ours, and may
be copied out of here.

Source: seed 001 *Remote API changes*; ganeti-rapi(8).
"""
