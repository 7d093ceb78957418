"""The driver of the hypervisor ``chroot``: programs which run in a directory of the node.

They share the kernel, the processes, the network and the users of the node. Nothing is limited.
"""
