"""m0serve serves Python web applications from a native event loop.

    import m0serve
    m0serve.run("main:app", port=8080)

The options are those of the command line (``m0serve --help``), with underscores.
"""

from m0serve._native import Exit, __version__
from m0serve._server import Server, run
from m0serve._types import ASGIApplication, Options, WSGIApplication

__all__ = ["ASGIApplication", "Exit", "Options", "Server", "WSGIApplication", "__version__", "run"]
