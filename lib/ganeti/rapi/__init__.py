"""The REST interface: the operations of the cluster, over HTTPS.

The daemon ``ganeti-rapi`` runs on the master and owns nothing; it translates. A request becomes a
query to the master daemon, or an opcode which is submitted as a job and answered with the number of
the job.

======================= ==================================================================
:mod:`.declare`         the classes with which resources are declared
:mod:`.resources`       all resources, a file per subject
:mod:`.application`     serves one request: finds the resource, checks rights, answers
:mod:`.batch`           carries out several operations of one request
:mod:`.call`            one request while it is served: what it brings, checked
:mod:`.checks`          checks a request by the declaration, and makes opcodes from it
:mod:`.master`          asks the master daemon
:mod:`.failures`        the HTTP status for each kind of error
:mod:`.represent`       chooses the representation of an answer, and makes it
:mod:`.compression`     compresses answers for clients which ask for that
:mod:`.events`          sends events to clients
:mod:`.event_socket`    sends events over a WebSocket
:mod:`.event_scope`     which events a user with rights for some instances gets
:mod:`.webhooks`        sends events to servers which wait for them
:mod:`.identify`        who sends a request: the ways in which users identify themselves
:mod:`.challenge`       the answer to a request without credentials
:mod:`.users`           the users file
:mod:`.kept_records`    the daemon's copy of sessions, tokens and their like
:mod:`.sessions`        sessions of browsers, and their cookie
:mod:`.login`           a login with a password, and a code
:mod:`.totp`            one-time codes: secrets, codes, recovery codes
:mod:`.totp_factor`     one-time codes as a second factor: enrolment, checks, limits
:mod:`.sealed`          secrets which are encrypted in the configuration
:mod:`.passkeys`        passkeys of users: records, challenges, ceremonies
:mod:`.webauthn`        checks the answers of authenticators
:mod:`.listeners`       ends connections which stay open, with the identity of their user
:mod:`.proofs`          the parts of the daemon that know what proves an identity
:mod:`.credentials`     what access tokens and client certificates share
:mod:`.tokens`          access tokens of programs
:mod:`.certificates`    client certificates of programs
:mod:`.rights`          the rights of users, and the words for them
:mod:`.selectors`       for which instances a right holds
:mod:`.roles`           the roles file: roles, pools of instances, quotas
:mod:`.opcode_rights`   which opcodes a user may submit
:mod:`.scope`           what a user with rights for some instances may see and do
:mod:`.limited_master`  the master as such a user sees it
:mod:`.console_field`   lists of instances for users without the right for the consoles
:mod:`.limited_ops`     which opcodes such a user may submit
:mod:`.passwords`       the forms of a password in the users file
:mod:`.pam`             passwords which the machine checks
:mod:`.oidc`            login at another server
:mod:`.helper_process`  runs a program for a request
:mod:`.guesses`         limits how often passwords may be guessed, and whose check comes next
:mod:`.placement`       questions about placement, answered by processes
:mod:`.pace`            counts how often something happens, for each user or address
:mod:`.job_limits`      limits the jobs of each user
:mod:`.quotas`          limits what the instances of an owner have together
:mod:`.growth`          what instances may have after the opcodes of a job
:mod:`.demand`          whether the cluster demands a password for every request
:mod:`.origin`          refuses requests which a page of another site makes a browser send
:mod:`.schema`          JSON Schema of types
:mod:`.typed`           types of answers, from their declarations in Python
:mod:`.operation_names` names of operations in the OpenAPI description
:mod:`.openapi`         the OpenAPI description
:mod:`.pages`           the documentation of the resources
:mod:`.plans`           the plan of an operation, from a dry run
:mod:`.client`          the client for programs by others
======================= ==================================================================

Every resource is declared once: its path, its methods, and for each its parameters, the opcode or
query which it becomes, its result and the rights it needs. Dispatch and checks, the OpenAPI
description and the documentation are derived from the declarations, so they always agree.

The client imports no other module of this project, and may be copied.

Source: Ganeti design 2.0, *Remote API changes*; manual page **ganeti-rapi**.
"""
