"""What several logical units share, a package for each subject.

Logical units import from here; nothing here imports a logical unit. A package imports from those
above it only (``test/unit/test_layers.py``).

============= ===================================================================
``cluster``   files on all nodes, SSH keys, the address of the master
``liveness``  where an instance runs, and whether a machine is on
``network``   networks and their connections to node groups
``os``        summary of the OS definitions of all nodes
``policy``    instance policies
``tags``      tags of all objects
``test``      a rendezvous with test programs
``params``    parameters of cluster, groups, nodes, instances, OS; hot-plugging
``disks``     disks of instances: specs, devices, replicas, snapshots, conversion
``nics``      network interfaces of instances
``guest``     start, stop, console, helper guests, removal
``install``   OS installation, and reservations
``transfer``  exports, imports, and moves between clusters
``placement`` choice of nodes, by the user or by an allocator
``creation``  creation of an instance
``group``     moves between node groups
``migration`` migration and failover
``node``      roles, candidates, evacuation, maintenance
``verify``    the checks of cluster verification
============= ===================================================================
"""
