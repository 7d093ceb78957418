"""Programs which the daemons start: transfers of disks, consoles, metadata forwarding."""
