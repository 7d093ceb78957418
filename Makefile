# "make" alone prints the targets. Needed to start: git, make, python3 (3.11 or newer).

PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
# Seconds after which "make check-long" stops.
TIME_BOX ?= 7200
# Directory of the demonstration cluster; a short path, because it contains unix sockets.
DEMO ?= $(CURDIR)/build/demo

TOP := $(CURDIR)
RELEASE := $(shell sed -n 's/^RELEASE = "\(.*\)"$$/\1/p' lib/ganeti/__init__.py)
# Root may build in a checkout of another user.
GIT = git -c "safe.directory=$(TOP)"
VPY := $(TOP)/.venv/bin/python
export PYTHONPATH := $(TOP)/lib:$(TOP)
# The tests run hundreds of short programs; compiling them for each run would take most of the time.
unexport PYTHONDONTWRITEBYTECODE

# Clusters of tests make many directories and flush many files: in memory where the machine can do that.
PYTEST = env TMPDIR="$$(devel/temporary-directory)" $(VPY) -m pytest -q --durations=10
# Most tests wait for something; the tests of a file run in one process, because they share a cluster.
PARALLEL ?= -n 4 --dist loadfile
# Beside the other parts of "make check": each process has to read all test files first.
PARALLEL_CHECK ?= -n 2 --dist loadfile
# Tests of real daemons wait even more.
PARALLEL_SCENARIO ?= -n 4 --dist loadfile
# Where the clusters of these tests execute their jobs: threads or processes.
JOB_EXECUTION ?= threads
export JOB_EXECUTION

.DEFAULT_GOAL := help
.PHONY: help venv check lint types unit unit-packages docs docs-packages scenario scenario-packages \
	check-long mutants shape \
	crash-points chaos chaos-defects lab \
	lab-shell bench bench-fleet demo demo-recording demo-stop pages html man completion install deb sdist wheel clean

