"""The hypervisor ``fake``: a file stands for each guest."""
