"""The program ``gnt-storage``: commands about providers of external storage."""
