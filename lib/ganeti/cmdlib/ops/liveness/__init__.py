"""Parts of logical units which find out where an instance runs and whether a machine is on."""
