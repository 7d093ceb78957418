"""Where every file of the cluster is.

One :class:`Paths` describes one node. On a real machine its root is empty and the paths are the
published ones (``/var/lib/ganeti/config.data``); in a virtual cluster every path is below the
directory of the node, which ``GANETI_ROOTDIR`` names. Daemons, commands and tests take all paths
from :func:`current`; no other module builds them.

Some paths are written into the configuration (``/srv/ganeti/file-storage``) and are the same on all
nodes; they are called *virtual* here. Only code that opens such a file on a node turns its path
into a local one with :meth:`Paths.to_local`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ganeti import errors

ENV_ROOT = "GANETI_ROOTDIR"
ENV_HOSTNAME = "GANETI_HOSTNAME"
ENV_VCLUSTER = "GANETI_VCLUSTER"

#: In the directory of a virtual cluster: its nodes run the monitoring daemon.
VIRTUAL_MONITORING = "monitoring"

DEFAULT_FILE_STORAGE_DIR = "/srv/ganeti/file-storage"
DEFAULT_SHARED_FILE_STORAGE_DIR = "/srv/ganeti/shared-file-storage"

_LOG_BASE = {
    "ganeti-confd": "conf-daemon",
    "ganeti-failoverd": "failover-daemon",
    "ganeti-kvmd": "kvm-daemon",
    "ganeti-masterd": "master-daemon",
    "ganeti-metad": "meta-daemon",
    "ganeti-mond": "monitoring-daemon",
    "ganeti-noded": "node-daemon",
    "ganeti-rapi": "rapi-daemon",
    "ganeti-watchdogd": "watchdog-daemon",
}

_LIB_DIRS = ("/srv/ganeti", "/usr/local/lib/ganeti", "/usr/lib/ganeti", "/usr/share/ganeti")


class _Under:
    """An attribute with a path below another one: ``_Under("data_dir", "config.data")``."""

    __slots__ = ("_base", "_name")

    def __init__(self, base: str, name: str) -> None:
        self._base = base
        self._name = name

    def __get__(self, owner: Paths, _type: type | None = None) -> str:
        base: str = getattr(owner, self._base)
        return f"{base}/{self._name}"


class Paths:
    """The paths of one node; all absolute, none ends in a slash.

    :param root: directory that stands for ``/`` on this node; empty on a real machine.
    :raises ConfigurationError: the root is not an absolute path.
    """

    __slots__ = ("root",)

    def __init__(self, root: str = "") -> None:
        if root and not os.path.isabs(root):
            raise errors.ConfigurationError(f"{ENV_ROOT} must be an absolute path, not '{root}'")
        normal = os.path.normpath(root) if root else ""
        self.root = "" if normal in ("/", "//") else normal

    def __repr__(self) -> str:
        return f"Paths(root={self.root!r})"

    # The five directories which contain all others.
    data_dir = _Under("root", "var/lib/ganeti")
    run_dir = _Under("root", "var/run/ganeti")
    log_dir = _Under("root", "var/log/ganeti")
    lock_dir = _Under("root", "var/lock")
    conf_dir = _Under("root", "etc/ganeti")

    # Cluster state.
    cluster_conf_file = _Under("data_dir", "config.data")
    cluster_conf_journal = _Under("data_dir", "config.data.journal")
    # The changes of the configuration, on nodes which were the master; holds secrets.
    cluster_conf_history_dir = _Under("data_dir", "config.data.history")
    queue_dir = _Under("data_dir", "queue")
    queue_archive_dir = _Under("queue_dir", "archive")
    queue_lock_file = _Under("queue_dir", "lock")
    queue_serial_file = _Under("queue_dir", "serial")
    queue_version_file = _Under("queue_dir", "version")
    queue_drain_file = _Under("queue_dir", "drain")
    export_dir = _Under("data_dir", "export")
    # Disks of helper guests that run now.
    helper_dir = _Under("data_dir", "helper")
    intent_to_upgrade_file = _Under("data_dir", "intent-to-upgrade")
    watcher_pausefile = _Under("data_dir", "watcher.pause")
    watcher_complete_file = _Under("data_dir", "watcher.complete")
    master_state_file = _Under("data_dir", "master_state")
    # That the hardware watchdog restarts this node when it is cut off.
    watchdog_promise_file = _Under("data_dir", "watchdog-promise")
    # For each node group: whether its volume groups were complete when they were last checked.
    lvm_state_file = _Under("data_dir", "lvm_state")
    rapi_data_dir = _Under("data_dir", "rapi")
    rapi_users_file = _Under("rapi_data_dir", "users")
    rapi_roles_file = _Under("rapi_data_dir", "roles")
    rapi_oidc_file = _Under("rapi_data_dir", "oidc.json")

    # Credentials.
    noded_cert_file = _Under("data_dir", "server.pem")
    # Old and new certificates of the cluster, while they change.
    server_ca_file = _Under("data_dir", "server-ca.pem")
    # New keys and certificates of "gnt-cluster renew-crypto" which not all nodes have yet.
    renewal_dir = _Under("data_dir", "renewal")
    noded_client_cert_file = _Under("data_dir", "client.pem")
    rapi_cert_file = _Under("data_dir", "rapi.pem")
    spice_cert_file = _Under("data_dir", "spice.pem")
    spice_cacert_file = _Under("data_dir", "spice-ca.pem")
    hmac_key = _Under("data_dir", "hmac.key")
    cluster_domain_secret = _Under("data_dir", "cluster-domain-secret")
    # Credentials for the witness of a cluster with two candidates, and what it must show.
    witness_auth_file = _Under("data_dir", "witness-auth")
    witness_ca_file = _Under("data_dir", "witness-ca.pem")
    known_hosts_file = _Under("data_dir", "known_hosts")
    # Public SSH keys of all nodes which can become master candidates; the candidates have the file.
    ssh_public_keys_file = _Under("data_dir", "ganeti_pub_keys")

    # Files of the operating system, of which the cluster changes a part when it sets up SSH.
    ssh_dir = _Under("root", "root/.ssh")
    ssh_authorized_keys_file = _Under("ssh_dir", "authorized_keys")
    ssh_host_key_dir = _Under("root", "etc/ssh")
    etc_hosts_file = _Under("root", "etc/hosts")
    watchdog_device = _Under("root", "dev/watchdog")
    vnc_password_file = _Under("conf_dir", "vnc-cluster-password")

    def trust_file(self) -> str:
        """Return the path of the file with the certificates which this node trusts."""
        return self.server_ca_file if os.path.exists(self.server_ca_file) else self.noded_cert_file

    # The state of running daemons and guests.
    socket_dir = _Under("run_dir", "socket")
    master_socket = _Under("socket_dir", "ganeti-master")
    query_socket = _Under("socket_dir", "ganeti-query")
    job_socket = _Under("socket_dir", "ganeti-jobs")
    metad_socket = _Under("socket_dir", "ganeti-metad")
    # In a virtual cluster: QEMU's user networking forwards the requests of guests to this socket.
    metad_guest_socket = _Under("socket_dir", "ganeti-metad-guests")
    failover_report_file = _Under("run_dir", "failover-report")
    watchdog_report_file = _Under("run_dir", "watchdog-report")
    watchdog_release_file = _Under("run_dir", "watchdog-release")
    # The master daemon was stopped on purpose, and was not started since.
    master_stopped_file = _Under("run_dir", "ganeti-masterd.stopped")
    livelock_dir = _Under("run_dir", "livelocks")
    config_serial_file = _Under("run_dir", "config-serial")
    bdev_cache_dir = _Under("run_dir", "bdev-cache")
    instance_disks_dir = _Under("run_dir", "instance-disks")
    disk_locks_dir = _Under("run_dir", "disk-locks")
    node_work_dir = _Under("run_dir", "node-work")
    instance_reason_dir = _Under("run_dir", "instance-reason")
    instance_status_file = _Under("run_dir", "instance-status")
    crypto_keys_dir = _Under("run_dir", "crypto")
    import_export_dir = _Under("run_dir", "import-export")
    uid_pool_dir = _Under("run_dir", "uid-pool")
    kvm_root = _Under("run_dir", "kvm-hypervisor")
    lxc_root = _Under("run_dir", "lxc")
    # Where LXC's AppArmor profile lets a container mount its disks before it starts.
    lxc_mount_root = _Under("root", "var/lib/lxc/ganeti")
    chroot_root = _Under("run_dir", "chroot-hypervisor")
    fake_root = _Under("run_dir", "fake-hypervisor")
    xen_root = _Under("run_dir", "xen-hypervisor")
    # Configuration files of guests for xl.
    xen_config_dir = _Under("root", "etc/xen")
    # What the programs of Xen say.
    xen_own_log_dir = _Under("root", "var/log/xen")
    # Says what this system may do under Xen.
    xen_capabilities_file = _Under("root", "proc/xen/capabilities")
    ssconf_lock_file = _Under("lock_dir", "ganeti-ssconf.lock")
    master_epoch_lock_file = _Under("lock_dir", "ganeti-master-epoch.lock")
    config_copy_lock_file = _Under("lock_dir", "ganeti-config-copy.lock")
    lvm_state_lock_file = _Under("lock_dir", "ganeti-lvm-state.lock")
    watcher_lock_file = _Under("lock_dir", "ganeti-watcher.lock")
    cleaner_lock_file = _Under("lock_dir", "ganeti-cleaner.lock")
    restricted_commands_lock_file = _Under("lock_dir", "ganeti-restricted-commands.lock")

    # Files of the administrator.
    # Images from which instances are installed, with their catalogue; see foreign/catalogue.py.
    images_dir = _Under("root", "srv/ganeti/images")
    # Where appliances are unpacked; see foreign/workplace.py.
    import_dir = _Under("root", "srv/ganeti/import")
    hooks_base_dir = _Under("conf_dir", "hooks")
    user_scripts_dir = _Under("conf_dir", "scripts")
    restricted_commands_dir = _Under("conf_dir", "restricted-commands")
    file_storage_paths_file = _Under("conf_dir", "file-storage-paths")
    defaults_file = _Under("root", "etc/default/ganeti")

    # Logs besides those of the daemons.
    log_os_dir = _Under("log_dir", "os")
    log_kvm_dir = _Under("log_dir", "kvm")
    log_xen_dir = _Under("log_dir", "xen")
    log_lxc_dir = _Under("log_dir", "lxc")
    log_extstorage_dir = _Under("log_dir", "extstorage")
    log_commands_file = _Under("log_dir", "commands.log")
    log_jobs_file = _Under("log_dir", "jobs.log")
    # The same events as in jobs.log; each line has the checksum of the line before.
    log_audit_file = _Under("log_dir", "audit.log")
    rapi_access_log_file = _Under("log_dir", "rapi-access.log")
    mond_access_log_file = _Under("log_dir", "monitoring-daemon-access.log")
    metad_access_log_file = _Under("log_dir", "meta-daemon-access.log")
    log_watcher_file = _Under("log_dir", "watcher.log")
    log_burnin_file = _Under("log_dir", "burnin.log")

    @property
    def os_search_path(self) -> list[str]:
        """Directories with OS definitions, first match wins."""
        return [f"{self.root}{base}/os" for base in _LIB_DIRS]

    @property
    def extstorage_search_path(self) -> list[str]:
        """Directories with external storage providers, first match wins."""
        return [f"{self.root}{base}/extstorage" for base in _LIB_DIRS]

    @property
    def iallocator_search_path(self) -> list[str]:
        """Directories with external allocators, first match wins."""
        return [f"{self.root}{base}/iallocators" for base in _LIB_DIRS[1:3]]

    def ssconf_file(self, key: str) -> str:
        """Return the file of one simple configuration value, such as ``master_node``."""
        return f"{self.data_dir}/ssconf_{key}"

    def instance_disk_link(self, instance_name: str, index: int) -> str:
        """Return the link to the device of a disk, which the hypervisor opens."""
        return f"{self.instance_disks_dir}/{instance_name}:{index}"

    def pid_file(self, daemon: str) -> str:
        """Return the pid file of a daemon.

        :param daemon: the name of its program, such as ``ganeti-noded``.
        """
        return f"{self.run_dir}/{daemon}.pid"

    def log_file(self, daemon: str) -> str:
        """Return the log file of a program.

        The daemons have published names of log files; other programs log under their own name.
        """
        return f"{self.log_dir}/{_LOG_BASE.get(daemon, daemon)}.log"

    def watcher_state_file(self, group_uuid: str) -> str:
        """Return the state which the watcher keeps about one node group."""
        return f"{self.data_dir}/watcher.{group_uuid}.data"

    @property
    def watcher_balance_file(self) -> str:
        """The times of the moves which the watcher made to balance the cluster."""
        return f"{self.data_dir}/watcher.balance.data"

    def watcher_group_complete_file(self, group_uuid: str) -> str:
        """Return the file whose time is that of the last complete run for one node group."""
        return f"{self.data_dir}/watcher.{group_uuid}.complete"

    def watcher_status_file(self, group_uuid: str) -> str:
        """Return the states of the instances of one node group when the watcher last ran."""
        return f"{self.data_dir}/watcher.{group_uuid}.instance-status"

    def watcher_group_lock_file(self, group_uuid: str) -> str:
        """Return the lock of the watcher of one node group."""
        return f"{self.lock_dir}/ganeti-watcher-{group_uuid}.lock"

    def to_local(self, virtual_path: str) -> str:
        """Return the path on this node for a path of the configuration.

        A path below the root stays as it is, so a second conversion changes nothing.

        :raises ProgrammerError: the path is not absolute.
        """
        if not os.path.isabs(virtual_path):
            raise errors.ProgrammerError(f"path from the configuration is relative: {virtual_path}")
        if not self.root or is_below(self.root, virtual_path):
            return virtual_path
        return self.root + virtual_path

    def to_virtual(self, local_path: str) -> str:
        """Return the path in the configuration for a path on this node.

        It inverts :meth:`to_local`.
        """
        if self.root and is_below(self.root, local_path):
            return local_path[len(self.root) :] or "/"
        return local_path


def is_below(directory: str, path: str) -> bool:
    """Return True if a path is the directory or inside of it, by its name.

    Links are not followed.
    """
    top = os.path.normpath(directory).rstrip("/")
    normal = os.path.normpath(path)
    return normal == top or normal.startswith(f"{top}/")


_cached = Paths()
_overrides: list[Paths] = []


def current() -> Paths:
    """Return the paths of this node; ``GANETI_ROOTDIR`` chooses them.

    :raises ConfigurationError: ``GANETI_ROOTDIR`` is not an absolute path.
    """
    global _cached
    if _overrides:
        return _overrides[-1]
    root = os.environ.get(ENV_ROOT, "")
    # A root with a trailing slash is another text than the normalised one; it is made anew.
    if root != _cached.root:
        _cached = Paths(root)
    return _cached


@contextmanager
def override(other: Paths) -> Iterator[Paths]:
    """Let :func:`current` return other paths inside the block; for tests and ``devel``."""
    _overrides.append(other)
    try:
        yield other
    finally:
        _overrides.remove(other)


def package_dir() -> str:
    """Return the directory of the package ``ganeti`` which this program has imported."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def project_dir() -> str | None:
    """Return the top of the checkout which holds this package.

    The result is None when the package is installed.
    """
    top = os.path.dirname(os.path.dirname(package_dir()))
    return top if os.path.exists(f"{top}/daemons/daemon-util") else None


