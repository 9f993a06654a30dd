"""Lakes, ledgers and checkpoint locations that earlier releases wrote, and the script that makes them."""
