"""Queries: the fields of every kind of object, the filter language, and the rows of the answer.

The functions of this package are pure: they work on a snapshot of the configuration and on live
data which the caller collected. The same tables of fields answer ``Query`` and ``QueryFields`` in
LUXI, are used by the ``gnt-* list`` commands and the REST interface, and are listed in the
documentation.

============= ======================================================================
``field``     the class of fields, and the marks for missing values
``view``      a snapshot with the look-ups which fields need, made once per query
``filter``    the filter language: JSON form, text form, evaluation
``job_rules`` filter rules of the job queue: their syntax, and which jobs match them
``findings``  the findings in the log of a cluster verification
``resources`` the fields, a file per kind of object
``engine``    answers a query
``order``     the order of lists, by fields in both directions
``page``      answers a query for a part of a list
============= ======================================================================
"""
