"""The exceptions of the whole program.

All packages raise these classes, and all entry points catch them. There is a class for each case
that a caller handles differently; its facts are attributes, and its text is made from them. The
names of the published classes, and the arguments with which they cross a socket, are an interface
for programs of others (:data:`PUBLISHED`). The other classes are our own, and cross a socket as
their published ancestor.

::

    GenericError
    ├── OpPrereqError           refused, nothing was changed         (message, ecode)
    ├── OpExecError             something was changed; the text says what is left
    ├── OpResultError           a job's result is not of the declared type
    ├── OpCodeUnknown           no such OP_ID
    ├── HooksAbort              a pre hook vetoed                    ([[node, script, output]])
    ├── HooksFailure            the hooks could not be run
    ├── HotplugError
    ├── ResultValidationError
    ├── LockError               unknown lock, order violation, lock removed while waiting
    │   └── PidFileLockError    another process has locked the pid file
    ├── JobLost                 no such job
    ├── JobCanceled             raised inside a job which was asked to stop
    ├── JobFileCorrupted
    ├── JobQueueError
    │   ├── JobQueueDrainError
    │   ├── JobQueueFull        ()
    ├── JobSubmittedException   the job was submitted, not awaited   (job id)
    ├── ConfigurationError      the configuration has an error; `path` leads to it
    │   ├── ConfigVerifyError   (message, [problems])
    │   ├── ConfigVersionMismatch (expected, actual)
    │   ├── ReservationError    another job has reserved this name, address or port
    │   └── AddressPoolError
    ├── HypervisorError
    ├── BlockDeviceError ── DeviceCreationError
    ├── StorageError ── FileStoragePathError
    ├── ParameterError ── TypeEnforcementError
    ├── ParseError ── UnitParseError, QueryFilterParseError
    ├── CommandError            a program failed: argv, exit_code, output
    │   └── CommandTimeout      it was ended after timeout_s         (crosses as CommandError)
    ├── ResolverError           (host, code, message)
    ├── IPAddressError, TagError, SshUpdateError, RemoteError, SignatureError
    ├── X509CertError           (file, message)
    ├── ProgrammerError         a caller broke a documented rule
    ├── NoCtypesError, InotifyError, UdpDataSizeError, RapiTestResult
    ├── ConfdClientError ── ConfdMagicError
    ├── QuitGanetiException     a daemon is asked to end
    ├── OpRetryNotSupportedError
    ├── LuxiError               no answer from the master daemon
    │   └── ProtocolError ── ConnectionClosedError, LuxiTimeout, RequestError,
    │                        NoMasterError, LuxiPermissionError
    ├── AllocatorError          an allocator failed, or its answer is wrong
    │   └── NoPlacement         the allocator found no nodes for an instance
    ├── RetryTimeout            a condition did not become true in time
    └── RpcError                a node call: node, call
        ├── NodeOffline         the node is marked offline and was not called
        ├── NodeUnreachable     no connection, or no answer in time
        ├── NodeRefused         the node refused certificate, epoch or procedure
        │   └── NodeKeyMismatch another machine answers at the address of the node
        └── NodeCallFailed      the node answered with an error

A text is in lower case, has no full stop, and names the object; a hint follows as a sentence.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Codes of OpPrereqError: the reason why a request was refused. They are published.
ECODE_RESOLVER = "resolver_error"
ECODE_NORES = "insufficient_resources"
ECODE_TEMP_NORES = "temp_insufficient_resources"
ECODE_INVAL = "wrong_input"
ECODE_STATE = "wrong_state"
ECODE_NOENT = "unknown_entity"
ECODE_EXISTS = "already_exists"
ECODE_NOTUNIQUE = "resource_not_unique"
ECODE_FAULT = "internal_error"
ECODE_ENVIRON = "environment_error"
ECODE_ALL = frozenset(
    (
        ECODE_RESOLVER,
        ECODE_NORES,
        ECODE_TEMP_NORES,
        ECODE_INVAL,
        ECODE_STATE,
        ECODE_NOENT,
        ECODE_EXISTS,
        ECODE_NOTUNIQUE,
        ECODE_FAULT,
        ECODE_ENVIRON,
    )
)


class GenericError(Exception):
    """Base class of the exceptions; ``args`` are the arguments which cross a socket."""

    def wire_args(self) -> list[object]:
        """Return the arguments from which another program makes this error again, in published
        order.
        """
        return list(self.args)


class OpPrereqError(GenericError):
    """The request was refused before anything was changed.

    :param message: names the object and the reason.
    :param ecode: one of :data:`ECODE_ALL`.
    """

    def __init__(self, message: str, ecode: str = ECODE_INVAL) -> None:
        super().__init__(message, ecode)
        self.message = message
        self.ecode = ecode

    def __str__(self) -> str:
        return str(self.message)


class OpExecError(GenericError):
    """The operation failed after it had changed something; the text says what is left."""


class OpResultError(GenericError):
    """The result of an operation is not of the type that its opcode declares."""


class OpCodeUnknown(GenericError):
    """There is no opcode of this name."""


class OpRetryNotSupportedError(GenericError):
    """The operation cannot be repeated on its own."""


class HooksAbort(GenericError):
    """Hooks of the first phase have refused the operation.

    :param failures: ``[(node, script, output), ...]``; the output may be empty.
    """

    def __init__(self, failures: Sequence[Sequence[str]]) -> None:
        self.failures = [(node, script, output) for node, script, output in failures]
        super().__init__([list(failure) for failure in self.failures])

    def __str__(self) -> str:
        text = "; ".join(
            f"node {node}, script {script}: {output or 'no output'}"
            for node, script, output in self.failures
        )
        return f"hooks refused the operation: {text}"


class HooksFailure(GenericError):
    """The hooks of a node could not be run."""


class HotplugError(GenericError):
    """A device could not be added to a running guest, or removed from it."""


class ResultValidationError(GenericError):
    """The result of an opcode is not valid."""


class LockError(GenericError):
    """A lock does not exist, was removed, was not free in time, or was requested in wrong order."""


class PidFileLockError(LockError):
    """Another process has locked the pid file."""


class JobLost(GenericError):
    """The job queue has no job of this number."""


class JobCanceled(GenericError):
    """The job was canceled; raised inside the job."""


class JobFileCorrupted(GenericError):
    """A job file cannot be read."""


class JobQueueError(GenericError):
    """The job queue refuses a request or has failed."""


class JobQueueDrainError(JobQueueError):
    """The job queue is drained and accepts no new jobs."""


class JobQueueFull(JobQueueError):
    """The job queue has as many jobs as it may have."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "the job queue is full"


