"""LUXI, the protocol of the master's local socket.

=============== ===============================================================
``protocol``    the format of messages: JSON text, then one byte
``methods``     the table of methods: arguments, rights, what may be repeated
``client``      the client, which commands and daemons use
=============== ===============================================================
"""
