"""The parts which the ``gnt-*`` programs share.

A program is a table of commands (:mod:`ganeti.client`). This package reads the command line, sends
opcodes to the master, waits for jobs, prints tables, and turns errors into texts and exit codes.

The modules in the second part of the table are about one subject and are used by several programs.

==================== ==================================================================
:mod:`.command`      the classes of programs, commands and arguments
:mod:`.options`      the class of options, and the options which several programs share
:mod:`.value_types`  the types of option values, read from text
:mod:`.parser`       from the command line to values; usage and help texts
:mod:`.main`         run a program; every error is caught here
:mod:`.failures`     from an error to a text and an exit code
:mod:`.command_log`  a line in ``commands.log`` for each command that a user runs
:mod:`.terminal`     write lines, use colours, ask questions
:mod:`.confirmation` ask before a dangerous operation
:mod:`.table`        aligned columns
:mod:`.fitting`      make a table fit the terminal
:mod:`.output`       JSON, YAML and CSV, and the indented text of the info commands
:mod:`.live`         show something again and again, as ``--watch`` does
:mod:`.listing`      the commands list and list-fields
:mod:`.row_list`     lists whose rows come from a job or a daemon
:mod:`.jobs`         submit jobs and wait for them
:mod:`.closing`      the last line of a command: what its job has changed
:mod:`.over_rest`    the same commands on a machine outside of the cluster
==================== ==================================================================

========================= =======================================================================
:mod:`.selector`          options by which arguments select objects in another way than by name
:mod:`.many`              do something to each of several objects: plan, question, jobs, results
:mod:`.filters`           filters of queries, made from the arguments of a command
:mod:`.tags`              the commands list-tags, add-tags and remove-tags of all programs
:mod:`.change_group`      move instances to other node groups
:mod:`.instance_creation` options and opcode of a new instance
:mod:`.instance_options`  disks, network interfaces and parameters of an instance
:mod:`.policy_options`    instance policies and disk parameters
:mod:`.node_params`       parameters of nodes
:mod:`.oob_options`       options of out-of-band helpers
:mod:`.online_nodes`      the nodes on which a command works
:mod:`.remote`            run a command on a node, or copy a file to it
:mod:`.rest_address`      addresses of REST interfaces
:mod:`.image_copies`      compare the copies of the catalogue of images, and send what is missing
:mod:`.verify_errors`     read the errors in the output of cluster verification
:mod:`.undo`              undo a change of the configuration with opposite jobs
:mod:`.undo_instance`     the opposite of a change of an instance
:mod:`.undo_objects`      the opposites of changes of nodes, groups, networks and the cluster
:mod:`.undo_steps`        the parts of such a plan
========================= =======================================================================

Heavy modules are imported inside functions: a command must send its first request within 100 ms
after its start.
"""
