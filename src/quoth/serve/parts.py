"""What `quoth serve` needs, in one import, which fails where FastAPI and uvicorn are not installed."""

from quoth.serve.guard import LOOPBACK
from quoth.serve.listen import bind
from quoth.serve.server import log_to_stderr, serve
from quoth.serve.service import Model, Service
from quoth.serve.settings import Settings

__all__ = ["LOOPBACK", "Model", "Service", "Settings", "bind", "log_to_stderr", "serve"]
