"""Exports and imports of instances, and moves between clusters."""
