"""This machine: the real one, or one node of a virtual cluster.

Paths, users, names and addresses; chosen once at the start of a program.
"""
