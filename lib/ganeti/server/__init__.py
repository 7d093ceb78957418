"""The main functions of the daemons: options, start-up, signals, end; no logic of the cluster."""
