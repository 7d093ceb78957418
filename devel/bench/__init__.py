"""Measurements of a virtual cluster: ``python -m devel.bench`` (``make bench``)."""
