"""Disks of instances: specifications, devices on nodes, replicas, snapshots, conversion."""
