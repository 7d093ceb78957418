"""The placement programs: hail, hbal, hcheck, hinfo, hroller, hscan, hspace, hsqueeze and harep.

================== =======================================================================
:mod:`.options`    the options of all programs, in one table
:mod:`.program`    what the programs share: read options, load the cluster, print
:mod:`.loading`    reads the cluster from where the user says
:mod:`.luxi`       reads the cluster from the master daemon of this machine
:mod:`.rest`       reads the cluster from a REST interface, or from files with its answers
:mod:`.monitoring` asks the monitoring daemons for the load of processors (``--mond``)
:mod:`.show`       writes requests and clusters with all details (``hail -v -v``)
:mod:`.reports`    results for other programs (``--output json``)
:mod:`.execute`    makes the moves of a solution with jobs
:mod:`.switch`     switches nodes off or on, as ``hsqueeze`` has planned
:mod:`.questions`  questions of programs, such as the REST daemon
:mod:`.hail`       ``hail``: an instance allocator
:mod:`.hbal`       ``hbal``: moves instances so that nodes are used evenly
:mod:`.hcheck`     ``hcheck``: checks the health of a cluster
:mod:`.hinfo`      ``hinfo``: shows the nodes, instances and score of a cluster
:mod:`.hroller`    ``hroller``: plans reboots of nodes without stopping instances
:mod:`.hscan`      ``hscan``: reads clusters and writes each of them to a file
:mod:`.hspace`     ``hspace``: says how many more instances fit
:mod:`.hsqueeze`   ``hsqueeze``: says which nodes can be switched off
:mod:`.harep`      ``harep``: repairs instances whose nodes are offline
================== =======================================================================
"""
