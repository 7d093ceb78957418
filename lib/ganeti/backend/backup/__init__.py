"""Handlers of the node calls about exports, imports and transfers."""
