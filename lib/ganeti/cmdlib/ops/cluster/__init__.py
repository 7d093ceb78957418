"""Parts of the operations on the cluster as a whole.

========================= =================================================================
``common_files``          copies files which all nodes share, such as keys and certificates
``communication_network`` the network over which guests talk to their node
``master_address``        changes the address of the master
``ssh_keys``              distributes the SSH keys of the nodes
========================= =================================================================
"""
