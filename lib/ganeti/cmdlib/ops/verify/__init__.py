"""Checks of cluster verification, a module for each subject."""
