"""Reading and merging the OS definitions of the nodes."""
