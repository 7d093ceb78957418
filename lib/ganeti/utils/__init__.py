"""Tools which know nothing of clusters: files, processes, clocks, text, addresses, certificates.

Each module is imported by its name (``from ganeti.utils import fs``). This file imports none of
them, so that a command loads only the modules that it uses.

=================== ====================================================================
:mod:`.fs`          write files so that readers never see an incomplete one
:mod:`.filelock`    locks between processes, which the kernel keeps for open files
:mod:`.inotify`     notice at once that files of a directory change
:mod:`.shared_dir`  find out whether two machines see the same directory
:mod:`.free_space`  write files from elsewhere so that they never fill the file system
:mod:`.receipt`     proof that the file which a transfer has written is complete
:mod:`.process`     run other programs, and ask whether a process lives
:mod:`.daemonize`   go into the background, and report the result of the start
:mod:`.notify`      tell the service manager that the daemon serves, ends or refuses
:mod:`.memory`      give memory which is free back to the system
:mod:`.unread`      bound the memory for answers which clients have not read yet
:mod:`.urgent`      locked memory and real-time priority for a daemon
:mod:`.net`         addresses and sockets, waiting until something can be read
:mod:`.peers`       accept many peers at once, and authenticate each with a deadline
:mod:`.ssh`         command lines of OpenSSH, and the formats of its keys and files
:mod:`.x509`        keys and certificates
:mod:`.compress`    the programs which compress and decompress a stream
:mod:`.clock`       the time of day, in the two forms of published formats
:mod:`.retry`       call a function again until it succeeds, with a time limit
:mod:`.shortage`    whether an error says that this machine lacks files, processes or memory
:mod:`.undo`        undo the steps of an operation when a later step fails
:mod:`.states`      make only those moves between states which a table allows
:mod:`.text`        sort names with numbers, format sizes, make identifiers, quote words
:mod:`.digits`      whether a text is a number
:mod:`.author`      who submitted a job, as its reason trail says
:mod:`.suggest`     suggest the name which a user has misspelt
:mod:`.effort`      limit the work of one request, and end it when nobody waits any more
:mod:`.linear_re`   search with regular expressions of users, in linear time
:mod:`.records`     classes with declared fields, for programs whose start counts
:mod:`.lazy`        imports a module of a package when one of its names is first used
:mod:`.log`         where log lines go: a file of each program, the terminal, syslog
:mod:`.metrics`     counters and histograms of this process
:mod:`.tracing`     traces: which process did what for a job, and how long it took
:mod:`.trace_names` variables, the header and kinds of spans, as traces name them
:mod:`.otlp`        send traces with the packages of OpenTelemetry
=================== ====================================================================
"""
