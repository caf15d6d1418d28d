"""The local page: who may ask, what is answered, and one visit by a real browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from advisor.errors import InputError
from advisor.plan import Plan
from advisor.report.ui.app import make_app
from advisor.report.ui.form import FIELDS, HERE, command, question
from advisor.report.ui.serve import serve

from .browser import CONTRAST, THEMES, WIDTHS, audit, overflow, requests, show

TOKEN = "a-token-nobody-guesses"


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(make_app(TOKEN), base_url="http://127.0.0.1:8123")


def _asked(model: Path) -> dict[str, str]:
    return {
        "token": TOKEN, "model": str(model), "task": "inference", "hardware": "rtx4090-x2", "quantization": "none",
        "strategy": "device_map", "seq_len": "256", "gpu_memory": "860MiB",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/plan.json"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], f"{TOKEN}x", "tökén"])
def test_without_the_token_nothing_is_answered(client: TestClient, path: str, token: str | None) -> None:
    answer = client.get(path, params={} if token is None else {"token": token})
    assert answer.status_code == 403
    assert "form" not in answer.text and TOKEN not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_machine_is_refused(client: TestClient, host: str) -> None:
    """DNS rebinding: a page elsewhere lets its own name point here; the browser then sends that name."""
    answer = client.get("/", params={"token": TOKEN}, headers={"host": host})
    assert answer.status_code == 400
    assert TOKEN not in answer.text


def test_the_form_alone(client: TestClient) -> None:
    answer = client.get("/", params={"token": TOKEN})
    assert answer.status_code == 200
    for field in FIELDS:
        assert f'name="{field.name}"' in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_only_reading_is_offered(client: TestClient) -> None:
    assert client.post("/", params={"token": TOKEN}).status_code == 405
    assert client.get("/../etc/passwd", params={"token": TOKEN}).status_code == 404


def test_the_answer_is_the_command_lines(client: TestClient, tiny_model: Path, mapped: Any) -> None:
    answer = client.get("/", params=_asked(tiny_model))
    assert answer.status_code == 200
    assert mapped.decision.sentence.split(":")[0] in answer.text
    assert "--strategy device_map" in answer.text
    kept = client.get("/plan.json", params=_asked(tiny_model))
    assert "attachment" in kept.headers["content-disposition"]
    plan = Plan.model_validate(json.loads(kept.text))
    assert plan.main.promise == mapped.plan.main.promise and plan.trace == mapped.plan.trace


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("seq_len", "many", "--seq-len"), ("seq_len", "-3", "--seq-len"), ("gpu_memory", "24", "--gpu-memory"),
        ("model", "no/such-model-at-all", "no/such-model-at-all"), ("strategy", "magic", "--strategy"),
        ("model", "<script>window.taken=1</script>", "&lt;script&gt;"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_on_the_command_line(
    client: TestClient, tiny_model: Path, field: str, value: str, said: str
) -> None:
    answer = client.get("/", params=_asked(tiny_model) | {field: value})
    assert answer.status_code == 400
    assert "That cannot be answered" in answer.text and said in answer.text
    assert "<script>window" not in answer.text
    assert client.get("/plan.json", params=_asked(tiny_model) | {field: value}).status_code == 400


def test_a_question_without_an_answer(client: TestClient, tiny_model: Path) -> None:
    asked = _asked(tiny_model) | {"gpu_memory": "200MiB", "strategy": "as needed", "host_memory": "100MiB"}
    answer = client.get("/", params=asked)
    assert answer.status_code == 200 and "Nearest ways out" in answer.text
    assert client.get("/plan.json", params=asked).status_code == 404


def test_the_command_asks_the_same_question(tiny_model: Path) -> None:
    import shlex

    from typer.main import get_command

    from advisor.cli import app

    typed = {
        "model": str(tiny_model), "task": "finetune", "hardware": "h200-x8", "method": "lora", "batch_size": "2",
        "gradient_checkpointing": "no", "gpu_memory": "20 GiB", "attention": "as needed", "download": "",
    }  # fmt: skip
    words = shlex.split(command(typed))
    assert words[:2] == ["advisor", "recommend"]
    recommend: Any = get_command(app).commands["recommend"]  # type: ignore[attr-defined]
    flags = recommend.make_context("recommend", words[2:]).params
    asked = question(typed)
    assert flags["model"] == str(tiny_model) and flags["hardware"] == "h200-x8"
    assert flags["gradient_checkpointing"] is False is asked.workload.gradient_checkpointing
    assert flags["batch_size"] == 2 == asked.workload.micro_batch_size
    assert flags["gpu_memory"] == "20 GiB" and asked.machine.gpu_memory_limit == 20 << 30
    assert flags["attention"] is None is asked.workload.attention
    assert HERE not in words


def test_every_field_is_a_flag_of_recommend() -> None:
    from typer.main import get_command

    from advisor.cli import app

    recommend: Any = get_command(app).commands["recommend"]  # type: ignore[attr-defined]
    flags = {flag for parameter in recommend.params for flag in parameter.opts}
    assert {field.flag for field in FIELDS} <= flags


def test_a_port_that_is_taken_is_said() -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        with pytest.raises(InputError, match="--port"):
            serve(busy.getsockname()[1], lambda address: None)
    with pytest.raises(InputError, match="0 to 65535"):
        serve(70000, lambda address: None)


@pytest.fixture(scope="module")
def running() -> Any:
    command = [sys.executable, "-m", "advisor", "ui", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        if process.poll() is None:
            process.kill()


def test_a_browser_asks_and_ctrl_c_ends_it(driver: Any, running: Any, tiny_model: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait

    process, address = running
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1" and len(parse_qs(parts.query)["token"][0]) >= 32
    for width in WIDTHS.values():
        for theme in THEMES:
            show(driver, address, width, theme)
            assert overflow(driver) == 0
            assert driver.execute_script(CONTRAST)[0][0] >= 4.5
            assert audit(driver) == []
    assert driver.switch_to.active_element.get_attribute("name") == "model"
    driver.find_element(By.NAME, "model").send_keys(str(tiny_model))
    Select(driver.find_element(By.NAME, "hardware")).select_by_visible_text("rtx4090-x2")
    driver.find_element(By.NAME, "seq_len").send_keys("256")
    driver.find_element(By.CSS_SELECTOR, ".ask-form summary").click()
    driver.find_element(By.NAME, "gpu_memory").send_keys("860MiB")
    Select(driver.find_element(By.NAME, "quantization")).select_by_visible_text("none")
    Select(driver.find_element(By.NAME, "strategy")).select_by_visible_text("device_map")
    driver.find_element(By.NAME, "seq_len").send_keys(Keys.ENTER)
    WebDriverWait(driver, 90).until(lambda d: d.find_elements(By.ID, "decision"))
    assert "device_map" in driver.find_element(By.ID, "decision").text
    assert overflow(driver) == 0
    assert driver.find_element(By.NAME, "seq_len").get_attribute("value") == "256"
    assert all(urlsplit(url).netloc == parts.netloc for url in requests(driver))
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and parse_qs(parts.query)["token"][0] not in errors


@pytest.mark.skipif(os.name == "nt", reason="reads /proc")
def test_nobody_else_reaches_the_port() -> None:
    """The socket is bound to the loopback address alone."""
    from advisor.report.ui.serve import _listen

    with _listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
