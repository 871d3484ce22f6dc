"""What `/metrics` tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUESTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "quoth_requests", "Requests by route and status.", ("route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "quoth_request_seconds", "Seconds of a request.", ("route",), buckets=SECONDS, registry=registry
        )
        self.questions = Counter("quoth_questions", "Questions by outcome.", ("outcome",), registry=registry)
        self.waiting = Gauge("quoth_questions_waiting", "Questions accepted and not yet answered.", registry=registry)
        self.batch_tokens = Histogram(
            "quoth_batch_tokens", "Tokens that the model reads together.", buckets=TOKENS, registry=registry
        )
        self.batch_requests = Histogram(
            "quoth_batch_requests", "Requests whose windows are read together.", buckets=REQUESTS, registry=registry
        )
        self.restarts = Counter("quoth_worker_restarts", "Worker processes replaced.", ("worker",), registry=registry)
        self.refreshes = Counter("quoth_index_refreshes", "Refreshes of the index.", ("outcome",), registry=registry)
        self.documents = Gauge("quoth_documents", "Documents of the folder.", registry=registry)
        self.passages = Gauge("quoth_passages", "Passages of the folder.", registry=registry)
        self.files = Gauge("quoth_files", "Files that were sent and are kept in memory.", registry=registry)
        for outcome in ("answer", "no_answer", "error"):
            self.questions.labels(outcome)

    def text(self) -> bytes:
        """All of them, in Prometheus' format."""
        return generate_latest(self._registry)

    def batch(self, requests: int, tokens: int) -> None:
        """A batch was sent to the model."""
        self.batch_requests.observe(requests)
        self.batch_tokens.observe(tokens)
