"""The command ``gnt-cluster renew-crypto``: replace keys and certificates of the cluster."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

_RAPI = "ganeti-rapi"

# Pairs of options that exclude each other.
_EITHER = (
    ("new_rapi_cert", "rapi_cert", "--new-rapi-certificate", "--rapi-certificate"),
    ("new_spice_cert", "spice_cert", "--new-spice-certificate", "--spice-certificate"),
    ("new_spice_cert", "spice_cacert", "--new-spice-certificate", "--spice-ca-certificate"),
    (
        "new_cluster_domain_secret",
        "cluster_domain_secret",
        "--new-cluster-domain-secret",
        "--cluster-domain-secret",
    ),
)


# The options which select what is renewed.
_SELECTING = (
    "new_cluster_cert", "new_node_cert", "new_rapi_cert", "rapi_cert", "new_spice_cert",
    "spice_cert", "new_confd_hmac_key", "new_cluster_domain_secret", "cluster_domain_secret",
    "new_ssh_keys",
)  # fmt: skip


def check_options(values: Values) -> None:
    """Check that the options do not contradict each other.

    :raises OpPrereqError: they do; the text names the options.
    """
    for new, given, new_option, given_option in _EITHER:
        if getattr(values, new) and getattr(values, given):
            raise errors.OpPrereqError(
                f"options {new_option} and {given_option} exclude each other", errors.ECODE_INVAL
            )
    if bool(values.spice_cert) != bool(values.spice_cacert):
        raise errors.OpPrereqError(
            "options --spice-certificate and --spice-ca-certificate belong together",
            errors.ECODE_INVAL,
        )
    if values.offline and any(getattr(values, name) for name in _SELECTING):
        raise errors.OpPrereqError(
            "option --offline renews nothing by itself, so it excludes the options which select"
            " keys and certificates",
            errors.ECODE_INVAL,
        )
    if (values.ssh_key_type or values.ssh_key_bits) and not values.new_ssh_keys:
        raise errors.OpPrereqError(
            "type and length of SSH keys can only be given with --new-ssh-keys", errors.ECODE_INVAL
        )


def new_content(values: Values) -> dict[str, str]:
    """Return the requested keys and certificates, as name and content of files.

    :raises OpPrereqError: a named file cannot be used.
    """
    from ganeti.bootstrap import renewal
    from ganeti.utils import x509

    new = {}
    if values.new_cluster_cert:
        new[renewal.SERVER] = x509.create_self_signed()
    if values.new_confd_hmac_key:
        new[renewal.CONFD_KEY] = renewal.new_secret()
    if values.new_rapi_cert:
        new[renewal.RAPI] = x509.create_self_signed()
    elif values.rapi_cert:
        new[renewal.RAPI] = renewal.certificate_file(values.rapi_cert)
    if values.new_spice_cert:
        new.update(renewal.new_spice())
    elif values.spice_cert:
        new[renewal.SPICE] = renewal.certificate_file(values.spice_cert)
        new[renewal.SPICE_CA] = renewal.authority_file(values.spice_cacert)
    if values.new_cluster_domain_secret:
        new[renewal.DOMAIN_SECRET] = renewal.new_secret()
    elif values.cluster_domain_secret:
        new[renewal.DOMAIN_SECRET] = renewal.secret_file(values.cluster_domain_secret)
    return new


def renew_crypto(values: Values, arguments: Sequence[str]) -> int:
    """Replace keys and certificates of the cluster (``renew-crypto``)."""
    check_options(values)
    if values.offline:
        from ganeti.client.gnt_cluster.renew_offline import renew_offline

        return renew_offline(values)
    return _renew(values)


def _renew(values: Values) -> int:
    from ganeti.bootstrap import node_state, renewal
    from ganeti.opcodes.cluster import OpClusterRenewCrypto
    from ganeti.platform import paths

    client = jobs.connect()
    # Checks that the master answers before anything is written.
    client.query_config_values(["cluster_name"])
    here = paths.current()
    waiting = renewal.pending(here)
    if waiting:
        terminal.out(f"Continuing the interrupted renewal of: {', '.join(waiting)}")
    new = new_content(values)
    if not (
        new
        or waiting
        or values.new_node_cert
        or values.new_ssh_keys
        or node_state.renewal_traces(here)
    ):
        raise errors.OpPrereqError(
            "nothing to renew. Select keys or certificates with options such as"
            " --new-cluster-certificate.",
            errors.ECODE_INVAL,
        )
    opcode = OpClusterRenewCrypto(
        node_certificates=bool(values.new_node_cert),
        renew_ssh_keys=bool(values.new_ssh_keys),
        ssh_key_type=values.ssh_key_type,
        ssh_key_bits=values.ssh_key_bits,
        verbose=bool(values.verbose),
        debug=bool(values.debug),
        **jobs.common_params(values),
    )
    if values.dry_run:
        if new:
            terminal.out(f"New content would be prepared for {renewal.describe(new)}.")
        # A new certificate of the cluster also needs new certificates of the nodes. It does not
        # exist yet, so the master would not include them in the plan.
        opcode.node_certificates = opcode.node_certificates or renewal.SERVER in new
        jobs.run_opcode(opcode, values, client=client)
        return failures.EXIT_SUCCESS
    if not values.force and not terminal.confirm(
        "Keys and certificates will be replaced on all nodes; jobs have to wait during this time."
        " Continue?"
    ):
        return failures.EXIT_CONFIRMATION
    renewal.prepare(new, here)
    jobs.run_opcode(opcode, values, client=client)
    if renewal.RAPI in new and node_state.running_daemon(here, _RAPI) is not None:
        node_state.daemon_util("stop", _RAPI)
        node_state.daemon_util("start", _RAPI)
    terminal.out(
        "All requested certificates and keys have been replaced."
        ' Running "gnt-cluster verify" now is recommended.'
    )
    return failures.EXIT_SUCCESS


COMMAND = Command(
    "renew-crypto",
    renew_crypto,
    [],
    [
        opt.flag(
            "--new-cluster-certificate",
            dest="new_cluster_cert",
            help="make a new certificate of the cluster, and new client certificates of all nodes",
        ),
        opt.flag(
            "--new-node-certificates",
            dest="new_node_cert",
            help="make new client certificates of the nodes",
        ),
        opt.flag(
            "--new-rapi-certificate",
            dest="new_rapi_cert",
            default=None,
            help="make a new certificate of the REST daemon",
        ),
        opt.text(
            "--rapi-certificate",
            dest="rapi_cert",
            metavar="FILE",
            help="take the certificate of the REST daemon from a file with key and certificate",
        ),
        opt.flag(
            "--new-spice-certificate",
            dest="new_spice_cert",
            default=None,
            help="make a new certificate for SPICE, and the authority that signs it",
        ),
        opt.text(
            "--spice-certificate",
            dest="spice_cert",
            metavar="FILE",
            help="take the certificate for SPICE from a file with key and certificate",
        ),
        opt.text(
            "--spice-ca-certificate",
            dest="spice_cacert",
            metavar="FILE",
            help="take the certificate of the authority for SPICE from a file",
        ),
        opt.flag(
            "--new-confd-hmac-key",
            dest="new_confd_hmac_key",
            help="make a new key for the configuration query daemons (ganeti-confd)",
        ),
        opt.flag(
            "--new-cluster-domain-secret",
            dest="new_cluster_domain_secret",
            help="make a new secret for moving instances between clusters",
        ),
        opt.text(
            "--cluster-domain-secret",
            dest="cluster_domain_secret",
            metavar="FILE",
            help="take the secret for moving instances between clusters from a file",
        ),
        opt.flag(
            "--new-ssh-keys",
            dest="new_ssh_keys",
            help="make new SSH keys of the nodes, if the cluster manages them",
        ),
        Option(
            "--ssh-key-type",
            choices=("dsa", "ecdsa", "ed25519", "rsa"),
            help="type of the new SSH keys",
        ),
        opt.number("--ssh-key-bits", metavar="BITS", help="length of the new SSH keys"),
        opt.negative(
            "--no-ssh-key-check",
            dest="ssh_key_check",
            help="no effect: keys are replaced without SSH",
        ),
        opt.flag(
            "--offline",
            help="without daemons: give all nodes the certificate of this node, over SSH",
        ),
        opt.FORCE,
        opt.DRY_RUN,
        opt.VERBOSE,
    ],
    "Replace keys and certificates on all nodes while the cluster works",
)
