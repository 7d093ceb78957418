# "make" alone prints what there is. Needed to start: git, make, python3 (3.11 or newer).

PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
# Directory of the demonstration cluster; short, because sockets live in it.
DEMO ?= $(CURDIR)/build/demo

TOP := $(CURDIR)
VPY := $(TOP)/.venv/bin/python
export PYTHONPATH := $(TOP)/lib:$(TOP)
# Hundreds of short programs run here; compiling them anew each time would take most of the time.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = $(VPY) -m pytest
# Most tests wait for something; a file stays in one process, because its tests share a cluster.
PARALLEL ?= -n 3 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help venv check lint types unit docs scenario scenario-long lab lab-shell bench demo demo-stop pages man \
	completion install clean

help:
	@echo "What make can do, and what each target needs besides git, make and python3."
	@echo "Python packages go into .venv; Debian packages are installed when you are root,"
	@echo "else the one line to run is printed."
	@echo
	@echo "  make venv       virtual environment in .venv           (network, or a filled pip cache)"
	@echo "  make check      lint, types, unit, docs, scenario: everything, in some minutes (venv)"
	@echo "  make lint       ruff over everything                                           (venv)"
	@echo "  make types      mypy in strict mode over lib                                   (venv)"
	@echo "  make unit       unit tests           (venv; zsh, fish, mtools, dosfstools: else some skip)"
	@echo "  make docs       documentation agrees with the program                          (venv)"
	@echo "  make scenario   real daemons and guests on this machine (venv; qemu-system-x86,"
	@echo "                  qemu-utils, curl, openssl, iproute2, ganeti-htools-3.0: else tests fail or skip;"
	@echo "                  ovmf, swtpm, nftables, iptables, openvswitch-switch, xfsprogs: else some skip)"
	@echo "  make scenario-long  the slow ones, too: broken networks, more of the model     (venv)"
	@echo "  make lab        virtual machines with real LVM and DRBD, and the tests in them; at most"
	@echo "                  25 minutes (venv; qemu-system-x86, debootstrap, cpio; root to build)"
	@echo "  make lab-shell  a cluster of three such machines, and a shell on its master"
	@echo "  make bench      latency and throughput on a virtual cluster                    (venv)"
	@echo "  make demo       3-node cluster with a live migration  (venv; qemu-system-x86, else the"
	@echo "                  fake hypervisor); goes on running, in DEMO=$(DEMO)"
	@echo "  make demo-stop  end it and remove its directory"
	@echo "  make pages      doc/query-fields.rst and doc/rapi-resources.rst anew               (venv)"
	@echo "  make man        man pages into build/man                                       (venv)"
	@echo "  make completion completion for bash, zsh and fish into build/completion        (venv)"
	@echo "  make install    for this machine, below PREFIX=$(PREFIX) (python3-pycurl and others)"
	@echo "  make clean      remove what was built, not .venv"

venv:
	@devel/setup-venv $(PYTHON)

check: lint types unit docs scenario

lint: venv
	$(VPY) -m ruff check .
	$(VPY) -m ruff format --check .

types: venv
	$(VPY) -m mypy

unit: venv
	-@devel/install-packages zsh fish mtools dosfstools qemu-utils fdisk openssh-client
	-@devel/install-packages ganeti-htools-3.0
	$(PYTEST) -q $(PARALLEL) test/unit

docs: venv
	$(PYTEST) -q test/docs

scenario: venv
	-@devel/install-packages qemu-system-x86 qemu-utils curl openssl iproute2
	-@devel/install-packages ganeti-htools-3.0
	-@devel/install-packages ovmf swtpm nftables iptables
	-@devel/install-packages openvswitch-switch xfsprogs
	$(PYTEST) -q $(PARALLEL) test/scenario

scenario-long: venv
	-@devel/install-packages qemu-system-x86 qemu-utils curl openssl iproute2
	GANETI_LONG=1 $(PYTEST) test/scenario test/unit/config/test_role_model.py \
		test/unit/cmdlib/test_interruptions.py \
		test/unit/cmdlib/test_interruptions_mirrored.py \
		test/unit/cmdlib/test_snapshot_interruptions.py

# For example: make lab LAB="-k migrate test/lab/test_life.py"
lab: venv
	@devel/lab test $(LAB)

lab-shell: venv
	@devel/lab shell

# For example: make bench BENCH="--sections all --json now.json"
bench: venv
	$(VPY) -m devel.bench $(BENCH)

demo: venv
	@$(VPY) -m devel.demo $(DEMO)

demo-stop:
	@if [ -e "$(DEMO)" ]; then $(VPY) -m devel.demo --stop "$(DEMO)"; fi

# Pages of the documentation which are made from the tables of the program.
pages: venv
	$(VPY) -m devel.field_list >build/query-fields.rst
	mv build/query-fields.rst doc/query-fields.rst
	$(VPY) devel/build-rapi-doc

man: venv
	$(VPY) devel/build-man build/man

completion: venv
	$(VPY) -m devel.completion build/completion
	@echo "For this shell: source build/completion/bash (or fish); zsh: put the directory into fpath."

install:
	devel/install-ganeti --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --python "$(PYTHON)"

clean:
	@if [ -e "$(DEMO)" ]; then $(VPY) -m devel.demo --stop --quiet "$(DEMO)"; fi
	rm -rf build lib/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find lib test -name __pycache__ -prune -exec rm -rf {} +
