"""The main functions of the daemons: options, start-up, signals, end; no logic of the cluster.

=================== ===========================================================================
:mod:`.daemon`      the part of the main function which all daemons share, and their signals
:mod:`.event_loop`  what daemons with an event loop share: signals, errors which no task awaits
:mod:`.noded`       the node daemon ``ganeti-noded``
:mod:`.mastership`  whether the master daemon may run on this node
:mod:`.fork_server` the program which makes the processes of jobs
:mod:`.masterd`     the master daemon ``ganeti-masterd``: whether it may start here
:mod:`.mastering`   the work of the master daemon from its start to its end
:mod:`.rapi`        the REST daemon ``ganeti-rapi``
:mod:`.confd`       the configuration query daemon ``ganeti-confd``
:mod:`.metad`       the metadata daemon ``ganeti-metad``
:mod:`.mond`        the monitoring daemon ``ganeti-mond``
:mod:`.kvmd`        ``ganeti-kvmd``, which notices guests of KVM that are shut down from inside
:mod:`.failoverd`   ``ganeti-failoverd``, which watches the master
:mod:`.watchdogd`   ``ganeti-watchdogd``, which feeds the hardware watchdog
=================== ===========================================================================
"""
