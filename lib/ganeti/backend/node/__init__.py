"""Handlers of the node calls about the machine itself: facts, verification, power, hooks, files."""
