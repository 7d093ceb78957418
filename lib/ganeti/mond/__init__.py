"""The monitoring daemon (``ganeti-mond``): measures a node, and publishes reports over HTTP.

===================== =======================================================================
:mod:`.report`        the form of reports, and the interface of a collector
:mod:`.collectors`    one module for each subject that is measured
:mod:`.node_state`    metrics of this node besides the collectors, and of the cluster
:mod:`.guests`        metrics of what the guests of this node use
:mod:`.configuration` which collectors are active, from the configuration query daemons
:mod:`.registry`      all collectors of a node, and the results of those which collect always
:mod:`.web`           the pages: reports as JSON, the same as OpenMetrics
:mod:`.openmetrics`   turns reports into metrics
===================== =======================================================================

The process is :mod:`ganeti.server.mond`. The program ``mon-collector`` runs one collector once.

Source: Ganeti daemons design, *Monitoring daemon*; paths and forms as published.
"""
