"""Constants, a module for each subject. This file imports none of the modules.

A published value (in files, on sockets, in REST, in hooks) has its published name, without a prefix
which is the name of the module.
"""
