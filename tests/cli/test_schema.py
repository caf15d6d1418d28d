"""The published JSON Schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from advisor.cli.schema import KINDS, schema_of
from advisor.errors import InputError
from advisor.hardware.load import load_profile

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schema_is_current(kind: str) -> None:
    """Renew with ``advisor schema KIND > docs/schemas/KIND.json``."""
    published = json.loads((PUBLISHED / f"{kind}.json").read_text(encoding="utf-8"))
    assert published == schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(published)


def test_a_profile_keeps_its_schema() -> None:
    jsonschema.validate(load_profile("h200-x8").model_dump(mode="json"), schema_of("profile"))
    with pytest.raises(jsonschema.ValidationError, match="'name' is a required property"):
        jsonschema.validate({"gpus": []}, schema_of("profile"))


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InputError, match="found 'plans'; expected one of plan, result, profile, record"):
        schema_of("plans")


def test_printing_a_schema_loads_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['advisor', 'schema', 'plan']\n"
        "from advisor.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["title"] == "Plan"
