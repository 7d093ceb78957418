"""Programs which other programs start: transfers of disks, consoles, forwarding of metadata.

The administrator does not run them. Each module with a function ``main`` is one program.
"""
