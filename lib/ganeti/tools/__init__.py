"""Programs beside the ``gnt-*`` commands: starting daemons, virtual clusters, measurements."""
