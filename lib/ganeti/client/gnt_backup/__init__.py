"""The program ``gnt-backup``: exports of instances, and instances made from them."""
