"""The program ``gnt-storage``: providers of external storage on the nodes."""
