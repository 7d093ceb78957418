"""The display of a guest: VNC, SPICE, or none. Pure functions.

Source: qemu(1), options ``-vnc`` and ``-spice``.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor.kvm import devices
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.objects.instance import FilledInstance


def display_argv(instance: FilledInstance, layout: Layout) -> list[str]:
    """Return the options for the display, by the parameters ``vnc_bind_address`` and
    ``spice_bind``.

    :raises HypervisorError: the instance has no network port.
    """
    hvp = instance.hvparams
    vnc, spice = hvp.get("vnc_bind_address"), hvp.get("spice_bind")
    if vnc:
        return _vnc(instance, vnc, layout)
    if spice:
        return _spice(instance, spice, layout)
    return ["-display", "none"]


def _vnc(instance: FilledInstance, bind: str, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    argv: list[str] = []
    if not hvp.get("usb_mouse"):
        # Without a device with absolute coordinates, the pointers of viewer and guest differ.
        argv += ["-usbdevice", "tablet"]
    if hvp.get("vnc_tls"):
        kind = "tls-creds-x509" if hvp.get("vnc_x509_path") else "tls-creds-anon"
        creds: list[tuple[str, Any]] = [("id", "vnctls0"), ("endpoint", "server")]
        if hvp.get("vnc_x509_path"):
            creds += [
                ("dir", hvp["vnc_x509_path"]),
                ("verify-peer", "yes" if hvp.get("vnc_x509_verify") else "no"),
            ]
        argv += ["-object", f"{kind},{devices.join(creds)}"]
    if bind.startswith("/"):
        # A directory, in which QEMU makes a socket; its permissions decide who may connect.
        address = f"unix:{devices.escape(bind.rstrip('/'))}/{instance.name}.vnc"
    else:
        port = instance.network_port
        if port is None or port < hv.VNC_BASE_PORT:
            raise errors.HypervisorError(
                f"instance {instance.name} has no network port for VNC (found {port})"
            )
        host = "" if bind == "0.0.0.0" else f"[{bind}]" if ":" in bind else bind
        address = f"{host}:{port - hv.VNC_BASE_PORT}"
    if hvp.get("vnc_tls"):
        address += ",tls-creds=vnctls0"
    if hvp.get("vnc_password_file"):
        address += ",password=on"
    return [*argv, "-vnc", address]


def _spice(instance: FilledInstance, bind: str, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    if instance.network_port is None:
        raise errors.HypervisorError(f"instance {instance.name} has no network port for SPICE")
    options: list[tuple[str, Any]] = [("addr", bind)]
    if hvp.get("spice_use_tls"):
        options += [
            ("tls-port", instance.network_port),
            ("x509-cacert-file", layout.spice.authority),
            ("x509-key-file", layout.spice.certificate),
            ("x509-cert-file", layout.spice.certificate),
        ]
        if hvp.get("spice_tls_ciphers"):
            options.append(("tls-ciphers", hvp["spice_tls_ciphers"]))
    else:
        options.append(("port", instance.network_port))
    if not hvp.get("spice_password_file"):
        options.append(("disable-ticketing", "on"))
    if hvp.get("spice_ip_version"):
        options.append((f"ipv{hvp['spice_ip_version']}", "on"))
    for parameter, option in (
        ("spice_image_compression", "image-compression"),
        ("spice_jpeg_wan_compression", "jpeg-wan-compression"),
        ("spice_zlib_glz_wan_compression", "zlib-glz-wan-compression"),
        ("spice_streaming_video", "streaming-video"),
    ):
        if hvp.get(parameter):
            options.append((option, hvp[parameter]))
    if not hvp.get("spice_playback_compression"):
        options.append(("playback-compression", "off"))
    if not hvp.get("spice_use_vdagent"):
        options.append(("agent-mouse", "off"))
    argv = ["-spice", devices.join(options)]
    if hvp.get("spice_use_vdagent"):
        argv += [
            "-device",
            "virtio-serial-pci,id=spice",
            "-device",
            "virtserialport,chardev=spicechannel0,name=com.redhat.spice.0",
            "-chardev",
            "spicevmc,id=spicechannel0,name=vdagent",
        ]
    return argv
