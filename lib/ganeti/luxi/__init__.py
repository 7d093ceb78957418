"""LUXI, the protocol of the local socket of the master: framing, and the client."""
