"""Programs of the administrator beside the ``gnt-*`` commands.

Each module with a function ``main`` is one program; the starters are in the top-level ``tools/``,
``daemons/`` and ``scripts/``.

========================= =========================================================================
:mod:`.daemon_util`       ``daemon-util``: starts and stops the daemons of this node
:mod:`.daemon_units`      how ``daemon-util`` does that where systemd manages the daemons
:mod:`.ensure_dirs`       ``ensure-dirs``: sets the modes and owners of the files of a node
:mod:`.users_setup`       ``users-setup``: makes the users and groups under which daemons may run
:mod:`.node_daemon_setup` ``node-daemon-setup``: makes this machine a node, with given credentials
:mod:`.join`              ``ganeti-join``: makes this machine a node, with a one-time token
:mod:`.node_cleanup`      ``node-cleanup``: removes what makes this machine a node
:mod:`.lvmstrap`          ``lvmstrap``: makes the volume group of a new node from its unused disks
:mod:`.cleaner`           ``ganeti-cleaner``: removes old files
:mod:`.rapi_passwd`       ``rapi-passwd``: sets passwords and rights of users of the REST interface
:mod:`.rapi_check`        ``rapi-passwd check``: what is wrong with the files, and who may do what
:mod:`.rapi_credentials`  lists and removes what ``rapi-passwd`` has added beside users
:mod:`.rapi_sessions`     ``rapi-passwd session``: lists and ends sessions of browsers
:mod:`.rapi_tokens`       ``rapi-passwd token``: makes, lists and removes access tokens
:mod:`.rapi_certificates` ``rapi-passwd certificate``: adds and removes client certificates
:mod:`.rapi_totp`         ``rapi-passwd totp``: one-time codes of users
:mod:`.rapi_passkeys`     ``rapi-passwd passkey``: lists and removes passkeys of users
:mod:`.config_files`      what the three programs on configuration files share
:mod:`.config_journal`    ``cfgshell --journal``: a journal which does not belong to the file
:mod:`.cfgupgrade`        ``cfgupgrade``: converts a configuration to another version
:mod:`.cfgshell`          ``cfgshell``: shows and changes a configuration
:mod:`.sanitize_config`   ``sanitize-config``: prints a configuration without secrets and names
:mod:`.confd_client`      ``confd-client``: tests and measures a configuration query daemon
:mod:`.query_config`      ``query-config``: prints a value of the configuration, which confd knows
:mod:`.mon_collector`     ``mon-collector``: runs one collector of the monitoring daemon once
:mod:`.move_instance`     ``move-instance``: moves instances to another cluster
:mod:`.ovfconverter`      ``ovfconverter``: makes exports of OVF appliances, and the reverse
:mod:`.entry`             how the programs print an error
========================= =========================================================================
"""
