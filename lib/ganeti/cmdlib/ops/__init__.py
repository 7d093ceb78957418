"""What several logical units share, a package for each subject.

Logical units import from here; nothing here imports a logical unit.
"""
