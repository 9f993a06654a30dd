"""What a flow that is taken out of the settings leaves where it is."""

from __future__ import annotations

from mirrorlake.config.schema.flow import FlowConfig


def stays_after(flow: FlowConfig) -> str:
    """Say what stays on the clusters and in the lake after a flow is taken out of the settings.

    Example:
        >>> from mirrorlake.config.loading import loads
        >>> config = loads('''
        ... lake: {root: ./lake}
        ... clusters: {east: {bootstrap_servers: "e:9092"}, west: {bootstrap_servers: "w:9092"}}
        ... flows: [{source: east, target: west, topics: orders}]
        ... ''')
        >>> print(stays_after(config.flows[0]))
        Nothing is deleted. On west stay the topics it wrote and its ledger mirrorlake.east.west.ledger.
        In the lake stay the relay of east and all that the tables tell of the flow.
        A flow of the same name would go on where this one stopped.
    """
    return "\n".join(
        (
            f"Nothing is deleted. On {flow.target} stay the topics it wrote and its ledger {flow.ledger_topic}.",
            f"In the lake stay the relay of {flow.source} and all that the tables tell of the flow.",
            "A flow of the same name would go on where this one stopped.",
        )
    )