def daemon_util() -> str:
    """Return the path of the program that starts and stops the daemons of this node.

    In a checkout ``daemons/daemon-util``, installed the one of this program's own version:
    ``PREFIX/lib/ganeti/VERSION/daemon-util`` (:mod:`ganeti.platform.versions`).
    """
    top = project_dir()
    if top is not None:
        return f"{top}/daemons/daemon-util"
    return os.path.join(_version_dir(), "daemon-util")


def _version_dir() -> str:
    # Installed, the package is PREFIX/lib/ganeti/VERSION/python/ganeti.
    return os.path.dirname(os.path.dirname(package_dir()))


def daemon_dir() -> str:
    """Return the directory with the programs of the daemons: ``daemons`` or that of the version."""
    top = project_dir()
    if top is not None:
        return f"{top}/daemons"
    return os.path.join(_version_dir(), "sbin")


def administrator_tool(name: str) -> str:
    """Return the path of a program of the administrator.

    In a checkout ``tools/NAME``, installed ``PREFIX/lib/ganeti/NAME``, which leads to the version
    in use on each node.
    """
    top = project_dir()
    if top is not None:
        return f"{top}/tools/{name}"
    return os.path.join(os.path.dirname(_version_dir()), name)


def guest_program(name: str) -> str:
    """Return the path of a program which guests or their hypervisors start, on every node.

    In a checkout ``tools/NAME``, installed ``PREFIX/lib/ganeti/tools/NAME``.
    """
    return administrator_tool(name if project_dir() is not None else f"tools/{name}")


def node_daemon_setup() -> str:
    """Return the path of the program that makes a machine a node.

    It is the same on every machine.
    """
    return administrator_tool("node-daemon-setup")
