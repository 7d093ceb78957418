"""The codes of findings of ``gnt-cluster verify``, and the kind of object of each code."""

from __future__ import annotations

OBJECT_OF = {
    "ECLUSTERCERT": "cluster",
    "ECLUSTERCFG": "cluster",
    "ECLUSTERCLIENTCERT": "cluster",
    "ECLUSTERDANGLINGINST": "node",
    "ECLUSTERDANGLINGNODES": "node",
    "ECLUSTERFILECHECK": "cluster",
    "EEXTAGS": "node",
    "EGROUPDIFFERENTPVSIZE": "group",
    "EINSTANCEBADNODE": "instance",
    "EINSTANCEDOWN": "instance",
    "EINSTANCEFAULTYDISK": "instance",
    "EINSTANCELAYOUT": "instance",
    "EINSTANCEMISSINGCFGPARAMETER": "instance",
    "EINSTANCEMISSINGDISK": "instance",
    "EINSTANCEPOLICY": "instance",
    "EINSTANCESPLITGROUPS": "instance",
    "EINSTANCEUNSUITABLENODE": "instance",
    "EINSTANCEWRONGNODE": "instance",
    "ENODEDRBD": "node",
    "ENODEDRBDHELPER": "node",
    "ENODEDRBDVERSION": "node",
    "ENODEFILECHECK": "node",
    "ENODEFILESTORAGEPATHS": "node",
    "ENODEFILESTORAGEPATHUNUSABLE": "node",
    "ENODEGLUSTERSTORAGEPATHUNUSABLE": "node",
    "ENODEHOOKS": "node",
    "ENODEHV": "node",
    "ENODELVM": "node",
    "ENODEN1": "node",
    "ENODENET": "node",
    "ENODEOOBPATH": "node",
    "ENODEORPHANINSTANCE": "node",
    "ENODEORPHANLV": "node",
    "ENODEOS": "node",
    "ENODERPC": "node",
    "ENODESETUP": "node",
    "ENODESHAREDFILESTORAGEPATHUNUSABLE": "node",
    "ENODESSH": "node",
    "ENODETIME": "node",
    "ENODEUSERSCRIPTS": "node",
    "ENODEVERSION": "node",
}
ALL_CODES = tuple(OBJECT_OF)

ERROR = "ERROR"
WARNING = "WARNING"
#: What is no problem; it has no code.
NOTICE = "NOTICE"

CHECK_NPLUSONE_MEM = "nplusone_mem"
CHECK_HVPARAM_ASSESSMENT = "hvparam_assessment"
OPTIONAL_CHECKS = (CHECK_HVPARAM_ASSESSMENT, CHECK_NPLUSONE_MEM)
