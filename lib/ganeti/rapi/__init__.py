"""The REST interface: the operations of the cluster, over HTTPS.

The daemon ``ganeti-rapi`` runs on the master and owns nothing; it translates. A request becomes a
query to the master daemon (:mod:`ganeti.rapi.master`), or an opcode which is submitted as a job and
answered with the number of the job. The users and their rights are in a file
(:mod:`ganeti.rapi.users`).

Every resource is declared once, in :mod:`ganeti.rapi.resources`: its path, its methods, and for
each its parameters, the opcode or query which it becomes, its result and the rights it needs
(:mod:`ganeti.rapi.declare`). Dispatch and checks (:mod:`ganeti.rapi.application`), the OpenAPI
description (:mod:`ganeti.rapi.openapi`) and the documentation (:mod:`ganeti.rapi.pages`) are
derived from the declarations, so they always agree.

:mod:`ganeti.rapi.client` is the client for programs by others; it imports no other module of this
project, and may be copied.

Source: Ganeti design 2.0, *Remote API changes*; manual page **ganeti-rapi**.
"""
