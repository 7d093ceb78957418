"""The chaos run (``make chaos``): a cluster under load whose parts fail, and whose promises hold.

``doc/fault-injection.rst`` says what it does and how to repeat it. The modules:

================ ==================================================================================
``schedule``     which faults are made when: from a number (the *seed*) alone
``lab``          the virtual cluster of five nodes, its processes and files
``shim``         what every Python process of the cluster loads: clock, disk, flushes, guests
``versions``     a second version of the program, for upgrades
``power``        what a power cut leaves of the files of a node
``faults``       makes and mends the faults
``users``        users who submit jobs, over the local socket, REST and the commands
``history``      what was acknowledged, in a file outside of the cluster
``evidence``     what the cluster itself has left: jobs, logs, guests, configuration
``checker``      compares both: the promises, as pure functions
``availability`` how long nothing was committed although a majority was well
``trend``        files, memory and descriptors which only grow
``settle``       waits until all is mended, as an administrator would, and looks for leaks
``report``       counts and findings, as text and JSON
``defects``      runs it with known defects in a copy of the program: each must be found
``program``      the command line
================ ==================================================================================
"""
