"""Edit settings: drafts, previews of a change, and saving the file."""

from mirrorlake.config.edit.cluster_fields import BLANK_CLUSTER, MECHANISMS, SECURITY, usual_reference
from mirrorlake.config.edit.draft import Draft
from mirrorlake.config.edit.flow_fields import BLANK_FLOW, POLICIES, flow_name
from mirrorlake.config.edit.flow_preview import FlowPreview, find_unmirrored, preview, stays_after
from mirrorlake.config.edit.references import without_secrets
from mirrorlake.config.edit.saving import difference, save
