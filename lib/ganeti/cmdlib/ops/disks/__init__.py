"""Disks of instances: specs, devices on nodes, replicas, snapshots, conversion.

======================= ==================================================================
:mod:`.specs`           makes disk objects from the specs which users give
:mod:`.capacity`        checks the free space before disks are created
:mod:`.ownership`       which devices an operation has made, and may remove again
:mod:`.calls`           asks a node about several disks with one call
:mod:`.devices`         creates, removes, activates and deactivates the disks of instances
:mod:`.activation_unit` base of the units which activate and deactivate disks
:mod:`.sync`            waits until mirrored disks are in sync
:mod:`.sizes`           the sizes which disks really have on their nodes
:mod:`.wipe`            overwrites new storage
:mod:`.snapshots`       finds snapshots, and protects them and restored disks
:mod:`.replicas`        records what is known about the two replicas of a mirrored disk
:mod:`.replica_report`  what users are shown about these replicas
:mod:`.mirror`          states, roles and connection of the two replicas
:mod:`.suspended_io`    lets mirrored disks without a peer suspend their I/O
:mod:`.replace`         replaces the storage of mirrored disks
:mod:`.adopt`           takes existing volumes as the disks of a new instance
:mod:`.convert`         converts the disks of a stopped instance to another disk template
:mod:`.modify`          adds, removes, attaches, detaches and modifies disks
======================= ==================================================================
"""
