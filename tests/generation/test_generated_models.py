"""Shapes of models: parameters as published, and other models from a config.json."""

import json

import pytest

from studio.errors import ConfigError
from studio.generation.configs import read_config
from studio.generation.models import MODELS, find_model
from studio.generation.transformer import parameters


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-8b", 8_190_735_360),
    ],
)
def test_parameters_are_those_of_the_published_weights(name, count):
    assert parameters(find_model(name)) == count


def test_gpt_has_the_parameters_of_megatrons_formula():
    """Narayanan et al., equation 2: 12lh² (1 + 13/12h + (V + s)/12lh), to which the last norm adds 2h."""
    for name in ("gpt3-125m", "gpt3-13b", "gpt3-175b"):
        gpt = find_model(name)
        layers, hidden = gpt.layers, gpt.hidden
        formula = 12 * layers * hidden**2 + 13 * layers * hidden + (gpt.vocabulary + gpt.positions) * hidden
        assert parameters(gpt) == formula + 2 * hidden
    assert round(parameters(find_model("gpt3-175b")) / 1e9) == 175


def test_every_preset_has_about_the_size_that_its_name_says():
    for name, model in MODELS.items():
        said = float(name.rpartition("-")[2][:-1]) * (1e6 if name.endswith("m") else 1e9)
        # "8B" may be 8.2 and "7B" of Qwen 7.6.
        assert 0.85 < parameters(model) / said < 1.13, name
        assert model.source


@pytest.mark.parametrize(
    ("preset", "config"),
    [
        (
            "llama3-8b",
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "max_position_embeddings": 8192,
            },
        ),
        (
            "gpt3-125m",
            {
                "model_type": "gpt2",
                "n_embd": 768,
                "n_head": 12,
                "n_layer": 12,
                "n_positions": 2048,
                "vocab_size": 50257,
                "n_inner": None,
            },
        ),
    ],
)
def test_a_config_file_describes_the_same_model(tmp_path, preset, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    read = read_config(path)
    assert parameters(read) == parameters(find_model(preset))
    assert read.sequence == find_model(preset).sequence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "no table"),
        ("{", "not JSON"),
        ('{"model_type": "t5"}', "'t5'"),
        ('{"model_type": "llama", "num_experts": 8}', "experts"),
        ('{"model_type": "llama", "num_attention_heads": 4, "hidden_size": "x"}', "hidden_size is x"),
        ('{"model_type": "gpt2", "n_embd": 10, "n_head": 3}', "3 heads"),
    ],
)
def test_a_config_of_another_kind_is_refused(tmp_path, content, said):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_config(path)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ConfigError) as caught:
        find_model("llama3-7b")
    assert "llama3-70b" in caught.value.hint or "llama3-8b" in caught.value.hint
