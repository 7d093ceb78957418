"""Plain values, a file per subject. Nothing is imported here; take the subject you need.

Where a value is published (files, sockets, REST, hooks), its name is the published one without the
prefix which the file's own name already says.
"""
