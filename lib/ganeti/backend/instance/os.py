"""OS definitions of this node: finding them, checking them, and running their scripts.

A definition is a directory with scripts (Ganeti design 2.0, *OS interface*; Ganeti design 2.2, *OS
API changes*; manual page **ganeti-os-interface**). The directories of the search path are read from
left to right, and the first definition of a name is used; the others are only listed by a
diagnosis.

Scripts get the documented environment and nothing else, no input, and a log file of their own as
output; when a script fails, the error has the last lines of its log.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ganeti import errors, storage
from ganeti.backend.registry import serves
from ganeti.constants import cluster as cluster_c
from ganeti.constants import net as net_c
from ganeti.objects import disk_templates
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.objects.transfer import OS
from ganeti.platform import paths
from ganeti.storage import busy
from ganeti.utils import fs, process, suggest
from ganeti.wire import calls

API_FILE = "ganeti_api_version"
VARIANTS_FILE = "variants.list"
PARAMETERS_FILE = "parameters.list"
VERSION_FILE = "os_version"
HYPERVISORS_FILE = "hypervisors"
CREATE, CREATE_UNTRUSTED = "create", "create_untrusted"
EXPORT, IMPORT, RENAME, VERIFY = "export", "import", "rename", "verify"
# Versions of the interface which added a feature.
_API_VARIANTS = 15
_API_PARAMETERS = 20

VALIDATE_PARAMETERS = "parameters"
#: A check of this project: refuse an OS whose script may not run on the node.
VALIDATE_TRUSTED = "trusted"
#: A check of this project, followed by the name of a hypervisor: refuse an OS for others.
VALIDATE_HYPERVISOR = "hypervisor:"
_VALIDATE_CHECKS = (VALIDATE_PARAMETERS, VALIDATE_TRUSTED)

_PARAMETER = re.compile(r"[a-z0-9_-]+", re.ASCII)

_LOG_LINES = 20
_LONGEST_FILE_NAME_BYTES = 255
_LOG_TAIL_BYTES = 64 * 1024
# Shorter than the time limits of the calls (a day; five minutes), so that the end is reported.
_CREATE_TIMEOUT_S = 86000.0
_VERIFY_TIMEOUT_S = 280.0
_UMASK = 0o077
#: Maximum number of definitions which a message about a missing one names.
_SHOWN = 5


_T = TypeVar("_T")


# Finding definitions


class _Wrong(Exception):
    """The definition cannot be used; the text has the reason."""


def diagnose(search_path: Sequence[str]) -> list[list[Any]]:
    """Read all definitions.

    :returns: rows as published for the call os_diagnose, in the order of the search path; a version
        and a list of hypervisors are added where a definition has them.
    """
    rows: list[list[Any]] = []
    for base in search_path:
        try:
            names = fs.list_visible(base)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as err:
            logging.error("cannot read the OS definitions in %s: %s", base, err.strerror)
            continue
        rows.extend(
            _diagnose_row(name, f"{base}/{name}")
            for name in names
            if os.path.isdir(f"{base}/{name}")
        )
    return rows


def _diagnose_row(name: str, path: str) -> list[Any]:
    try:
        definition = load(name, path)
    except _Wrong as err:
        return [name, path, False, str(err), [], [], [], True]
    more: list[Any] = []
    if definition.os_version or definition.hypervisors:
        more = [definition.os_version, list(definition.hypervisors or ())]
    return [
        name,
        path,
        True,
        "",
        list(definition.supported_variants or ()),
        [list(pair) for pair in definition.supported_parameters or ()],
        list(definition.api_versions),
        definition.create_script_untrusted is None,
        *more,
    ]


@serves(calls.OS_DIAGNOSE)
def os_diagnose() -> list[list[Any]]:
    """Return all definitions of this node."""
    return diagnose(paths.current().os_search_path)


class _Reader:
    """Reads the files of a definition and collects their problems."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.problems: list[str] = []

    def read(
        self, name: str, parse: Callable[[str], _T], otherwise: _T, *, required: bool = True
    ) -> _T:
        """Return the content of a file; ``otherwise`` when it is missing or wrong."""
        path = f"{self._path}/{name}"
        if not required and not os.path.exists(path):
            return otherwise
        try:
            return parse(_read(path))
        except _Wrong as err:
            self.problems.append(str(err))
            return otherwise

    def script(self, name: str, *, required: bool = False) -> str | None:
        """Return the path of a script; None when it is missing or not executable."""
        try:
            return _script(self._path, name, required=required)
        except _Wrong as err:
            self.problems.append(str(err))
            return None

    def require(self, condition: object, problem: str) -> None:
        """Note a problem, unless the condition is true."""
        if not condition:
            self.problems.append(problem)


