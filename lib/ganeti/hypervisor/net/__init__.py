"""The host's side of the network interfaces of guests, for hypervisors with tap devices."""
