"""Topics on the targets and what belongs to them: plan, apply, settings, ACLs, continuous sync, history."""
