"""Disks of instances: specs, devices on nodes, replicas, snapshots, conversion.

=================== ==================================================================
``specs``           makes disk objects from the specs which users give
``capacity``        checks the free space before disks are created
``ownership``       which devices an operation has made, and may remove again
``calls``           asks a node about several disks with one call
``devices``         creates, removes, activates and deactivates the disks of instances
``activation_unit`` base of the units which activate and deactivate disks
``reach``           whether other nodes can use disks on storage which they share
``same_directory``  which nodes see one directory, such as one of a network file system
``sync``            waits until mirrored disks are in sync
``sizes``           the sizes which disks really have on their nodes
``wipe``            overwrites new storage
``snapshots``       finds snapshots, and protects them and restored disks
``replicas``        records what is known about the two replicas of a mirrored disk
``replica_report``  what users are shown about these replicas
``mirror``          states, roles and connection of the two replicas
``suspended_io``    lets mirrored disks without a peer suspend their I/O
``replace``         replaces the storage of mirrored disks
``same_device``     disks with different names which are one device
``adopt``           takes existing volumes as the disks of a new instance
``convert``         converts the disks of a stopped instance to another disk template
``modify``          adds, removes, attaches, detaches and modifies disks
=================== ==================================================================
"""
