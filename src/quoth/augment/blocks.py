"""Texts that `quoth.augment.layouts` puts into passages: headings, and blocks as they stand in documentation."""

from __future__ import annotations

HEADINGS = (
    "Overview", "Introduction", "Background", "History", "Description", "Details", "Summary", "General", "Usage",
    "Notes", "Further information", "Terms", "Scope", "Definitions", "Getting started", "Configuration", "Examples",
    "Frequently asked questions", "About", "Remarks", "Known issues", "Options", "Synopsis", "What is new", "Changes",
    "Requirements", "Policy", "Rights and obligations", "Results", "Context",
)  # fmt: skip
SLOTS = {
    "tool": ("mkdata", "relay", "sitectl", "packd", "treesync", "logview", "imgconv", "netprobe"),
    "verb": ("init", "build", "check", "sync", "list", "run", "export", "status"),
    "flag": ("--verbose", "--output", "--force", "--dry-run", "--config", "--timeout", "--jobs", "--quiet"),
    "key": ("timeout", "max_size", "log_level", "retries", "workers", "cache_dir", "host", "port"),
    "value": ("30", "128", "info", "4", "true", "false", "/var/cache", "8080"),
    "file": ("settings.toml", "config.yaml", "input.csv", "notes.txt", "data.json", "setup.cfg"),
    "name": ("load", "parse", "connect", "render", "update", "resolve", "filter_rows", "get_items"),
    "type": ("str", "int", "bool", "float", "list", "path"),
}
BLOCKS = (
    "```\n$ {tool} {verb} {flag}\n```",
    "```bash\n{tool} {verb} {flag} {file}\n```",
    "```python\nfrom {tool} import {name}\n\nresult = {name}('{file}', {key}={value})\n```",
    "```python\ndef {name}(self, {key}={value}):\n    return self.{key}\n```",
    "```toml\n[{tool}]\n{key} = {value}\n```",
    "```yaml\n{tool}:\n  {key}: {value}\n```",
    '```json\n{"{key}": "{value}"}\n```',
    "    $ {tool} {verb} {file}\n    done.",
    "    {key} = {value}",
    "    >>> {tool}.{name}('{file}')\n    {value}",
    "$ {tool} {verb} {flag} {file}",
    "# {tool} {verb} {flag}",
    "Usage: {tool} {verb} [OPTIONS] FILE",
    "usage: {tool} [-h] [{flag}] {file}",
    "| option | default | type |\n|---|---|---|\n| `{key}` | {value} | {type} |",
    "| {key} | {value} |",
    "Option        Type    Default\n------        ----    -------\n{key}    {type}    {value}",
    "+---------+---------+\n| {key} | {value} |\n+---------+---------+",
    "{flag} {key}    ({type}, default: {value})",
    ".. code-block:: python\n\n    {name}({key}={value})",
    ".. note:: See ``{tool}.{name}()``.",
    "<pre>{tool} {verb}</pre>",
    "{tool}.{name}(*, {key}: {type} = {value}) -> {type}",
    ":param {key}: a {type}\n:returns: {type}",
    "[INFO] {tool}: {verb} {file}",
    "// {name}({key})\nreturn {value};",
)