class JobSubmittedException(GenericError):
    """The command has submitted a job and does not wait for it; has the number of the job."""

    def __init__(self, job_id: int) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"job {self.job_id} was submitted"


class ConfigurationError(GenericError):
    """The configuration, or a setting of this node, has an error.

    :param path: keys which lead to the wrong value, if known.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ConfigVerifyError(ConfigurationError):
    """The configuration contradicts itself.

    :param problems: one text for each contradiction.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.problems = list(problems)
        self.args = (message, self.problems)

    def __str__(self) -> str:
        return ": ".join(
            [self.message, "; ".join(self.problems)] if self.problems else [self.message]
        )


class ConfigVersionMismatch(ConfigurationError):
    """The configuration was written by another version; both versions are numbers."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__("")
        self.expected = expected
        self.actual = actual
        self.args = (expected, actual)

    def __str__(self) -> str:
        return f"configuration has version {self.actual}, this program wants {self.expected}"


class ReservationError(ConfigurationError):
    """Another job has reserved this name, address or port."""


class AddressPoolError(ConfigurationError):
    """An address of a network cannot be reserved or released."""


class HypervisorError(GenericError):
    """A hypervisor refuses parameters, or an operation on a guest failed."""


class BlockDeviceError(GenericError):
    """An operation on a block device failed."""


class DeviceCreationError(BlockDeviceError):
    """A block device could not be created.

    :param created_devices: devices of the failed operation which may be left, and must be removed;
        none when the operation was refused, or has removed what it made.
    """

    def __init__(self, message: str, created_devices: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.created_devices = list(created_devices)

    def wire_args(self) -> list[object]:
        return [*self.args, self.created_devices]


class StorageError(GenericError):
    """An operation on a storage unit failed."""


class FileStoragePathError(StorageError):
    """A path is not allowed for file storage."""


class AllocatorError(GenericError):
    """An allocator could not be run, or its answer cannot be used."""


class NoPlacement(AllocatorError):
    """An allocator found no nodes for an instance."""


class ParameterError(GenericError):
    """A parameter is missing, unknown or out of range."""


class TypeEnforcementError(ParameterError):
    """A value cannot be converted to the type of its parameter."""


class ParseError(GenericError):
    """A text of a user, a file or a program does not have the expected form."""


class UnitParseError(ParseError):
    """A text is not a size with an optional unit."""


class QueryFilterParseError(ParseError):
    """The text of a filter has an error.

    :param text: the filter.
    :param column: position of the error, counted from 1; 0 if it is not known.
    """

    def __init__(self, message: str, text: str = "", column: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.column = column

    def details(self) -> list[str]:
        """Return the lines for a terminal: the filter, a mark below the error, and the message."""
        if not self.column:
            return [str(self)]
        return [self.text, " " * (self.column - 1) + "^", str(self)]


class CommandError(GenericError):
    """A program failed.

    :param argv: the command; or, on the other side of a socket, the complete text of the error.
    :param exit_code: None if the program could not be started or was ended; negative for a signal.
    :param output: the text which the program has printed.
    :param reason: text in place of the one about the exit code.
    """

    def __init__(
        self,
        argv: Sequence[str] | str,
        exit_code: int | None = None,
        output: str = "",
        reason: str = "",
    ) -> None:
        if isinstance(argv, str):
            self.argv: tuple[str, ...] = ()
            message = argv
        else:
            self.argv = tuple(argv)
            why = reason or (
                f"killed by signal {-exit_code}"
                if exit_code is not None and exit_code < 0
                else f"exited with code {exit_code}"
            )
            # repr() keeps process.Secret values hidden.
            command = " ".join(str(word) if type(word) is str else repr(word) for word in argv)
            message = f"command {command!r} {why}"
            if output.strip():
                message += f": {output.strip()}"
        super().__init__(message)
        self.exit_code = exit_code
        self.output = output

    @property
    def problem(self) -> str:
        """The output of the program, or the whole message when it printed nothing."""
        return self.output.strip() or str(self)


class CommandTimeout(CommandError):
    """A program was ended because it took longer than ``timeout_s`` seconds."""

    def __init__(self, argv: Sequence[str] | str, timeout_s: float = 0, output: str = "") -> None:
        super().__init__(argv, None, output, reason=f"did not end within {timeout_s:g} s")
        self.timeout_s = timeout_s


class RetryTimeout(GenericError):
    """A condition did not become true in time."""


class ResolverError(GenericError):
    """A host name has no address."""

    def __init__(self, host: str, code: int = 0, message: str = "name not known") -> None:
        super().__init__(host, code, message)
        self.host = host
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"cannot resolve host name {self.host!r}: {self.message}"


class IPAddressError(GenericError):
    """A text is not an IP address, or not one of the wanted family."""


class TagError(GenericError):
    """A tag is not valid."""


class SshUpdateError(GenericError):
    """SSH keys could not be made, read or distributed."""


class RemoteError(GenericError):
    """The other cluster failed during an export or import."""


class SignatureError(GenericError):
    """A message is not signed with the key of the cluster."""


class X509CertError(GenericError):
    """A certificate cannot be read or used.

    :param filename: its file.
    """

    def __init__(self, filename: str, message: str) -> None:
        super().__init__(filename, message)
        self.filename = filename
        self.message = message

    def __str__(self) -> str:
        return f"certificate {self.filename}: {self.message}"


class ProgrammerError(GenericError):
    """A caller inside the program broke a documented rule."""


class NoCtypesError(GenericError):
    """The platform lacks a C interface."""


class InotifyError(GenericError):
    """File changes cannot be watched."""


class UdpDataSizeError(GenericError):
    """A datagram is too large."""


class RapiTestResult(GenericError):
    """Result of a self-test of the REST client."""


class ConfdClientError(GenericError):
    """A question to the configuration daemon failed."""


class ConfdMagicError(ConfdClientError):
    """A datagram is not one of the configuration daemon's."""


