"""Queries: which fields every kind of object has, the filter language, and how rows are made.

Everything here is pure: it works on a snapshot of the configuration and on live data which somebody
else collected (``cmdlib.query`` on the master). The same tables answer ``Query`` and
``QueryFields`` on the master's socket, feed the ``gnt-* list`` commands and the REST interface, and
are what the documentation lists.

=============== =================================================================
``field``       what a field is, and the marks for values which are not there
``view``        a snapshot with the look-ups that fields need, made once per query
``filter``      the filter language: JSON form, text form, evaluation
``engine``      a query from request to answer
``resources/``  the fields, a file per kind of object
=============== =================================================================
"""
