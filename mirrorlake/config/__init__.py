"""Read typed settings from one YAML file, and report every fault at once."""

from mirrorlake.config import secrets
from mirrorlake.config.display import flow_sheet, mirror_sheet
from mirrorlake.config.faults import closest
from mirrorlake.config.find import find_settings, usual_settings
from mirrorlake.config.fingerprint import identity, plain
from mirrorlake.config.loading import load, loads
from mirrorlake.config.preview import FlowPreview, find_unmirrored, preview
from mirrorlake.config.secrets import (
    BadReferenceError,
    expand,
    is_bare_reference,
    keep_for_session,
    redact,
    typed_values,
)
from mirrorlake.config.times import when
from mirrorlake.config.values import length_of
