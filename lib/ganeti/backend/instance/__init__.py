"""Handlers of the node calls about instances, their OS scripts and helper guests."""