help:
	@echo "The targets, and in parentheses what each one needs besides git, make and python3."
	@echo "make installs Python packages into .venv. As root it installs the Debian packages, too;"
	@echo "otherwise it prints the command which installs them."
	@echo
	@echo "  make venv       make the virtual environment .venv     (network, or a filled pip cache)"
	@echo "  make check      lint, types, unit, docs and scenario side by side, for every change; it takes at"
	@echo "                  most 10 minutes on two idle cores, and names its ten slowest tests    (venv)"
	@echo "  make lint       check rules and format with ruff                                 (venv)"
	@echo "  make types      check types with mypy in strict mode                             (venv)"
	@echo "  make unit       run the unit tests  (venv; zsh, fish, mtools, dosfstools, qemu-utils, fdisk,"
	@echo "                  curl, openssh-client, openssh-server, ganeti-htools-3.0, systemd, logrotate,"
	@echo "                  python3-pycurl and the other Python packages of Debian:"
	@echo "                  without them some tests are skipped; no server is started)"
	@echo "  make docs       check that documentation and programs agree     (venv; prometheus, whose"
	@echo "                  promtool checks the rules of alerts: without it these tests are skipped)"
	@echo "  make scenario   run real daemons and guests on this machine  (venv; qemu-system-x86,"
	@echo "                  qemu-utils, curl, openssl, iproute2, ganeti-htools-3.0: without them tests"
	@echo "                  fail or are skipped; ovmf, swtpm, nftables, iptables, openvswitch-switch,"
	@echo "                  xfsprogs, btrfs-progs, e2fsprogs, debootstrap, udev, openssh-client,"
	@echo "                  openssh-server: without them some tests are skipped)"
	@echo "                  JOB_EXECUTION=processes runs them with jobs in processes of their own"
	@echo "  make unit-packages  install what the unit tests use, as far as possible              (root)"
	@echo "  make docs-packages  install what the tests of the documentation use                  (root)"
	@echo "  make scenario-packages  install what the scenario tests use, as far as possible      (root)"
	@echo "  make check-long run the unit tests under the other versions of Python which are installed,"
	@echo "                  a part of the known faults, ten minutes of make chaos, a part of make scenario"
	@echo "                  with jobs in processes of their own, and the tests which"
	@echo "                  take too long for make check: broken networks, every interruption, larger models; it stops after"
	@echo "                  TIME_BOX=$(TIME_BOX) seconds, and begins with others every day"
	@echo "                  (venv; the packages of make scenario)"
	@echo "  make shape      measure the structure of the code: long functions, circles of imports, copies,"
	@echo "                  names without a caller; SHAPE=\"--package jqueue --list\" chooses      (venv)"
	@echo "  make mutants    put known faults into a copy of the program, one after the other, and see"
	@echo "                  that a test fails; MUTANTS=\"jqueue --part 1/7\" chooses some      (venv)"
	@echo "  make crash-points  let processes die at each of their writes, flushes, renames and node calls;"
	@echo "                  CRASH=\"--every 10 WORD\" chooses (doc/fault-injection.rst)      (venv)"
	@echo "  make chaos      run a virtual cluster of five nodes under load while its parts fail, and check"
	@echo "                  that nothing is lost; CHAOS=\"--minutes 30 --seed 1\" chooses the time and"
	@echo "                  the faults                                                       (venv)"
	@echo "  make chaos-defects  put known defects into a copy of the program, and see that the chaos run"
	@echo "                  finds each of them                                               (venv)"
	@echo "  make lab        run the tests in virtual machines with real LVM and DRBD, at most 25 minutes"
	@echo "                  (venv; qemu-system-x86, qemu-utils, debootstrap, cpio, e2fsprogs, iproute2,"
	@echo "                  openssh-client; root to build the image)"
	@echo "  make lab-shell  start a cluster of three such machines, and a shell on its master"
	@echo "  make bench      measure latency and throughput on virtual clusters               (venv)"
	@echo "  make bench-fleet  measure clusters of 10, 100 and 1,000 simulated nodes           (venv)"
	@echo "  make demo       create a cluster of three nodes in DEMO=$(DEMO)"
	@echo "                  and show a live migration; the cluster goes on running  (venv;"
	@echo "                  qemu-system-x86: without it the fake hypervisor is used)"
	@echo "  make demo-recording  record the terminal of the demonstration for the manual      (venv;"
	@echo "                  qemu-system-x86)"
	@echo "  make demo-stop  stop that cluster and remove its directory"
	@echo "  make pages      generate the pages of doc/ which are made from tables            (venv)"
	@echo "  make html       make the manual with all pages as HTML in build/html             (venv)"
	@echo "  make man        generate the man pages into build/man                            (venv)"
	@echo "  make completion generate completion for bash, zsh and fish into build/completion (venv)"
	@echo "  make install    install below PREFIX=$(PREFIX) for this machine; DESTDIR=DIRECTORY puts the"
	@echo "                  files below another root       (python3-pycurl and other packages)"
	@echo "  make deb        build the Debian package in build/deb, and check it with lintian  (build-essential,"
	@echo "                  debhelper, dh-python, lintian); DEBFULLNAME and DEBEMAIL name its maintainer"
	@echo "  make sdist      write the source of the last commit to build/dist, as an archive"
	@echo "  make wheel      build the package for programs which use it as a library         (venv)"
	@echo "  make clean      remove everything that was built, except .venv"

venv:
	@devel/setup-venv $(PYTHON)

# Side by side, because tests of real daemons wait a lot: each part prints what it has to say when it ends.
# Packages are installed before, because only one program can do that at a time.
check: venv unit-packages docs-packages scenario-packages
	@echo "make check: lint, types, docs, unit and scenario run side by side; each prints its output when it ends"
	@$(MAKE) --no-print-directory --jobs=5 --output-sync=target PARALLEL="$(PARALLEL_CHECK)" \
		lint types docs unit scenario

lint: venv
	$(VPY) -m ruff check .
	$(VPY) -m ruff format --check .

types: venv
	$(VPY) -m mypy

unit: venv unit-packages
	$(PYTEST) $(PARALLEL) -m "not long" test/unit

docs: venv docs-packages
	$(PYTEST) -n 2 --dist loadfile test/docs

# A package which cannot be installed is no error here: the tests that need it are skipped.
unit-packages:
	-@devel/install-packages zsh fish mtools dosfstools qemu-utils fdisk curl lvm2
	-@devel/install-packages openssh-client openssh-server
	-@devel/install-packages ganeti-htools-3.0
	-@devel/install-packages systemd logrotate apache2-bin
	-@devel/install-packages python3-pycurl python3-simplejson python3-pyparsing python3-openssl \
		python3-cryptography python3-yaml python3-pyinotify python3-wsproto \
		python3-authlib python3-pamela python3-pyotp python3-fido2 python3-segno
	-@devel/install-packages libpam-wrapper

docs-packages:
	-@devel/install-packages prometheus graphviz chromium

# For example: make scenario JOB_EXECUTION=processes
scenario: venv scenario-packages
	$(PYTEST) $(PARALLEL_SCENARIO) -m "not long" test/scenario

