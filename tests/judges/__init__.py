"""Laws and promises as a user sees them: brokers, commands, `Mirror`, settings files and documented tables, never an inner module."""