def load(name: str, path: str) -> OS:
    """Read one definition.

    :raises _Wrong: the definition cannot be used; the text has all problems.
    """
    reader = _Reader(path)
    nothing: tuple[str, ...] = ()
    no_versions: list[int] = []
    versions = reader.read(API_FILE, parse_api_versions, no_versions)
    common = set(versions) & set(cluster_c.OS_API_VERSIONS)
    reader.require(
        common or not versions,
        f"API versions {_join(versions)} are none of those supported here, "
        f"{_join(cluster_c.OS_API_VERSIONS)}",
    )
    # A definition with unknown versions is checked like one of the newest version.
    api = max(common or cluster_c.OS_API_VERSIONS)
    # The last three scripts are optional: only the operations which need them are refused
    # (Ganeti design 2.0, *OS interface*).
    found = len(reader.problems)
    scripts = {
        script: reader.script(script)
        for script in (CREATE, CREATE_UNTRUSTED, EXPORT, IMPORT, RENAME)
    }
    reader.require(
        scripts[CREATE] or scripts[CREATE_UNTRUSTED] or len(reader.problems) > found,
        f"has neither a script '{CREATE}' nor '{CREATE_UNTRUSTED}'",
    )
    variants = (
        reader.read(VARIANTS_FILE, _names("variant", VARIANTS_FILE), nothing, required=False)
        if api >= _API_VARIANTS
        else nothing
    )
    parameters: tuple[tuple[str, str], ...] = ()
    verify, version = None, ""
    if api >= _API_PARAMETERS:
        verify = reader.script(VERIFY, required=True)
        parameters = reader.read(PARAMETERS_FILE, parse_parameters, ())
        # The first line counts.
        version = reader.read(
            VERSION_FILE, lambda text: text.partition("\n")[0].strip(), "", required=False
        )
    hypervisors = reader.read(
        HYPERVISORS_FILE, _names("hypervisor", HYPERVISORS_FILE), None, required=False
    )
    if reader.problems:
        raise _Wrong("; ".join(reader.problems))
    return OS(
        name=name,
        path=path,
        api_versions=tuple(versions),
        create_script=scripts[CREATE],
        create_script_untrusted=scripts[CREATE_UNTRUSTED],
        export_script=scripts[EXPORT],
        import_script=scripts[IMPORT],
        rename_script=scripts[RENAME],
        verify_script=verify,
        supported_variants=variants,
        supported_parameters=parameters,
        os_version=version,
        hypervisors=hypervisors,
    )


