"""The face of `mirrorlake.config.edit`: what other rooms use of it; its modules are its own."""

from mirrorlake.config.edit.cluster_fields import BLANK_CLUSTER as BLANK_CLUSTER
from mirrorlake.config.edit.cluster_fields import MECHANISMS as MECHANISMS
from mirrorlake.config.edit.cluster_fields import SECURITY as SECURITY
from mirrorlake.config.edit.cluster_fields import usual_reference as usual_reference
from mirrorlake.config.edit.draft import Draft as Draft
from mirrorlake.config.edit.flow_fields import BLANK_FLOW as BLANK_FLOW
from mirrorlake.config.edit.flow_fields import POLICIES as POLICIES
from mirrorlake.config.edit.flow_fields import flow_name as flow_name
from mirrorlake.config.edit.flow_preview import FlowPreview as FlowPreview
from mirrorlake.config.edit.flow_preview import preview as preview
from mirrorlake.config.edit.flow_preview import stays_after as stays_after
from mirrorlake.config.edit.references import without_secrets as without_secrets
from mirrorlake.config.edit.saving import difference as difference
from mirrorlake.config.edit.saving import save as save
