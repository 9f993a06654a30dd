"""The pictures of README and docs, taken anew from one story: `make pictures` writes docs/images.

A shop sells in two regions, `eu` and `us`: orders and payments, 200 records a second. A mirror brings both to `central`. The centre
is away for half a minute, and the mirror catches up. The pictures are of the console's page, at the width of a laptop.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from mirrorlake.sandbox import KafkaCluster
from tests.servers.lab import FLAGS, chromium
from tests.servers.page import console_page

IMAGES = Path(__file__).parents[1] / "docs" / "images" / "story"
TOPICS = {"orders": 6, "payments.card": 3, "payments.invoice": 3}
RATE = 100  # records a second in each region
BEFORE_S, AWAY_S, AFTER_S = 60, 30, 40
SIZE = {"width": 1280, "height": 800}
_MOST_BYTES = 2_000_000
_ITEMS = ("lamp", "chair", "desk", "shelf")
_OPEN_MS = 120_000


def main() -> None:
    """Play the story, and take the pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "shop"
        (folder / "conf").mkdir(parents=True)
        os.chdir(folder)
        clusters = {alias: stack.enter_context(KafkaCluster(alias)) for alias in ("eu", "us", "central")}
        for alias in ("eu", "us"):
            stack.enter_context(shop(alias, clusters[alias].bootstrap_servers))
        conf = folder / "conf" / "shop.yml"
        conf.write_text(settings(clusters))
        call("apply", "--conf", "conf/shop.yml")
        stack.enter_context(running("run", "--conf", "conf/shop.yml"))
        page = stack.enter_context(console_page(conf, folder / "page.log"))
        page.wait_ready()
        window = stack.enter_context(browser())
        window.goto(page.link)
        expect(window.get_by_text("eu->central").locator("visible=true").first).to_be_visible(timeout=_OPEN_MS)
        film = [frame(window)]
        time.sleep(BEFORE_S)
        film += frames(window, 10)
        clusters["central"].stop()
        film += frames(window, AWAY_S)
        clusters["central"].restart()
        film += frames(window, AFTER_S)
        shoot(window, "3-status")
        animate(film)
        for name, link, shown in (
            ("1-topics", "topic/eu/orders", "orders"),
            ("2-events", "events", "cluster away"),
            ("5-groups", f"group/{quote('eu->central', safe='')}/billing", "billing"),
            # What stands there once the record was found on all sides.
            ("4-passport", "passport/eu/orders/1/500", r"\+[\d,.]+ m?s"),
        ):
            window.goto(page.link_to(link))
            found = window.get_by_text(re.compile(shown)).locator("visible=true").first
            expect(found).to_be_visible(timeout=_OPEN_MS)
            if name == "2-events":
                window.locator(".ml-events-since select").select_option(label="1 h")
            found.evaluate("one => one.scrollIntoView({block: 'end'})")
            # Charts and counts come a little later.
            time.sleep(6)
            shoot(window, name)


def settings(clusters: dict[str, KafkaCluster]) -> str:
    """Return the settings file of the shop's mirror."""
    lines = [f"  {alias}: {{bootstrap_servers: '{one.bootstrap_servers}'}}" for alias, one in clusters.items()]
    return f"""\
lake: {{root: ../lake}}
clusters:
{chr(10).join(lines)}
sampling: {{every: 5s}}
flows:
  - {{source: eu, target: central, topics: "orders, payments.*", objectives: {{rpo: 1m}}}}
  - {{source: us, target: central, topics: "orders, payments.*", objectives: {{rpo: 1m}}}}
"""


@contextmanager
def shop(region: str, address: str) -> Iterator[None]:
    """Sell in a region until the end, and let billing read it."""
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in TOPICS.items()])
    for each in made.values():
        each.result()
    closed = threading.Event()
    threads = [threading.Thread(target=work, args=(region, address, closed)) for work in (_sell, _bill)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        closed.set()
        for thread in threads:
            thread.join()


def _sell(region: str, address: str, closed: threading.Event) -> None:
    rng, producer, number = random.Random(region), Producer({"bootstrap.servers": address, "linger.ms": 20}), 0
    while not closed.wait(0.1):
        for _ in range(RATE // 10):
            number += 1
            customer = f"customer-{int(400 * rng.random() ** 2)}"
            topic = rng.choices(list(TOPICS), (6, 3, 1))[0]
            sale = {
                "order": f"{region}-{number:06}",
                "customer": {"id": customer, "country": region.upper()},
                "amount": round(rng.uniform(5, 300), 2),
                "lines": [{"item": rng.choice(_ITEMS), "pieces": rng.randint(1, 4)}],
            }
            headers = {"trace": f"{rng.getrandbits(64):016x}", "source": "checkout"}
            producer.produce(topic, json.dumps(sale), customer, headers=headers)
        producer.poll(0)
    producer.flush(10)


def _bill(_region: str, address: str, closed: threading.Event) -> None:
    reader = Consumer({"bootstrap.servers": address, "group.id": "billing", "enable.auto.commit": False})
    reader.assign([TopicPartition("orders", partition, 0) for partition in range(TOPICS["orders"])])
    while not closed.is_set():
        if reader.consume(500, timeout=1.0):
            reader.commit(asynchronous=False)
    reader.close()


def call(*arguments: str) -> None:
    """Run a command to its end."""
    subprocess.run([sys.executable, "-m", "mirrorlake", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def running(*arguments: str) -> Iterator[None]:
    """Run a command until the end."""
    process = subprocess.Popen([sys.executable, "-m", "mirrorlake", *arguments], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser() -> Iterator[Page]:
    """Open a window of a headless browser."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield opened.new_page(viewport=SIZE, device_scale_factor=1)  # type: ignore[arg-type]
        opened.close()


def shoot(window: Page, name: str) -> None:
    """Take a picture with few colours, which is a third of the bytes."""
    picture = Image.open(BytesIO(window.screenshot()))
    picture.convert("RGB").quantize(128).save(IMAGES / f"{name}.png", optimize=True)


def frame(window: Page) -> Image.Image:
    """Take a picture of the film, at half the size."""
    picture = Image.open(BytesIO(window.screenshot())).convert("RGB")
    return picture.resize((SIZE["width"] * 5 // 8, SIZE["height"] * 5 // 8), Image.Resampling.LANCZOS)


def frames(window: Page, seconds: float) -> list[Image.Image]:
    """Take a picture every two seconds; the mouse moves, since a page that nobody touches asks less often."""
    taken, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        window.mouse.move(600 + len(taken) % 2, 20)
        taken.append(frame(window))
        time.sleep(2)
    return taken


def animate(film: list[Image.Image]) -> None:
    """Write the film as a GIF of at most 2 MB."""
    path = IMAGES / "outage.gif"
    for colours in (96, 48, 24):
        first, *others = (picture.quantize(colours) for picture in film)
        first.save(path, save_all=True, append_images=others, duration=250, loop=0, optimize=True)
        if path.stat().st_size <= _MOST_BYTES:
            return
    raise SystemExit(f"{path} has {path.stat().st_size} bytes, and may have {_MOST_BYTES}; next: fewer frames")


if __name__ == "__main__":
    main()
