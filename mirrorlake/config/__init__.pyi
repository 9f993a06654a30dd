"""The face of `mirrorlake.config`: what other rooms use of it; its modules are its own."""

from mirrorlake.config import secrets as secrets
from mirrorlake.config.display import flow_sheet as flow_sheet
from mirrorlake.config.display import mirror_sheet as mirror_sheet
from mirrorlake.config.faults import closest as closest
from mirrorlake.config.find import find_settings as find_settings
from mirrorlake.config.find import usual_settings as usual_settings
from mirrorlake.config.fingerprint import identity as identity
from mirrorlake.config.fingerprint import plain as plain
from mirrorlake.config.loading import load as load
from mirrorlake.config.loading import loads as loads
from mirrorlake.config.secrets import BadReferenceError as BadReferenceError
from mirrorlake.config.secrets import expand as expand
from mirrorlake.config.secrets import is_bare_reference as is_bare_reference
from mirrorlake.config.secrets import keep_for_session as keep_for_session
from mirrorlake.config.secrets import redact as redact
from mirrorlake.config.secrets import typed_values as typed_values
from mirrorlake.config.times import EXAMPLES as EXAMPLES
from mirrorlake.config.times import when as when
from mirrorlake.config.values import length_of as length_of
from mirrorlake.config.values import rate as rate
