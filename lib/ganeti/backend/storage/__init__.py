"""Handlers of the node calls about disks and storage units."""
