"""Shape of the code: figures about its structure, and the limits which they must keep.

``make shape`` prints the figures; ``test/unit/devel/test_shape.py`` compares them with
``limits.json``. A limit only becomes stricter: where the code is better than its limit, the test
asks for the lower number.

- ``source``: read and parse the files of a tree
- ``functions``: long functions, deep nesting, wide signatures, helpers that take a whole unit
- ``units``: helpers of logical units for which a ``Context`` is enough
- ``imports``: the graph of imports, circles of files, arrows that run back inside a folder
- ``copies``: runs of equal lines
- ``unused``: functions, methods and constants without a caller; ``unused-names`` has the exceptions
- ``program``: the command, and the comparison with the limits
"""
