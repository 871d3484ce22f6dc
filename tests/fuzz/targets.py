"""All targets by name."""

from __future__ import annotations

from fuzz import data_formats, document_formats, model_formats, run_formats, verbs
from fuzz.case import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (data_formats, document_formats, model_formats, run_formats, verbs)
    for target in module.TARGETS
}
