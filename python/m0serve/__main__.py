"""The command line: ``m0serve [OPTIONS] [APP]`` and ``python -m m0serve``."""

from __future__ import annotations

import platform
import sys

from m0serve import _loops
from m0serve._init import split_from_init
from m0serve._load import load_all
from m0serve._native import Config, Exit
from m0serve._report import answer, show
from m0serve._server import Server, report_exit, run_process


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    try:
        config = Config.parse(sys.argv[1:] if argv is None else argv)
        if config.doctor:
            return _doctor(config)
        split_from_init()
        return run_process(Server._from_config(config))
    except Exit as end:
        return report_exit(end)
    except KeyboardInterrupt:
        return 130  # while the application was imported: nothing had started


def _doctor(config: Config) -> int:
    """Prints the configuration that would be served; imports the applications, since their interfaces are asked for."""
    loop_name = refusal = None
    interfaces: list[str | None] = []
    try:
        loop_name = _loops.resolve(config.loop)
        interfaces += [mounted.interface for mounted in load_all(config, (), lambda: None)]
    except Exit as end:
        refusal = end
        if end.__cause__ is not None:
            show(end.__cause__)
    text, code = config.report(
        interfaces=interfaces,
        loop_name=loop_name,
        interpreter=f"{platform.python_implementation()} {platform.python_version()}",
        refusal=refusal,
    )
    answer(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
