"""The program ``gnt-cluster``: create, change, check and destroy a cluster."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, main, tags, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.cli.over_rest import address
from ganeti.client.gnt_cluster import (
    audit,
    epo,
    events,
    history,
    master,
    modify,
    on_all_nodes,
    options,
    queue,
    redist_conf,
    rename,
    renew_crypto,
    renumber,
    search_tags,
    simulate,
    upgrade,
    verify,
    verify_disks,
    watcher,
    webhook,
)

_REST_IS_OPEN = (
    "Note: everybody who can connect to the REST interface can read the state of the cluster"
    " without a password. Use 'gnt-cluster modify --rapi-require-authentication=yes' to demand one."
)


_NOT_ENABLED = (
    "Note: the daemons of this node do not start with the machine."
    " Run 'systemctl enable --now ganeti.target' on every node."
)


def init(values: Values, arguments: list[str]) -> int:
    """Create a cluster on this machine, then let the master run the first job (``init``)."""
    from ganeti import bootstrap
    from ganeti.client.gnt_cluster import parameters
    from ganeti.opcodes.cluster import OpClusterPostInit
    from ganeti.platform import machine, systemd

    made = bootstrap.init_cluster(parameters.init_params(values, arguments[0]))
    if made.chosen:
        terminal.err("Chosen for this machine, because no option says it:")
        for words in made.chosen:
            terminal.err(f"  - {words}")
    for note in made.lacking:
        terminal.err(f"Warning: instances will need, besides: {note}")
    for warning in made.warnings:
        terminal.err(f"Warning: {warning}")
    jobs.run_opcode(OpClusterPostInit(**jobs.common_params(values)), values)
    if values.rapi_require_authentication is None:
        terminal.err(_REST_IS_OPEN)
    if machine.current().runs_systemd and not systemd.starts_with_machine(systemd.TARGET):
        terminal.err(_NOT_ENABLED)
    for option in made.as_root:
        terminal.err(_guests_as_root(option, has_pool=bool(values.uid_pool)))
    return failures.EXIT_SUCCESS


def _guests_as_root(option: str, *, has_pool: bool) -> str:
    pool = "" if has_pool else " --uid-pool=auto"
    return (
        "Note: guests run as root, so a guest which breaks out of its process controls its node."
        f" Use 'gnt-cluster modify{pool} {option}' to let each guest run as a user of its own."
    )


def destroy(values: Values, arguments: list[str]) -> int:
    """Destroy the cluster (``destroy``)."""
    if not values.yes_do_it and not values.dry_run:
        terminal.err(
            "Destroying a cluster is irreversible. If you really want destroy this"
            " cluster, supply the --yes-do-it option."
        )
        return failures.EXIT_FAILURE
    from ganeti import bootstrap
    from ganeti.opcodes.cluster import OpClusterDestroy

    jobs.run_opcode(OpClusterDestroy(**jobs.common_params(values)), values)
    if values.dry_run:
        return failures.EXIT_SUCCESS
    # The cluster has no configuration any more; this node removes its own files.
    bootstrap.finalize_destroy()
    return failures.EXIT_SUCCESS


def show_info(values: Values, arguments: list[str]) -> int:
    """Show the parameters of the cluster (``info``)."""
    from ganeti.cli import output

    client = jobs.connect()
    info = client.query_cluster_info()
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(info, values.output_format)
        return failures.EXIT_SUCCESS
    from ganeti.client.gnt_cluster import info as cluster_info

    (pause,) = client.query_config_values(["queue_pause"])
    output.write_info(
        cluster_info.describe(info, output.roman if values.roman_integers else output.plain)
        + ([("Job queue", f"pauses: {pause}")] if pause else [])
    )
    return failures.EXIT_SUCCESS


_VERSIONS = (
    ("Software version", "software_version"),
    ("Internode protocol", "protocol_version"),
    ("Configuration format", "config_version"),
    ("OS api version", "os_api_version"),
    ("Export interface", "export_version"),
    ("VCS version", "vcs_version"),
)


def show_version(values: Values, arguments: list[str]) -> int:
    """Show the versions of the software and its formats (``version``)."""
    info = jobs.connect().query_cluster_info()
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data({key: info[key] for _, key in _VERSIONS}, values.output_format)
        return failures.EXIT_SUCCESS
    for title, key in _VERSIONS:
        terminal.out(f"{title}: {info[key]}")
    return failures.EXIT_SUCCESS


def get_master(values: Values, arguments: list[str]) -> int:
    """Show the master which this node knows (``getmaster``); this needs no daemon.

    Over the REST interface it is the master which the cluster has now.

    :raises NotClusterError: this machine is not a node of a cluster.
    :raises ConfigurationError: the file with the name cannot be read.
    """
    from ganeti.platform import paths
    from ganeti.utils import fs

    path = paths.current().ssconf_file("master_node")
    try:
        if address.is_given():
            (name,) = jobs.connect().query_config_values(["master_node"])
        else:
            name = fs.read_file(path).strip()
    except FileNotFoundError:
        raise failures.NotClusterError(
            "no cluster here: this machine is not a node of a cluster"
        ) from None
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data({"master": name}, values.output_format)
    else:
        terminal.out(name)
    return failures.EXIT_SUCCESS


PROGRAM = Program(
    "gnt-cluster",
    "Create, change, check and destroy a cluster.",
    [
        Command(
            "init",
            init,
            [Argument("host", 1, 1)],
            options.INIT,
            "Create a cluster with this machine as its first node and its master",
            usage="[<options>] <cluster-name>",
        ),
        Command(
            "destroy",
            destroy,
            [],
            [opt.YES_DO_IT, opt.DRY_RUN],
            "Destroy the cluster, which must have no instances and no other nodes",
            usage="{--yes-do-it|--dry-run}",
        ),
        Command(
            "info",
            show_info,
            [],
            [opt.ROMAN, opt.OUTPUT_FORMAT],
            "Show the parameters of the cluster",
        ),
        Command(
            "version",
            show_version,
            [],
            [opt.OUTPUT_FORMAT],
            "Show the versions of the software and its formats",
        ),
        Command("getmaster", get_master, [], [opt.OUTPUT_FORMAT], "Show which node is the master"),
        verify.COMMAND,
        *modify.COMMANDS,
        rename.RENAME,
        renumber.RENUMBER,
        upgrade.UPGRADE,
        events.EVENTS,
        search_tags.SEARCH_TAGS,
        *tags.commands("cluster", None, "the cluster"),
        *on_all_nodes.COMMANDS,
        *verify_disks.COMMANDS,
        epo.COMMAND,
        *master.COMMANDS,
        redist_conf.REDIST_CONF,
        queue.QUEUE,
        watcher.WATCHER,
        webhook.WEBHOOK,
        audit.COMMAND,
        history.COMMAND,
        history.UNDO,
        simulate.COMMAND,
        renew_crypto.COMMAND,
    ],
    aliases={"show": "info", "masterfailover": "master-failover"},
    examples={
        "init": "--enabled-disk-templates=drbd,plain --vg-name=xenvg cluster.example.com",
        "destroy": "--dry-run",
        "info": "",
        "version": "",
        "getmaster": "",
        "verify": "--node-group=rack2",
        "simulate": "--what-if remove-node=node3.example.com --what-if add-instances=10:20g,2g,2",
        "modify": "--candidate-pool-size=5 -B memory=1g,vcpus=2",
        "show-ispecs-cmd": "",
        "rename": "cluster2.example.com",
        "renumber": "--dry-run node1.example.com=192.0.2.11",
        "upgrade": "--to=3.1",
        "events": "--follow --kind=instance",
        "search-tags": "'^owner:'",
        "copyfile": "-n node2 /etc/ganeti/file-storage-paths",
        "command": "-M 'uname -r; uptime'",
        "verify-disks": "--node-group=rack2",
        "repair-disk-sizes": "web1 db1",
        "epo": "--groups rack2",
        "master-failover": "--dry-run",
        "failover-status": "",
        "master-ping": "",
        "activate-master-ip": "--dry-run",
        "deactivate-master-ip": "--dry-run",
        "redist-conf": "",
        "queue": "drain",
        "watcher": "pause 4h",
        "webhook": "add --severity=warning tickets https://tickets.example.com/hook",
        "audit": "--verify",
        "undo": "4711",
        "history": "--diff '2026-11-30 18:45' 2026-12-01",
        "renew-crypto": "--new-cluster-certificate --new-confd-hmac-key",
        **tags.examples(),
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
