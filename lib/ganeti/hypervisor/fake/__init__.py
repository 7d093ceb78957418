"""The hypervisor ``fake``, whose guests are files."""
