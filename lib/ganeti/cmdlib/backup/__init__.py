"""Logical units about backups of instances."""
