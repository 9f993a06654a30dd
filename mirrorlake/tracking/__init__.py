"""MLflow runs of verifications and drills; only this package uses mlflow, and nothing else depends on it."""

from mirrorlake.tracking.run import FLOW, TrackedRun, html_page, json_report
from mirrorlake.tracking.tracker import Tracker, make_tracker
