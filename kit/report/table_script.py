"""Read the script that sorts and filters tables. It is the only script that a page of kit may have.

A page with this script passes TABLES_HASH to the macro `head` of `page_head.html`, so that its content security policy
allows this script and no other one. It ends its body with `<script>{{ tables }}</script>`, where `tables` is TABLES.
Without the script, a page lacks only sorting and filtering: the script itself adds the buttons and the fields.
"""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from markupsafe import Markup

from kit.storage.files import disk_errors

_PATH = Path(__file__).with_name("templates") / "tables.js"

with disk_errors(_PATH, "Check the permissions of kit's installed files.", did="read"):
    _text = _PATH.read_text("utf-8")

TABLES = Markup(_text)  # noqa: S704 - a file of kit, which contains no data
TABLES_HASH = f"sha256-{b64encode(sha256(_text.encode()).digest()).decode()}"
