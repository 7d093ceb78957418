"""Checks of parameters, and how a change is merged with the present ones."""
