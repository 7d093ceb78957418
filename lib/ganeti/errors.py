"""The exception tree of the whole program.

Every room raises from here, every front door catches from here. A class stands for one thing a
caller may want to do differently; its facts are attributes, its text is built from them. The names
of the published classes, and the arguments they carry over a socket, are a contract with programs
by others; classes below the line in the tree are our own and travel as their published ancestor.

::

    GenericError
    ├── OpPrereqError           refused, nothing was changed         (message, ecode)
    ├── OpExecError             something was done; text says what is left
    ├── OpResultError           a job's result has a shape which nobody declared
    ├── OpCodeUnknown           no such OP_ID
    ├── HooksAbort              a pre hook vetoed                    ([[node, script, output]])
    ├── HooksFailure            the hooks could not be run
    ├── HotplugError
    ├── ResultValidationError
    ├── LockError               unknown lock, order violation, lock removed while waiting
    │   └── PidFileLockError    another daemon owns the pid file
    ├── JobLost                 no such job
    ├── JobCanceled             raised inside a job which was asked to stop
    ├── JobFileCorrupted
    ├── JobQueueError
    │   ├── JobQueueDrainError
    │   ├── JobQueueFull        ()
    ├── JobSubmittedException   the job was submitted, not awaited   (job id)
    ├── ConfigurationError      the configuration holds something wrong; `path` leads to it
    │   ├── ConfigVerifyError   (message, [problems])
    │   ├── ConfigVersionMismatch (expected, actual)
    │   ├── ReservationError    somebody else is taking this name or address
    │   └── AddressPoolError
    ├── HypervisorError
    ├── BlockDeviceError ── DeviceCreationError
    ├── StorageError ── FileStoragePathError
    ├── ParameterError ── TypeEnforcementError
    ├── ParseError ── UnitParseError, QueryFilterParseError
    ├── CommandError            a program failed: argv, exit_code, output
    │   └── CommandTimeout      it was killed after timeout_s        (travels as CommandError)
    ├── ResolverError           (host, code, message)
    ├── IPAddressError, TagError, SshUpdateError, RemoteError, SignatureError
    ├── X509CertError           (file, message)
    ├── ProgrammerError         a caller broke a documented rule
    ├── NoCtypesError, InotifyError, UdpDataSizeError, RapiTestResult
    ├── ConfdClientError ── ConfdMagicError
    ├── QuitGanetiException     a daemon is asked to end
    ├── OpRetryNotSupportedError
    ├── LuxiError               talking to the master failed
    │   └── ProtocolError ── ConnectionClosedError, LuxiTimeout, RequestError,
    │                        NoMasterError, LuxiPermissionError
    ├── AllocatorError          an instance allocator failed or answered nonsense
    │   └── NoPlacement         it worked, and found no place
    ├── RetryTimeout            a condition did not become true in time
    └── RpcError                a node call: node, call
        ├── NodeOffline         the node is marked offline; nobody was asked
        ├── NodeUnreachable     no connection, or no answer in time
        ├── NodeRefused         certificate, epoch, unknown procedure
        └── NodeCallFailed      the node answered: it did not work

Text: lower case, no full stop, names the object; a hint follows as a sentence of its own.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name type checkers look for; commands import this file first
if TYPE_CHECKING:
    from collections.abc import Sequence

# Codes of OpPrereqError: why a request was refused. Published; programs by others read them.
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
    """Root of the tree; ``args`` are the arguments which travel over a socket."""

    def wire_args(self) -> list[object]:
        """Arguments from which another program rebuilds this error, in published order."""
        return list(self.args)


class OpPrereqError(GenericError):
    """The request was refused before anything was changed."""

    def __init__(self, message: str, ecode: str = ECODE_INVAL) -> None:
        super().__init__(message, ecode)
        self.message = message
        self.ecode = ecode

    def __str__(self) -> str:
        return str(self.message)


class OpExecError(GenericError):
    """The operation failed after it had begun; the text says what is left behind."""


class OpResultError(GenericError):
    """An operation returned something which its declaration does not allow."""


class OpCodeUnknown(GenericError):
    """No opcode of this name exists."""


class OpRetryNotSupportedError(GenericError):
    """The operation cannot be repeated by itself."""


class HooksAbort(GenericError):
    """A hook of the first phase vetoed the operation: ``[(node, script, output), ...]``."""

    def __init__(self, failures: Sequence[Sequence[str]]) -> None:
        self.failures = [(node, script, output) for node, script, output in failures]
        super().__init__([list(failure) for failure in self.failures])

    def __str__(self) -> str:
        told = "; ".join(
            f"node {node}, script {script}: {output or 'no output'}"
            for node, script, output in self.failures
        )
        return f"hooks refused the operation: {told}"


class HooksFailure(GenericError):
    """The hooks of a node could not be run at all."""


class HotplugError(GenericError):
    """A device could not be added to, or taken from, a running guest."""


class ResultValidationError(GenericError):
    """A result failed its check."""


class LockError(GenericError):
    """A lock does not exist, was removed, or was asked for in the wrong order."""


class PidFileLockError(LockError):
    """Another process holds the pid file."""


class JobLost(GenericError):
    """The queue knows no such job."""


class JobCanceled(GenericError):
    """Raised inside a job which has been asked to stop."""


class JobFileCorrupted(GenericError):
    """A job file cannot be read."""


class JobQueueError(GenericError):
    """The job queue refuses or cannot do something."""


class JobQueueDrainError(JobQueueError):
    """The queue is drained and takes no new jobs."""


class JobQueueFull(JobQueueError):
    """Too many jobs are waiting."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "the job queue is full"


