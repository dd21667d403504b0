"""Start kit. This module imports little, so that Ctrl-C finds a handler during the imports, which take a second."""

import sys


def main() -> None:
    """Run a command. Print the message and remedy of an error on stderr, and exit with the code of its class.

    Ctrl-C, SIGTERM and SIGHUP end every command in good order.
    """
    try:
        from kit.cli import streams
        from kit.execution.interrupts import interrupts

        streams.protect()
        interrupts.handle()

        from kit.cli import commands

        message, code = commands.run()
        interrupts.ignore()
    except KeyboardInterrupt:  # further signals are already ignored
        from kit.execution.interrupts import interrupts
        from kit.model.errors import Interrupted

        interrupts.ignore()  # also while Python ends, when it restores the default handlers
        message, code = "Interrupted.\n", Interrupted.exit_code
    sys.stderr.write(message)
    sys.stderr.flush()
    sys.exit(code)
