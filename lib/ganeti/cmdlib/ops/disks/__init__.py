"""Disks of instances: specs, devices on nodes, replicas, snapshots, conversion."""