class QuitGanetiException(Exception):
    """The daemon ends after it has sent this answer: ``(success, result)``."""

    def wire_args(self) -> list[object]:
        """Return the arguments which cross a socket."""
        return list(self.args)


class LuxiError(GenericError):
    """A request to the master daemon failed."""


class ProtocolError(LuxiError):
    """The other end does not follow the protocol, or the connection failed."""


class ConnectionClosedError(ProtocolError):
    """The other end has closed the connection."""


class LuxiTimeout(ProtocolError):
    """No connection, or no answer, in time."""


class RequestError(ProtocolError):
    """The master daemon refused the request, with an error that this program does not know."""


class NoMasterError(ProtocolError):
    """No master daemon runs on this node."""


class LuxiPermissionError(ProtocolError):
    """This user may not connect to the master daemon."""


class RpcError(GenericError):
    """A node call has no result.

    The text is for people, so it does not name the procedure; logs add it.

    :param node: name of the node.
    :param call: the procedure.
    """

    def __init__(self, node: str, call: str, message: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.call = call
        self.message = message

    def __str__(self) -> str:
        return f"node {self.node}: {self.message}"


class NodeOffline(RpcError):
    """The node is marked offline and was not called."""

    def __str__(self) -> str:
        return f"node {self.node} is marked offline"


class NodeUnreachable(RpcError):
    """The node could not be reached, or did not answer in time.

    :param machine_is_on: the system of the machine accepted or refused the connection. So guests
        may run although the node daemon does not answer.
    """

    def __init__(
        self, node: str, call: str, message: str = "", machine_is_on: bool = False
    ) -> None:
        super().__init__(node, call, message)
        self.machine_is_on = machine_is_on

    def __str__(self) -> str:
        return f"node {self.node} is unreachable: {self.message}"


class NodeRefused(RpcError):
    """The node refused the call: it does not accept the certificate, the epoch or the procedure.

    :param known_epoch: the epoch which the node obeys, if that of the caller is over; else empty.
    """

    def __init__(self, node: str, call: str, message: str = "", known_epoch: str = "") -> None:
        super().__init__(node, call, message)
        self.known_epoch = known_epoch

    def __str__(self) -> str:
        return f"node {self.node} refused the request: {self.message}"


class NodeLacksCall(NodeRefused):
    """The release of the node does not have the procedure; nothing was done there."""


class NodeKeyMismatch(NodeRefused):
    """The machine at the address of the node shows another key than the configuration has.

    Nothing was sent to it, and nothing is known about the node.
    """

    def __str__(self) -> str:
        return (
            f"node {self.node}: nothing was sent to it: {self.message}. If its machine was"
            f" set up again, accept the new key with 'gnt-node add --readd {self.node}'; otherwise"
            " find out which machine has its address"
        )


class NodeCallFailed(RpcError):
    """The node executed the call, and it failed.

    :param cause: the error on the node, if its class is known here.
    """

    def __init__(
        self, node: str, call: str, message: str = "", cause: Exception | None = None
    ) -> None:
        super().__init__(node, call, message)
        self.cause = cause

    def __str__(self) -> str:
        return f"node {self.node}: {self.message}"


#: The classes whose names other programs may find on a socket.
PUBLISHED: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        AddressPoolError,
        BlockDeviceError,
        CommandError,
        ConfdClientError,
        ConfdMagicError,
        ConfigVerifyError,
        ConfigVersionMismatch,
        ConfigurationError,
        DeviceCreationError,
        FileStoragePathError,
        GenericError,
        HooksAbort,
        HooksFailure,
        HotplugError,
        HypervisorError,
        IPAddressError,
        InotifyError,
        JobCanceled,
        JobFileCorrupted,
        JobLost,
        JobQueueDrainError,
        JobQueueError,
        JobQueueFull,
        JobSubmittedException,
        LockError,
        LuxiError,
        NoCtypesError,
        OpCodeUnknown,
        OpExecError,
        OpPrereqError,
        OpResultError,
        OpRetryNotSupportedError,
        ParameterError,
        ParseError,
        PidFileLockError,
        ProgrammerError,
        QueryFilterParseError,
        QuitGanetiException,
        RapiTestResult,
        RemoteError,
        ReservationError,
        ResolverError,
        ResultValidationError,
        SignatureError,
        SshUpdateError,
        StorageError,
        TagError,
        TypeEnforcementError,
        UdpDataSizeError,
        UnitParseError,
        X509CertError,
    )
}
