"""Parts of the creation of an instance.

============= ===================================================
``names``     names and addresses of new and of renamed instances
``plan``      the plan, and the checks from which it is made
``from_copy`` the opcode which creates the copy of an instance
``objects``   the objects of the configuration
``execution`` carries out the plan
``unit``      the base of the units which create an instance
============= ===================================================
"""
