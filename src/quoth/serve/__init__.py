"""For a team: the HTTP server with its page, and the tools for agents (MCP)."""
