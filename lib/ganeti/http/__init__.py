"""HTTPS between the daemons: a forking server, a pycurl client, and who may call.

One request per connection, JSON bodies, certificates on both sides. This room knows nothing of what
the requests mean: the server hands a :class:`~ganeti.http.server.AuthorisedRequest` to a function, the client
returns bytes.
"""

#: Largest request body in bytes (published).
MAX_BODY_BYTES = 10 * 1024 * 1024
#: Answers carry lists of instances, logs and exports' facts; no honest one is larger.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
#: Header of an answer with ok=false: JSON ``[class name, [arguments]]`` of the error, in ASCII. The
#: body keeps the published form (a text), so programs that do not know the header lose nothing.
ERROR_HEADER = "X-Ganeti-Error"
#: Header of a request: the epoch of the master who asks (``NUMBER OWNER``). Header of a refusal
#: (403) because that epoch is over: the one which the node obeys.
EPOCH_HEADER = "X-Ganeti-Epoch"
