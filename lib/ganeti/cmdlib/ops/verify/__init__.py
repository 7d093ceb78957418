"""The checks of cluster verification, a module for each subject.

=================== ======================================================
``answers``         the shapes of the answers of the nodes
``findings``        reports what was found, with the published codes
``devices``         devices of administrators which two disks have
``directories``     directories which nodes share, or do not
``files``           files which all nodes share, the configuration, ssconf
``guest_users``     the users under which guests run
``layout``          nodes and disks of instances in the configuration
``left_disks``      disks which interrupted operations have left
``maintenance``     nodes in maintenance
``mirrors``         replicas of mirrored disks, and who may write to them
``os_definitions``  OS definitions
``programs``        programs of the administrator, and the master address
``queue``           copies of the job queue on the candidates
``storage``         LVM, DRBD, and the disks of instances
``machine_storage`` whether the storage of one machine fits the cluster
``watcher``         whether a run of the watcher hangs
``self_repair``     removes a lost physical volume from its volume group
=================== ======================================================
"""
