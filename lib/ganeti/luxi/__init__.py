"""LUXI, the protocol of the master's local socket.

================ ===============================================================
``protocol``     the format of messages: JSON text, then one byte
``methods``      the table of methods: arguments, rights, what may be repeated
``client``       the client, which commands and daemons use
``answers``      the shapes of the answers of our own methods
``explain_text`` the texts of the answers to ``ExplainJob``
================ ===============================================================
"""
