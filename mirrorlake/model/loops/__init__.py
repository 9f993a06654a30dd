"""Loops of flows: which routes a record can take, which topics collide, and how many hops lie between clusters."""
