"""Functions which the operations for tests share.

============== ==================================================================
``rendezvous`` a socket by which a test program stops and continues a running job
============== ==================================================================
"""
