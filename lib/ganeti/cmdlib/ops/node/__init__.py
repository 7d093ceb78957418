"""Parts of the operations on nodes.

================= ==========================================================
``candidates``    promotes and demotes master candidates
``roles``         the roles of nodes, and the transitions between them
``guests``        the guests of a node which becomes offline, or comes back
``evacuation``    base of the units which move all instances away
``move_jobs``     the jobs which move instances and replicas away
``maintenance``   what a maintenance records, moves away and brings back
``unattended``    what may be done with a dead node without an administrator
``storage_query`` base of the units which list storage of nodes
================= ==========================================================
"""
