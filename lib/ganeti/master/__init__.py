"""The services of the master daemon: LUXI, queries, events, history, and the fence.

======================== ===================================================================
:mod:`.luxi_server`      the local socket: connections, requests and answers, in one loop
:mod:`.luxi_service`     one function for each method of LUXI
:mod:`.queries`          answers about the objects of the cluster
:mod:`.events`           the last events of the cluster, and waiting for the next one
:mod:`.event_data`       what events say
:mod:`.event_findings`   which findings of the verification are new, and which have gone
:mod:`.history`          answers about the history of the configuration
:mod:`.history_copies`   brings this history on other candidates up to date
:mod:`.access_records`   sessions, tokens and other proofs of the identity of users
:mod:`.documents`        the documents which programs keep in the cluster
:mod:`.metrics`          what the daemon has measured, and its present state in numbers
:mod:`.audit`            the logs of jobs, for people and as a proof
:mod:`.audit_search`     searches in the audit log
:mod:`.audit_copies`     sends the audit log to the other candidates
:mod:`.startup`          the steps before the daemon serves: the locks of the node, the role
:mod:`.fence`            ends the daemon when another master has taken over
:mod:`.commit_probe`     how long ago this master could commit; ends one which cannot
:mod:`.returning`        sends at once to candidates which lag, and answer again
:mod:`.witness`          the witness of a cluster with two candidates
:mod:`.key_learning`     learns the keys of nodes which the configuration does not have yet
:mod:`.certificate_renewal` renews certificates of the cluster and the nodes before they expire
:mod:`.orphaned_work`    keeps locks while nodes work for jobs which have ended
:mod:`.node_poll`        notices dead nodes, and submits the failover of their instances
:mod:`.watchdog_records` records and releases the hardware watchdogs of nodes
:mod:`.suspended_disks`  resumes suspended I/O of mirrored disks which have lost their peers
======================== ===================================================================

The configuration, the locks and the job queue have packages of their own;
:mod:`ganeti.server.mastering` starts all of them.
"""
