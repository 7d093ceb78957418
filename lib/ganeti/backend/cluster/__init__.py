"""Handlers of the node calls about the configuration, the queue and the credentials.

=================== =======================================================================
:mod:`.ssconf`      the ssconf files: facts about the cluster which every node needs
:mod:`.config_file` the copy of the configuration on a master candidate
:mod:`.jobqueue`    the copy of the job queue on a master candidate
:mod:`.credentials` the client certificate of this node, and the removal of its credentials
:mod:`.renewal`     the steps of a renewal of certificates which a node carries out
:mod:`.ssh`         the SSH keys of this node, and the keys which may log in
:mod:`.master`      the daemons and the address of the master, on the master node
:mod:`.master_vote` the part of this node in the choice of a master
:mod:`.witness`     the witness of the cluster, as this node reaches it
:mod:`.allocator`   runs an instance allocator, a program which chooses nodes
=================== =======================================================================
"""
