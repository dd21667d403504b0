"""Find the cgroup folders of a process, in cgroup version 1 and 2.

Standard library only: both the orchestrator and the worker import it. File formats: cgroups(7), proc_pid_cgroup(5) and
proc_pid_mountinfo(5).
"""

import os
from pathlib import Path

from scenarios.linux.files import text

PROC = Path("/proc")


def own_folders(controller: str) -> tuple[int, list[Path]]:
    """Return the cgroup version (1 or 2) that manages `controller`, and the folders whose limits hold for this process.

    Its own folder comes first, then each parent up to the mount point. If its own folder is outside of the mounted
    part of the hierarchy, the mount point takes its place. No folders if no such hierarchy is mounted.
    """
    version, point, folders = _locate_process(controller, "self")
    return version, folders or ([point] if point else [])


def folder_of(controller: str, pid: int) -> Path | None:
    """Return the folder of another process. Return None if there is no such process, if its folder is not mounted here,
    or if it is the mount point: the kernel moves a process there when it ends, and the group's figures are not its own.
    """
    _, point, folders = _locate_process(controller, str(pid))
    return folders[0] if folders and folders[0] != point else None


def _locate_process(controller: str, process: str) -> tuple[int, Path | None, list[Path]]:
    # The mounts are always those that this process sees.
    return locate(controller, text(PROC / process / "cgroup") or "", text(PROC / "self/mountinfo") or "")


def locate(controller: str, memberships: str, mounts: str) -> tuple[int, Path | None, list[Path]]:
    """Return the cgroup version that manages `controller`, the mount point of that hierarchy (None if it is not
    mounted), and the folders of the process from its own up to the mount point (none if they are outside of the mount).

    memberships: text of /proc/<pid>/cgroup. mounts: text of /proc/self/mountinfo.
    """
    paths = {}
    for line in memberships.splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))  # version 2 has the empty name
    unified: tuple[int, Path | None, list[Path]] = (2, None, [])
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(" ")[:3]  # the source in the middle may be empty
        if kind == "cgroup" and controller in options.split(",") and controller in paths:
            return 1, Path(point), _chain(Path(point), root, paths[controller])
        if kind == "cgroup2" and "" in paths:
            unified = 2, Path(point), _chain(Path(point), root, paths[""])
    return unified


def _chain(point: Path, root: str, path: str) -> list[Path]:
    # In a container the mount shows only the part of the hierarchy below `root`. The kernel writes a path outside of
    # the cgroup namespace as /../name.
    inside = os.path.relpath(path, root)
    if path.startswith("/..") or inside.startswith(".."):
        return []
    own = point / inside
    return [own, *(parent for parent in own.parents if parent.is_relative_to(point))]
