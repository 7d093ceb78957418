"""Measurements of virtual clusters: ``python -m devel.bench`` (``make bench``).

``program`` has the sections, titles and budgets; the other modules measure one subject each.
``config`` is a program of its own for the configuration store.
"""