def _names(what: str, name: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser for a file which must contain names."""

    def parse(text: str) -> tuple[str, ...]:
        names = parse_variants(text)
        if not names:
            raise _Wrong(f"file '{name}' contains no {what}")
        return names

    return parse


def find(name: str, search_path: Sequence[str]) -> OS | None:
    """Find the definition of a name, in which a variant is ignored; None when there is none.

    :raises OpExecError: the definition exists and cannot be used.
    """
    base_name = OS.base_name(name)
    if base_name in ("", ".", "..") or "/" in base_name:
        raise errors.OpExecError(f"not a name of an OS definition: {name!r:.80}")
    for base in search_path:
        path = f"{base}/{base_name}"
        if os.path.isdir(path):
            try:
                return load(base_name, path)
            except _Wrong as err:
                raise errors.OpExecError(f"OS {base_name} in {path} is not valid: {err}") from err
    return None


def _missing(name: str, search_path: Sequence[str]) -> errors.OpExecError:
    """Make the error for a missing definition."""
    base_name = OS.base_name(name)
    there = sorted(row[0] for row in diagnose(search_path))
    hint = suggest.did_you_mean(base_name, there)
    if hint:
        hint = f".{hint}"
    elif there:
        more = f" and {len(there) - _SHOWN} others" if len(there) > _SHOWN else ""
        hint = f", which has {', '.join(there[:_SHOWN])}{more}"
    else:
        hint = f", which has none in {', '.join(search_path)}"
    return errors.OpExecError(f"OS {base_name} does not exist on this node{hint}")


def require(name: str) -> OS:
    """Find the definition of a name on this node.

    :raises OpExecError: the definition does not exist or cannot be used.
    """
    search_path = paths.current().os_search_path
    definition = find(name, search_path)
    if definition is None:
        raise _missing(name, search_path)
    return definition


def parse_api_versions(text: str) -> list[int]:
    """Parse a file with one integer on each line.

    :raises _Wrong: a line is not an integer.
    """
    try:
        versions = [int(line) for line in text.split("\n") if line.strip()]
    except ValueError:
        raise _Wrong(f"file '{API_FILE}' has a line which is not a number") from None
    if not versions:
        raise _Wrong(f"file '{API_FILE}' is empty")
    return versions


def parse_variants(text: str) -> tuple[str, ...]:
    """Parse a file with one name on each line; ``#`` begins a comment.

    :raises _Wrong: a name has characters which cannot be printed.
    """
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for line in lines:
        if not line.isprintable():
            raise _Wrong(f"{line!r:.80} cannot be a name")
    return tuple(line for line in lines if line)


def parse_parameters(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a file with a name, white space and a description on each line; names in lower case.

    :raises _Wrong: two names differ in case only, or a name cannot be part of a variable.
    """
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split(None, 1)
        if not words:
            continue
        name = words[0].lower()
        if not _PARAMETER.fullmatch(name):
            raise _Wrong(
                f"file '{PARAMETERS_FILE}': '{words[0]}' is not the name of a parameter; "
                "it may have letters, digits, '_' and '-'"
            )
        if name in pairs:
            raise _Wrong(f"file '{PARAMETERS_FILE}' has two parameters {name}")
        pairs[name] = words[1].strip() if len(words) > 1 else ""
    return tuple(pairs.items())


def _read(path: str) -> str:
    name = os.path.basename(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _Wrong(f"'{name}' is not a file")
        return fs.read_edited_file(path)
    except FileNotFoundError:
        raise _Wrong(f"file '{name}' is missing") from None
    except OSError as err:
        raise _Wrong(f"cannot read file '{name}': {err.strerror}") from err


def _script(path: str, name: str, *, required: bool) -> str | None:
    script = f"{path}/{name}"
    if not os.path.exists(script):
        if required:
            raise _Wrong(f"script '{name}' is missing")
        return None
    if not os.path.isfile(script) or not os.access(script, os.X_OK):
        raise _Wrong(f"script '{name}' is not an executable file")
    return script


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


# Environment of the scripts


def core_env(
    definition: OS, name: str, osparams: Mapping[str, Any], debug_level: int = 0
) -> dict[str, str]:
    """Build the variables of every script.

    :param name: name of the OS, with the variant.
    """
    api = max(set(definition.api_versions) & set(cluster_c.OS_API_VERSIONS))
    variant = ""
    if api >= _API_VARIANTS and definition.supported_variants:
        variant = OS.variant(name) or definition.supported_variants[0]
    env = {
        "PATH": process.DEFAULT_PATH,
        "OS_API_VERSION": str(api),
        "OS_NAME": definition.name,
        "OS_VARIANT": variant,
        "DEBUG_LEVEL": str(debug_level),
        "IMAGES_DIR": paths.current().images_dir,
    }
    for key, value in osparams.items():
        env[f"OSP_{key.upper().replace('-', '_')}"] = str(value)
    return env


def instance_env(definition: OS, instance: FilledInstance, debug_level: int = 0) -> dict[str, str]:
    """Build the variables of scripts which work on an instance."""
    env = core_env(
        definition, instance.os, {**instance.osparams, **instance.osparams_private}, debug_level
    )
    env |= {
        "INSTANCE_NAME": instance.name,
        "INSTANCE_UUID": instance.uuid,
        "INSTANCE_OS": instance.os,
        "INSTANCE_CTIME": str(instance.ctime),
        "INSTANCE_MTIME": str(instance.mtime),
        "INSTANCE_PRIMARY_NODE": instance.primary_node,
        "INSTANCE_SECONDARY_NODES": " ".join(instance.secondary_nodes),
        "HYPERVISOR": instance.hypervisor,
        "DISK_COUNT": str(len(instance.disks_info)),
        "NIC_COUNT": str(len(instance.nics)),
    }
    env |= {f"INSTANCE_BE_{key}": str(value) for key, value in instance.beparams.items()}
    env |= {f"INSTANCE_HV_{key}": str(value) for key, value in instance.hvparams.items()}
    for index, disk in enumerate(instance.disks_info):
        env |= {f"DISK_{index}_{key}": value for key, value in _disk_env(disk, instance).items()}
    for index, nic in enumerate(instance.nics):
        env |= {
            f"NIC_{index}_{key}": value for key, value in _nic_env(nic, instance.hvparams).items()
        }
    return env


def _disk_env(disk: Disk, instance: FilledInstance) -> dict[str, str]:
    device = storage.device(disk)
    path = device.path
    env = {
        **({"PATH": path} if path else {}),
        "ACCESS": disk.mode,
        "SIZE": str(disk.size),
        "UUID": disk.uuid,
        "BACKEND_TYPE": (
            f"file:{disk.file_id.driver}" if disk.dev_type in disk_templates.FILE_BASED else "block"
        ),
    }
    uri = device.uri(instance.hypervisor)
    if uri is not None:
        env["URI"] = uri
    if disk.name:
        env["NAME"] = disk.name
    if instance.hvparams.get("disk_type"):
        env["FRONTEND_TYPE"] = str(instance.hvparams["disk_type"])
    return env


def _nic_env(nic: FilledNic, hvparams: Mapping[str, Any]) -> dict[str, str]:
    mode, link = str(nic.nicparams.get("mode", "")), str(nic.nicparams.get("link") or "")
    env: dict[str, str | None] = {
        "MAC": nic.mac,
        "UUID": nic.uuid,
        "MODE": mode,
        "IP": nic.ip,
        "IP6": nic.ip6,
        "NAME": nic.name,
        "LINK": link,
        "BRIDGE": link if mode == net_c.NIC_MODE_BRIDGED else None,
        "FRONTEND_TYPE": str(hvparams["nic_type"]) if hvparams.get("nic_type") else None,
    }
    network = nic.netinfo
    if network is not None:
        env |= {
            "NETWORK_NAME": network.name,
            "NETWORK_UUID": network.uuid,
            "NETWORK_SUBNET": network.network,
            "NETWORK_GATEWAY": network.gateway,
            "NETWORK_SUBNET6": network.network6,
            "NETWORK_GATEWAY6": network.gateway6,
            "NETWORK_MAC_PREFIX": network.mac_prefix,
            "NETWORK_TAGS": " ".join(network.tags),
        }
    return {key: value for key, value in env.items() if value}


# Running scripts


def check_variant(definition: OS, name: str, *, force: bool = False) -> None:
    """Check the variant in the name of an OS.

    :raises OpExecError: a variant is missing or unknown (unless ``force``).
    """
    variant = OS.variant(name)
    variants = definition.supported_variants or ()
    if not variants:
        if variant:
            raise errors.OpExecError(
                f"OS {definition.name} has no variants, but '{variant}' was asked for"
            )
        return
    if not variant:
        raise errors.OpExecError(
            f"OS {definition.name} needs a variant, one of {', '.join(variants)}"
        )
    if variant not in variants and not force:
        raise errors.OpExecError(
            f"OS {definition.name} has no variant '{variant}', only {', '.join(variants)}"
        )


@serves(calls.OS_VALIDATE)
def validate(
    required: bool, name: str, checks: list[str], params: dict[str, Any], force_variant: bool
) -> bool:
    """Check a definition and, with its script ``verify``, parameters for it.

    :param required: it is for an instance, which needs a variant where there are some. The settings
        of the cluster may be for all variants.
    :returns: whether it exists; False only when it is not required.
    :raises OpExecError: it is missing and required, is not valid, or refuses the parameters.
    """
    hypervisors = [
        check.removeprefix(VALIDATE_HYPERVISOR)
        for check in checks
        if check.startswith(VALIDATE_HYPERVISOR)
    ]
    unknown = sorted(
        check
        for check in set(checks) - set(_VALIDATE_CHECKS)
        if not check.startswith(VALIDATE_HYPERVISOR)
    )
    if unknown:
        raise errors.OpExecError(f"unknown checks of an OS definition: {', '.join(unknown)}")
    search_path = paths.current().os_search_path
    definition = find(name, search_path)
    if definition is None:
        if required:
            raise _missing(name, search_path)
        return False
    if VALIDATE_TRUSTED in checks:
        _require_trusted(definition)
    for hypervisor in hypervisors:
        require_hypervisor(definition, hypervisor)
    if required or OS.variant(name):
        check_variant(definition, name, force=force_variant)
    if definition.verify_script is None:
        return True
    known = {key for key, _ in definition.supported_parameters or ()}
    wrong = sorted(key for key in params if key.lower() not in known)
    if VALIDATE_PARAMETERS in checks and wrong:
        raise errors.OpExecError(
            f"OS {definition.name} has no parameters {', '.join(wrong)}. It has "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    if VALIDATE_PARAMETERS in checks:
        _run_verify(definition, name, VALIDATE_PARAMETERS, params)
    return True


def require_hypervisor(definition: OS, hypervisor: str) -> None:
    """Check that a definition is made for a hypervisor.

    :raises OpExecError: it is made for other hypervisors only.
    """
    if definition.hypervisors is not None and hypervisor not in definition.hypervisors:
        raise errors.OpExecError(
            f"OS {definition.name} is not made for hypervisor {hypervisor}, only for "
            f"{', '.join(definition.hypervisors)}"
        )


def _require_trusted(definition: OS) -> None:
    if definition.create_script_untrusted is not None or definition.create_script is None:
        raise errors.OpExecError(
            f"OS {definition.name} is not trusted: its script '{CREATE_UNTRUSTED}' runs in a "
            "virtual machine of its own, never on a node"
        )


def _run_verify(definition: OS, name: str, check: str, params: Mapping[str, Any]) -> None:
    assert definition.verify_script is not None
    old = os.umask(_UMASK)
    try:
        done = process.run(
            [definition.verify_script, check],
            timeout_s=_VERIFY_TIMEOUT_S,
            env=core_env(definition, name, params),
            exact_env=True,
            cwd=definition.path,
            check=False,
        )
    finally:
        os.umask(old)
    if done.failed:
        raise errors.OpExecError(
            f"OS {name} does not accept its {check}, script {VERIFY} {done.fail_reason}: "
            f"{_last_lines(done.output) or 'no output'}"
        )


@serves(calls.INSTANCE_OS_ADD)
def instance_os_add(instance: FilledInstance, reinstall: bool, debug_level: int) -> None:
    """Install the OS of an instance on its disks.

    :raises OpExecError: the OS does not exist, or its script failed; the text has the last lines of
        its log.
    """
    definition = require(instance.os)
    _require_trusted(definition)
    require_hypervisor(definition, instance.hypervisor)
    assert definition.create_script is not None
    env = instance_env(definition, instance, debug_level)
    if reinstall:
        env["INSTANCE_REINSTALL"] = "1"
    run_logged(definition, definition.create_script, "add", instance, env)


@serves(calls.INSTANCE_RUN_RENAME)
def instance_run_rename(instance: FilledInstance, old_name: str, debug_level: int) -> None:
    """Run the script ``rename`` of the OS, which changes the disks of a renamed instance.

    :raises OpExecError: the OS does not exist, has no such script, or the script failed.
    """
    definition = require(instance.os)
    if definition.rename_script is None:
        raise errors.OpExecError(f"OS {definition.name} has no script '{RENAME}'")
    env = {**instance_env(definition, instance, debug_level), "OLD_INSTANCE_NAME": old_name}
    run_logged(definition, definition.rename_script, "rename", instance, env)


def run_logged(
    definition: OS, script: str, kind: str, instance: FilledInstance, env: Mapping[str, str]
) -> None:
    """Run a script with a log file as its output.

    :param kind: ``add``, ``rename``, ``import`` or ``export``, for the name of the log.
    :raises OpExecError: the script failed; the text has the last lines of its log.
    :raises BlockDeviceError: other work on a disk has not ended.
    """
    directory = paths.current().log_os_dir
    fs.make_dirs(directory, 0o750)
    log = f"{directory}/{log_name(kind, instance.os, instance.name, time.localtime())}"
    fd = fs.open_or_create(log, os.O_WRONLY | os.O_APPEND, 0o640)
    old = os.umask(_UMASK)
    doing = f"in use by the script {os.path.basename(script)} of {instance.os}"
    try:
        with busy.working_on(*instance.disks_info, doing=doing) as work:
            done = process.run(
                [script],
                timeout_s=_CREATE_TIMEOUT_S,
                env=env,
                exact_env=True,
                cwd=definition.path,
                check=False,
                output_fd=fd,
                keep_fds=work.fds,
            )
        reason = done.fail_reason
    except errors.CommandError as err:
        reason = str(err)
    finally:
        os.umask(old)
        os.close(fd)
    if reason:
        raise errors.OpExecError(
            f"OS script {os.path.basename(script)} of {instance.os} for instance {instance.name} "
            f"failed: it {reason}. Last lines of {log}:\n{_last_lines(_tail(log))}"
        )


def log_name(kind: str, os_name: str, instance_name: str, when: time.struct_time) -> str:
    """Return the name of the log file of a script; the names in it may be shortened."""
    end = f"-{time.strftime('%Y-%m-%d_%H_%M_%S', when)}.log"
    begin = f"{kind}-{os_name.replace('/', '_')}-{instance_name}"
    return begin.encode()[: _LONGEST_FILE_NAME_BYTES - len(end)].decode(errors="ignore") + end


def _tail(path: str) -> str:
    with open(path, "rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - _LOG_TAIL_BYTES))
        return stream.read().decode("utf-8", "replace")


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LOG_LINES:])
