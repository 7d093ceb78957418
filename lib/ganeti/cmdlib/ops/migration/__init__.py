"""Moving an instance to another node: migration and failover."""
