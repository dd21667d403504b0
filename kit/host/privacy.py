"""Remove personal data from texts for records: home folders, user and host names, UUIDs of GPUs."""

import os
import pwd
import re
import socket
from pathlib import Path

# Names that do not identify a person, and whose removal would spoil ordinary log lines.
COMMON = {
    "root",
    "user",
    "users",
    "localhost",
    "home",
    "ubuntu",
    "debian",
    "admin",
    "test",
    "nobody",
    "linux",
    "python",
}
MIN_LENGTH = 3
GPU_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def redact(text: str) -> str:
    """Return the text with this user's home folder as `~`, user name as `<user>`, host name as `<host>` and UUIDs of
    GPUs as `<gpu>`."""
    for pattern, replacement in _replacements():
        text = re.sub(pattern, replacement, text)
    return GPU_UUID.sub("<gpu>", text)


def _replacements() -> list[tuple[str, str]]:
    """Return pairs of pattern and replacement, the longest name first, because a name may contain another."""
    homes, users = {str(Path.home())}, {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    try:
        account = pwd.getpwuid(os.getuid())
        homes.add(account.pw_dir)
        users.add(account.pw_name)
    except KeyError:  # a number without an account, for example in containers
        pass
    host = socket.gethostname()
    found = [(home, rf"{re.escape(home)}(?![\w-]|\.\w)", "~") for home in homes if len(home) > 1]
    found += [(name, _word(name), "<user>") for name in users if _identifies(name)]
    found += [(name, _word(name), "<host>") for name in {host, host.split(".")[0]} if _identifies(name)]
    return [(pattern, to) for name, pattern, to in sorted(found, key=lambda f: len(f[0]), reverse=True)]


def _identifies(name: str) -> bool:
    return len(name) >= MIN_LENGTH and name.lower() not in COMMON


def _word(name: str) -> str:
    return rf"(?<![\w-]){re.escape(name)}(?![\w-])"


def without_user_info(text: str) -> str:
    """Return the text without `user:password@` in its URLs."""
    return re.sub(r"(\w+://)[^/\s]*@", r"\1", text)
