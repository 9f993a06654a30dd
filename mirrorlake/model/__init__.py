"""Floor 0: frozen values and pure functions, standard library only."""
