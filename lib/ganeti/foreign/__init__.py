"""Virtual machines of other programs: their descriptions, and their disk images.

================== ===============================================================
:mod:`.machine`    a virtual machine in the terms of this project
:mod:`.libvirt`    reads the XML of a domain of libvirt
:mod:`.proxmox`    reads the configuration of a machine of Proxmox VE
:mod:`.ovf`        reads an OVF description, with the section of Ganeti
:mod:`.ovf_hardware` the hardware in such a description, and the order of its disks
:mod:`.ovf_writer` writes one
:mod:`.ova`        OVA archives, and the checksums of an appliance
:mod:`.reading`    reads a description of any of these kinds
:mod:`.images`     examines disk images, and converts them with **qemu-img**
:mod:`.taking`     leaves out what a description says about things of the node
:mod:`.workplace`  directories for the unfinished files of an import
:mod:`.export`     writes an export from which the cluster makes an instance
:mod:`.fetching`   fetches a disk image, and proves that it is the wanted one
:mod:`.short_names` short names of published images, and the file of the administrator
:mod:`.catalogue`  the catalogue of disk images from which instances are installed
================== ===============================================================

Commands and **ovfconverter** use this package; no daemon does.
"""
