"""What `quoth mcp` is made of, in one place: the import fails without the package `mcp`."""

from quoth.serve.listen import bind
from quoth.serve.mcp_backend import Backend
from quoth.serve.mcp_folder import Folder
from quoth.serve.mcp_http import LOOPBACK, make_app, run_http
from quoth.serve.mcp_server import make_server, run_stdio

__all__ = ["LOOPBACK", "Backend", "Folder", "bind", "make_app", "make_server", "run_http", "run_stdio"]
