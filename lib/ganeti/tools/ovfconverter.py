"""The program ``ovfconverter``: makes exports of OVF and OVA appliances, and appliances of exports.

``import`` writes a directory with ``config.ini`` and raw disks, which ``gnt-backup import`` reads;
``gnt-instance import --from=ovf`` does both at once. ``export`` writes an appliance for other
programs from the directory which ``gnt-backup export`` has written.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.foreign import images, ova, ovf_writer, reading, taking
from ganeti.foreign.export import CONFIG_FILE, Dump, describe, parse_export
from ganeti.foreign.machine import Machine, Nic, is_name, positive
from ganeti.foreign.workplace import work_directory
from ganeti.objects import description as texts
from ganeti.platform import machine as platform
from ganeti.platform import paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs, process

PROGRAM = "ovfconverter"
_KEY_VALUE = re.compile(r"([A-Za-z0-9_.-]+)=(.*)")


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Convert OVF and OVA appliances to exports, and exports to appliances.",
    )
    add = parser.add_argument
    add("action", choices=("import", "export"), help="what to do")
    add("file", metavar="FILE", help="import: an .ovf or .ova file; export: config.ini")
    add("-n", "--name", metavar="NAME", help="name of the instance, or of the appliance")
    add("--output-dir", metavar="DIRECTORY",
        help="where to write; by default, import writes into the directory of the exports, and"
             " export beside FILE")  # fmt: skip
    add("-B", "--backend-parameters", metavar="KEY=VALUE,...", default="",
        help="import: memory=MIB and vcpus=NUMBER")  # fmt: skip
    add("--disk", action="append", default=[], metavar="N:path=FILE",
        help="import: an image for this disk, in place of those of the appliance")  # fmt: skip
    add("-t", "--disk-template", metavar="TEMPL", help="import: kind of the disks")
    add("-H", "--hypervisor-parameters", metavar="HYPERVISOR[:KEY=VALUE,...]",
        help="import: hypervisor and its parameters")  # fmt: skip
    add("-o", "--os-type", metavar="OS", help="import: OS definition; image by default")
    add("-O", "--os-parameters", metavar="KEY=VALUE,...", default="",
        help="import: parameters of the OS definition")  # fmt: skip
    add("--net", action="append", default=[], metavar="N:KEY=VALUE,...",
        help="import: network interface N, with mac, mode, link, vlan and ip; these replace all"
             " interfaces of the appliance")  # fmt: skip
    add("--no-nics", action="store_true", help="import: leave out the network interfaces")
    add("--tags", metavar="TAG,...", default="", help="import: tags of the instance")
    add(texts.OPTION, metavar="NAME,...", default="",
        help="import: take these values of the appliance, although they name things of the"
             " node")  # fmt: skip
    add("--dry-run", action="store_true", help="import: only show what would be done")
    add("-f", "--format", choices=sorted(images.WRITABLE), default="raw",
        help="export: format of the disks (default: %(default)s)")  # fmt: skip
    add("--compress", action="store_true", help="export: compress the disks with gzip")
    add("--external", action="store_true",
        help="export: leave out the section of Ganeti, for programs which refuse it")  # fmt: skip
    add("--ova", action="store_true", help="export: write one file, an OVA archive")
    add("-v", "--verbose", action="store_true", help="print each command before it runs")
    add("-d", "--debug", action="store_true", help="the same as --verbose")
    return parser


def _values(text: str) -> dict[str, str]:
    """Read ``KEY=VALUE,...``."""
    found = {}
    for part in filter(None, text.split(",")):
        match = _KEY_VALUE.fullmatch(part)
        if match is None:
            raise errors.OpPrereqError(f"{part!r:.60} is not KEY=VALUE", errors.ECODE_INVAL)
        found[match[1]] = match[2]
    return found


def _nics(given: Sequence[str]) -> tuple[Nic, ...]:
    """Read network interfaces from ``N:KEY=VALUE,...``, in any order.

    :raises OpPrereqError: the form, a number or a name is wrong.
    """
    known = [field.name for field in dataclasses.fields(Nic)]
    found: dict[str, Nic] = {}
    for text in given:
        number, _colon, rest = text.partition(":")
        values = _values(rest)
        wrong = sorted(values.keys() - set(known))
        if wrong:
            raise errors.OpPrereqError(
                f"--net {number}: there is no '{wrong[0]}', only {', '.join(known)}",
                errors.ECODE_INVAL,
            )
        if number in found:
            raise errors.OpPrereqError(f"--net {number} is given twice", errors.ECODE_INVAL)
        found[number] = Nic(**values)
    return tuple(found[number] for number in _in_order("--net", found))


def _disks(given: Sequence[str]) -> tuple[Any, ...]:
    """Read disks from ``N:path=FILE``, in any order.

    :raises OpPrereqError: the form, a number or a name is wrong, or there is no such file.
    """
    from ganeti.foreign.machine import Disk

    found: dict[str, Disk] = {}
    for text in given:
        number, _colon, rest = text.partition(":")
        values = _values(rest)
        path = values.pop("path", "")
        if values or not path or number in found:
            raise errors.OpPrereqError(
                f"--disk {text:.60}: write N:path=FILE, once for each disk", errors.ECODE_INVAL
            )
        if not os.path.isfile(path):
            raise errors.OpPrereqError(
                f"--disk {number}: there is no file {path}", errors.ECODE_NOENT
            )
        found[number] = Disk(os.path.abspath(path))
    return tuple(found[number] for number in _in_order("--disk", found))


def _in_order(option: str, found: Collection[str]) -> list[str]:
    """Return the numbers of devices in order.

    :raises OpPrereqError: they are not the numbers from 0 on.
    """
    numbers = list(map(str, range(len(found))))
    if sorted(found) != sorted(numbers):
        raise errors.OpPrereqError(
            f"{option}: number the devices from 0 on, not {', '.join(sorted(found))}",
            errors.ECODE_INVAL,
        )
    return numbers


def changed(machine: Machine, options: argparse.Namespace) -> Machine:
    """Return the machine with what the options say.

    :raises OpPrereqError: an option is wrong.
    :raises ParseError: a number is wrong.
    """
    new: dict[str, Any] = {}
    backend = _values(options.backend_parameters)
    if memory := backend.pop("memory", None):
        new["memory_mib"] = positive(memory, "memory")
    if vcpus := backend.pop("vcpus", None):
        new["vcpus"] = positive(vcpus, "vcpus")
    if backend:
        raise errors.OpPrereqError(
            f"backend parameter {next(iter(backend))} cannot be given here", errors.ECODE_INVAL
        )
    if options.hypervisor_parameters:
        name, _colon, values = options.hypervisor_parameters.partition(":")
        new["hypervisor"] = name
        same = machine.hvparams if name == machine.hypervisor else {}
        new["hvparams"] = {**same, **_values(values)}
    if options.disk:
        new["disks"] = _disks(options.disk)
    if options.disk_template:
        new["disk_template"] = options.disk_template
    if options.os_type:
        new["os"] = options.os_type
    if options.os_parameters:
        new["osparams"] = _values(options.os_parameters)
    if options.no_nics and options.net:
        raise errors.OpPrereqError("give either --net or --no-nics", errors.ECODE_INVAL)
    if options.no_nics or options.net:
        new["nics"] = _nics(options.net)
    if options.tags:
        new["tags"] = tuple(filter(None, options.tags.split(",")))
    return dataclasses.replace(machine, **new)


def _runner(options: argparse.Namespace) -> images.Runner:
    """Return what runs qemu-img: with --verbose, each command is printed before."""

    def shown(argv: Sequence[str], **values: Any) -> process.Completed:
        print(process.show(argv))
        return process.run(argv, **values)

    return shown if options.verbose or options.debug else process.run


def import_appliance(options: argparse.Namespace) -> int:
    """Write an export; return the exit code."""
    top = options.output_dir or paths.current().export_dir
    unpacked_in = options.output_dir or paths.current().import_dir
    with work_directory(top, 0o750) as work, work_directory(unpacked_in) as unpack:
        found, description = reading.read(reading.OVF, options.file, unpack)
        found, notes = _taken(found, description, options)
        found = changed(found, options)
        name = (options.name or found.name).lower()
        if not is_name(name):
            raise errors.OpPrereqError(
                f"{name!r:.60} cannot be the name of an instance. Give one with --name.",
                errors.ECODE_INVAL,
            )
        target = os.path.join(top, name)
        _require_new(target)
        if options.dry_run:
            _show(found, name, notes)
            return EXIT_SUCCESS
        export = os.path.join(work, "export")
        os.mkdir(export, 0o700)
        dumps = images.to_raw(found, description, export, work=unpack, run=_runner(options))
        text = describe(
            found, name, [Dump(*one) for one in dumps], source=platform.current().hostname()
        )
        fs.write_file(os.path.join(export, CONFIG_FILE), text, mode=0o600)
        os.rename(export, target)
    for note in (*found.notes, *notes):
        print(f"{PROGRAM}: notice: {note}")
    print(f"{PROGRAM}: the export is in {target}")
    return EXIT_SUCCESS


def _taken(machine: Machine, path: str, options: argparse.Namespace) -> tuple[Machine, list[str]]:
    """Leave out what the options replace, and refuse what an appliance may not say.

    This program knows no cluster, so no value is the one of the cluster.

    :param path: of the description.
    :returns: the machine, and a line for each value which is accepted.
    :raises OpPrereqError: values which are not accepted name things of the node.
    """
    hypervisor, _colon, parameters = (options.hypervisor_parameters or "").partition(":")
    accepted = list(filter(None, options.accept_from_description.split(",")))
    given = texts.Given(
        hypervisor=hypervisor or None,
        hvparams=_values(parameters).keys(),
        os=options.os_type,
        osparams=machine.osparams.keys() if options.os_parameters else (),
        nics=options.no_nics or bool(options.net),
        tags=bool(options.tags),
        accepted=accepted,
    )
    found, taken = taking.taken(machine, options.file, given, texts.KnownDefaults(), "")
    refused = [] if options.disk else taking.refused_images(found, path, (), accepted)
    texts.require(options.file, [*taken.refused, *refused])
    return found, texts.accepted_notes(taken)


def _show(machine: Machine, name: str, notes: Sequence[str]) -> None:
    """Print what would be imported."""
    print(
        f"{PROGRAM}: instance {name}: memory {machine.memory_mib} MiB, virtual processors"
        f" {machine.vcpus}, disks {len(machine.disks)}, network interfaces {len(machine.nics)}"
    )
    for note in (*machine.notes, *notes):
        print(f"{PROGRAM}: notice: {note}")
    print(f"{PROGRAM}: nothing was written, because of --dry-run")


def _require_new(path: str) -> None:
    if os.path.lexists(path):
        raise errors.OpPrereqError(f"{path} exists already", errors.ECODE_EXISTS)


def export_appliance(options: argparse.Namespace) -> int:
    """Write an appliance; return the exit code."""
    found = parse_export(fs.read_file(options.file))
    source = os.path.dirname(os.path.abspath(options.file))
    name = options.name or found.name
    if "/" in name or name.startswith("."):
        raise errors.OpPrereqError(f"{name!r:.60} is not a name", errors.ECODE_INVAL)
    top = options.output_dir or source
    target = os.path.join(top, f"{name}.ova" if options.ova else name)
    _require_new(target)
    for disk in found.disks:
        images.require_raw_dump(os.path.join(source, disk.path), disk.size_mib, found.os)
    fs.make_dirs(top, 0o750)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=top) as work:
        made = [
            _image(os.path.join(source, disk.path), work, number, options)
            for number, disk in enumerate(found.disks)
        ]
        text = ovf_writer.describe(
            dataclasses.replace(found, name=name), made, external=options.external
        )
        files = [f"{name}.ovf", *(image.file for image in made)]
        _write(os.path.join(work, files[0]), text)
        manifest = f"{name}.mf"
        _write(os.path.join(work, manifest), ova.manifest(work, files))
        files.insert(1, manifest)
        if options.ova:
            ova.pack(os.path.join(work, "archive"), work, files)
            os.rename(os.path.join(work, "archive"), target)
        else:
            os.mkdir(target, 0o750)
            for file in files:
                os.rename(os.path.join(work, file), os.path.join(target, file))
    print(f"{PROGRAM}: the appliance is in {target}")
    return EXIT_SUCCESS


def _write(path: str, text: str) -> None:
    with open(path, "x", encoding="utf-8") as stream:
        stream.write(text)


def _image(source: str, work: str, number: int, options: argparse.Namespace) -> ovf_writer.Image:
    """Convert one disk."""
    run = _runner(options)
    info = images.inspect(source, "raw", run)
    file = f"disk{number}.{options.format}"
    path = os.path.join(work, file)
    images.convert(source, "raw", path, images.WRITABLE[options.format], info.size, run)
    if options.compress:
        with open(path, "rb") as stream, gzip.open(f"{path}.gz", "wb") as packed:
            shutil.copyfileobj(stream, packed, 1 << 20)
        os.unlink(path)
        file, path = f"{file}.gz", f"{path}.gz"
    return ovf_writer.Image(
        file, os.path.getsize(path), options.format, info.size, gzip=options.compress
    )


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = make_parser().parse_args(argv)
    return (import_appliance if options.action == "import" else export_appliance)(options)
