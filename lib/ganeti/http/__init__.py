"""HTTP and HTTPS: servers, a client, authorisation of node calls.

==================== =======================================================================
:mod:`.server`       answers every request in a process of its own; for node calls
:mod:`.client`       the client for node calls
:mod:`.received`     collects an answer up to a limit, for all clients
:mod:`.web`          one request to a server outside of the cluster
:mod:`.auth`         which certificates may make node calls
:mod:`.event_server` serves many clients in one process
:mod:`.websocket`    the handshake of a WebSocket, and one that is connected
:mod:`.frames`       the frames of a WebSocket
:mod:`.tls_stream`   TLS for the connections of that server
:mod:`.head`         reads the head of a request, by one rule for all servers
:mod:`.messages`     reads requests, and writes the heads of answers
:mod:`.peers`        what the limits of a server count as one client
:mod:`.access_log`   a line for each request, as web servers write it
:mod:`.document`     a document on a web server, which is read and replaced under conditions
==================== =======================================================================

Node calls usually have one request per connection, JSON bodies, and certificates on both sides. The
package does not interpret bodies: the server passes a
:class:`~ganeti.http.server.AuthorisedRequest` to a function, the client returns bytes.
"""

#: Largest request body in bytes (published).
MAX_BODY_BYTES = 10 * 1024 * 1024
#: Largest body of an answer in bytes; answers contain lists of instances, or logs.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
#: Largest head of an answer in bytes, with all its headers; an error in a header has up to 8 KiB.
MAX_ANSWER_HEAD_BYTES = 64 * 1024
#: Header of an answer with ok=false: JSON ``[class name, [arguments]]`` of the error, in ASCII. The
#: body has the published form (a text), for programs which do not know the header.
ERROR_HEADER = "X-Ganeti-Error"
#: Header of a request: the epoch of the master which calls (``NUMBER OWNER``). Header of a refusal
#: (403) because that epoch is too old: the epoch which the node has promised.
EPOCH_HEADER = "X-Ganeti-Epoch"
#: Header of a request which changes instances or disks: the job for which it is made, or ``-``, and
#: the caller's name for this request, in hexadecimal (``JOB TOKEN``).
WORK_HEADER = "X-Ganeti-Work"
#: Header of a request: the release of the caller. Header of an answer to a caller of another
#: release: the release of the node.
RELEASE_HEADER = "X-Ganeti-Release"
#: Header of an answer to a caller of another release: JSON list of what the node has ignored in the
#: arguments, because its release does not know it.
IGNORED_HEADER = "X-Ganeti-Ignored"
