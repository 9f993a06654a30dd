"""Messages of a kernel to a page that reads late."""

from __future__ import annotations

import zmq
from jupyter_client.manager import KernelManager

SENT = 5_000
SEND = f"""
from IPython.display import display
from mirrorlake.notebook.display import keep_all_messages
keep_all_messages()
for number in range({SENT}):
    display({{"text/plain": f"{{number}} " + "x" * 1_000}}, raw=True)
"""


def test_a_kernel_drops_no_message_to_a_page_that_reads_late() -> None:
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel()
    client = kernel.client()
    client.start_channels()
    page = zmq.Context().socket(zmq.SUB)
    try:
        client.wait_for_ready(timeout=120)
        page.setsockopt(zmq.RCVHWM, 1)
        page.setsockopt(zmq.SUBSCRIBE, b"")
        page.connect(f"tcp://{client.ip}:{client.iopub_port}")
        while not page.poll(500):
            client.kernel_info()
        request = client.execute(SEND)
        while client.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != request:
            pass
        seen = 0
        while seen < SENT and page.poll(5_000):
            seen += b'"display_data"' in b"".join(page.recv_multipart())
        assert seen == SENT
    finally:
        page.close(linger=0)
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
