"""Login at another server, by OpenID Connect.

================== =======================================================================
:mod:`.settings`   the file with the settings
:mod:`.provider`   asks the provider: its addresses, its keys, tokens for a code
:mod:`.verify`     whether an ID token is valid, by the package Authlib
:mod:`.person`     who it is, and which rights the groups give
:mod:`.flow`       one login: the way to the provider, and the way back
:mod:`.logins`     the logins which the settings allow at present
================== =======================================================================

The browser goes to the provider with a challenge and comes back with a code. The daemon exchanges
the code for an ID token, in a connection of its own, and verifies it; the person then gets a
session like all others. Nothing of the provider is kept, neither tokens nor a secret of its own.

Source: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE); RFC 9700 (security).
"""