class JobSubmittedException(GenericError):
    """The job was submitted and nobody waits for it; carries the job id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"job {self.job_id} was submitted"


class ConfigurationError(GenericError):
    """The configuration holds something wrong; `path` leads to it where that is known."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ConfigVerifyError(ConfigurationError):
    """The configuration contradicts itself."""

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
    """The configuration was written by another version."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__("")
        self.expected = expected
        self.actual = actual
        self.args = (expected, actual)

    def __str__(self) -> str:
        return f"configuration has version {self.actual}, this program wants {self.expected}"


class ReservationError(ConfigurationError):
    """Somebody else is taking this name, address or port at this moment."""


class AddressPoolError(ConfigurationError):
    """An address of a network cannot be given out or taken back."""


class HypervisorError(GenericError):
    """A hypervisor refuses parameters, or a guest could not be handled."""


class BlockDeviceError(GenericError):
    """A block device could not be handled."""


class DeviceCreationError(BlockDeviceError):
    """A block device could not be created; `created_devices` remain and must be removed."""

    def __init__(self, message: str, created_devices: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.created_devices = list(created_devices)


class StorageError(GenericError):
    """A storage unit could not be handled."""


class FileStoragePathError(StorageError):
    """A path is not allowed for file storage."""


class AllocatorError(GenericError):
    """An instance allocator could not be asked, or its answer makes no sense."""


class NoPlacement(AllocatorError):
    """An instance allocator did its work and found no place."""


class ParameterError(GenericError):
    """A parameter is missing, unknown or out of range."""


class TypeEnforcementError(ParameterError):
    """A value cannot be read as the type its parameter has."""


class ParseError(GenericError):
    """Text from outside cannot be understood."""


class UnitParseError(ParseError):
    """Not a size with a unit."""


class QueryFilterParseError(ParseError):
    """A filter written as text cannot be understood; `column` counts from 1, 0 if unknown."""

    def __init__(self, message: str, text: str = "", column: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.column = column

    def details(self) -> list[str]:
        """The text with a mark below the place, for a terminal."""
        if not self.column:
            return [str(self)]
        return [self.text, " " * (self.column - 1) + "^", str(self)]


class CommandError(GenericError):
    """A program failed.

    Built either from facts (`argv`, `exit_code`, `output`) or, on the far side of a socket, from
    the text alone.
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


class CommandTimeout(CommandError):
    """A program was ended because it took longer than `timeout_s`."""

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
    """Not an address, or not one of this family."""


class TagError(GenericError):
    """A tag is not allowed."""


class SshUpdateError(GenericError):
    """SSH keys could not be distributed."""


class RemoteError(GenericError):
    """The far end of an export or import failed."""


class SignatureError(GenericError):
    """A message is not signed with the cluster's key."""


class X509CertError(GenericError):
    """A certificate cannot be read or used."""

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
    """Asks a daemon to end itself once the answer is out: ``(success, result)``."""

    def wire_args(self) -> list[object]:
        """As :meth:`GenericError.wire_args`."""
        return list(self.args)


class LuxiError(GenericError):
    """Talking to the master failed."""


class ProtocolError(LuxiError):
    """The other side broke the protocol."""


class ConnectionClosedError(ProtocolError):
    """The other side closed the connection."""


class LuxiTimeout(ProtocolError):
    """No connection, or no answer, in time."""


class RequestError(ProtocolError):
    """The master refused the request and says nothing this program can name."""


class NoMasterError(ProtocolError):
    """No master runs here."""


class LuxiPermissionError(ProtocolError):
    """This user may not talk to the master."""


class RpcError(GenericError):
    """A call to a node gave no result. `node` is its name."""

    def __init__(self, node: str, call: str, message: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.call = call
        self.message = message

    def __str__(self) -> str:
        return f"node {self.node}: call {self.call}: {self.message}"


class NodeOffline(RpcError):
    """The node is marked offline, so nobody was asked."""

    def __str__(self) -> str:
        return f"node {self.node} is marked offline"


class NodeUnreachable(RpcError):
    """The node could not be reached, or did not answer in time."""

    def __str__(self) -> str:
        return f"node {self.node} is unreachable (call {self.call}): {self.message}"


class NodeRefused(RpcError):
    """The node does not obey this master: certificate, epoch or unknown procedure.

    `known_epoch` is the epoch it obeys, when ours is over, and empty otherwise.
    """

    def __init__(self, node: str, call: str, message: str = "", known_epoch: str = "") -> None:
        super().__init__(node, call, message)
        self.known_epoch = known_epoch

    def __str__(self) -> str:
        return f"node {self.node} refused call {self.call}: {self.message}"


class NodeCallFailed(RpcError):
    """The node did the call and it failed; `cause` is its error where it could be rebuilt."""

    def __init__(
        self, node: str, call: str, message: str = "", cause: Exception | None = None
    ) -> None:
        super().__init__(node, call, message)
        self.cause = cause

    def __str__(self) -> str:
        return f"node {self.node}: {self.message}"


# What another program may find as the class name of an error on a socket.
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
