"""LUXI, the protocol of the master's local socket: the format of messages, and the client."""
