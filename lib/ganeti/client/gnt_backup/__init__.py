"""The program ``gnt-backup``: commands about exports of instances."""