scenario-packages:
	-@devel/install-packages qemu-system-x86 qemu-utils curl openssl iproute2
	-@devel/install-packages ganeti-htools-3.0
	-@devel/install-packages ovmf swtpm nftables iptables
	-@devel/install-packages openvswitch-switch xfsprogs
	-@devel/install-packages lxc busybox-static fdisk
	-@devel/install-packages glusterfs-server qemu-block-extra
	-@devel/install-packages btrfs-progs e2fsprogs debootstrap udev
	-@devel/install-packages openssh-client openssh-server

check-long: venv scenario-packages
	-@devel/install-packages ceph-mon ceph-osd ceph-common rbd-fuse
	@devel/check-long $(TIME_BOX) $(PARALLEL)

# For example: make shape SHAPE="--package cmdlib/ops --list"
shape: venv
	@$(VPY) -m devel.shape $(SHAPE)

# For example: make mutants MUTANTS="jqueue config --part 1/7"
mutants: venv
	$(VPY) -m devel.mutate $(MUTANTS)

# For example: make crash-points CRASH="--every 10 'job queue' role"
crash-points: venv
	cd test && env TMPDIR="$$(../devel/temporary-directory)" PYTHONPATH="$(TOP)/lib:$(TOP):$(TOP)/test" \
		$(VPY) -m crash_points $(CRASH)

# For example: make chaos CHAOS="--minutes 30 --seed 1"
chaos: venv
	@env TMPDIR="$$(devel/temporary-directory)" $(VPY) -m devel.chaos $(CHAOS)

chaos-defects: venv
	@env TMPDIR="$$(devel/temporary-directory)" $(VPY) -m devel.chaos --defects $(CHAOS)

# For example: make lab LAB="-k migrate test/lab/test_life.py"
lab: venv
	@devel/lab test $(LAB)

lab-shell: venv
	@devel/lab shell

# For example: make bench BENCH="--sections all --json now.json"
bench: venv
	$(VPY) -m devel.bench $(BENCH)

# For example: make bench-fleet BENCH="--sizes 1000 --plots --json now.json"
bench-fleet: venv
	$(VPY) -m devel.bench.fleet $(BENCH)

demo: venv
	@$(VPY) -m devel.demo "$(DEMO)"

# Records the terminal of the demonstration for the manual.
demo-recording: venv
	$(VPY) -m devel.terminal_recording doc/drawings/demo.cast $(VPY) -m devel.demo "$(DEMO)"
	$(VPY) -m devel.demo --stop "$(DEMO)"

demo-stop:
	@if [ -e "$(DEMO)" ]; then $(VPY) -m devel.demo --stop "$(DEMO)"; else echo "there is no demonstration in $(DEMO)"; fi

# Pages of the documentation which are generated from tables of the programs.
pages: venv
	mkdir -p build
	$(VPY) -m devel.field_list >build/query-fields.rst
	mv build/query-fields.rst doc/query-fields.rst
	$(VPY) devel/build-rapi-doc
	$(VPY) -m devel.reference_pages

# A warning is an error: links to pages which do not exist, for example.
html: venv
	$(VPY) -m devel.html_pages build/html

man: venv
	$(VPY) devel/build-man build/man

completion: venv
	$(VPY) -m devel.completion build/completion
	@echo "For this shell: source build/completion/bash (or fish); zsh: put the directory into fpath."

install:
	devel/install-ganeti --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --python "$(PYTHON)"

# For example: make deb DEBFULLNAME="Virtual machines team" DEBEMAIL=vm-team@example.com
deb:
	@devel/make-deb

# The same bytes for each build of a commit, with any configuration of git.
sdist:
	mkdir -p build/dist
	$(GIT) -c tar.umask=0022 archive --prefix=ganeti-py-$(RELEASE)/ -o build/dist/ganeti-py-$(RELEASE).tar HEAD
	gzip -n -9 -f build/dist/ganeti-py-$(RELEASE).tar
	@ls build/dist/ganeti-py-$(RELEASE).tar.gz

# For programs which use the REST client or htools as a library; the daemons need "make install" or "make deb".
wheel: venv
	rm -rf build/lib build/bdist.*
	umask 022 && epoch=$$($(GIT) log -1 --format=%ct) && SOURCE_DATE_EPOCH=$$epoch $(VPY) -m pip wheel -q --no-deps -w build/dist .
	@ls build/dist/ganeti-$(RELEASE)-*.whl

clean:
	@if [ -e "$(DEMO)" ]; then $(VPY) -m devel.demo --stop --quiet "$(DEMO)"; fi
	rm -rf build lib/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find lib devel test -name __pycache__ -prune -exec rm -rf {} +
