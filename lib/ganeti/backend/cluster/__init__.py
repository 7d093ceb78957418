"""Handlers of the node calls about the configuration, the queue and the credentials."""
