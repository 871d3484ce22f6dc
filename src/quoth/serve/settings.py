"""`Settings`: the limits of the server. What is beyond them is refused at once, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """What one server takes at most.

    - token: that requests must bring; "" for none
    - hosts: names in `Host` that are answered; empty: all. Without a token a page of another site could else make its
      own name lead to 127.0.0.1 and read the answers (DNS rebinding)
    - max_body, max_file, max_buffered: bytes of a request, of a file that is sent, of all requests together
    - max_questions, max_passages: of a request; passages are those of its contexts
    - queue: questions that are accepted and not yet answered
    - threads: questions that are worked on at a time
    - timeout, body_timeout, head_timeout: seconds for an answer, for a body to come, for the head of a request
    - connections: that are open at a time
    - batch_tokens, batch_delay: tokens that the model reads together, and seconds that it waits for more of them; None:
      what the model process finds good
    - refresh: seconds between two looks at the folder
    - drain: seconds between SIGTERM and the end of listening, in which a load balancer may notice
    - files, file_bytes, file_age: files that were sent and are kept in memory: how many, their bytes, seconds
    """

    token: str = field(default="", repr=False)
    hosts: tuple[str, ...] = ()
    max_body: int = 4_000_000
    max_file: int = 32_000_000
    max_buffered: int = 256_000_000
    max_questions: int = 100
    max_passages: int = 2_000
    queue: int = 256
    threads: int = 32
    timeout: float = 30.0
    body_timeout: float = 20.0
    head_timeout: float = 10.0
    connections: int = 1_000
    batch_tokens: int | None = None
    batch_delay: float = 0.004
    refresh: float = 10.0
    drain: float = 0.5
    files: int = 64
    file_bytes: int = 256_000_000
    file_age: float = 3_600.0
