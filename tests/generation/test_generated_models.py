"""Shapes of models: parameters as published, and other models from a config.json."""

import json

import pytest

from studio.errors import ConfigError
from studio.generation.configs import read_config
from studio.generation.models import MODELS, find_model
from studio.generation.transformer import count_active_parameters, count_parameters
from studio.generation.workload import build_workload


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
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("mixtral-8x7b", 46_702_792_704),
        ("mixtral-8x22b", 140_620_634_112),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("deepseek-v2", 235_741_434_880),
        ("deepseek-v3", 671_026_419_200),
        ("gemma-7b", 8_537_680_896),
        ("gemma2-9b", 9_241_705_984),
        ("gemma2-27b", 27_227_128_320),
        ("gemma3-27b", 27_009_346_304),
    ],
)
def test_parameters_are_those_of_the_published_weights(name, count):
    """As the model hub counts the tensors of the weights (`safetensors.total`); of DeepSeek V3 and Gemma 3 those of the part that is modelled."""
    assert count_parameters(find_model(name)) == count


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39),
        ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22),
        ("deepseek-v2", 21),
        ("deepseek-v3", 37),
    ],
)
def test_active_parameters_are_those_of_the_reports(name, billions):
    """To the digits that the reports give; Qwen 3 and DeepSeek cut theirs off."""
    assert count_active_parameters(find_model(name)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_gpt_has_the_parameters_of_megatrons_formula():
    """Narayanan et al., equation 2: 12lh² (1 + 13/12h + (V + s)/12lh), to which the last norm adds 2h."""
    for name in ("gpt3-125m", "gpt3-13b", "gpt3-175b"):
        gpt = find_model(name)
        layers, hidden = gpt.layers, gpt.hidden
        formula = 12 * layers * hidden**2 + 13 * layers * hidden + (gpt.vocabulary + gpt.positions) * hidden
        assert count_parameters(gpt) == formula + 2 * hidden
    assert round(count_parameters(find_model("gpt3-175b")) / 1e9) == 175


def test_gpt_3_has_the_parameters_of_its_table():
    """Brown et al., 2020, table 2.1; they round what they give, and 13B has a width there that its heads do not fill."""
    published = {
        "125m": 125e6,
        "350m": 350e6,
        "760m": 760e6,
        "1.3b": 1.3e9,
        "2.7b": 2.7e9,
        "6.7b": 6.7e9,
        "13b": 13e9,
        "175b": 175e9,
    }
    assert {f"gpt3-{size}" for size in published} == {name for name in MODELS if name.startswith("gpt3")}
    for size, count in published.items():
        assert count_parameters(find_model(f"gpt3-{size}")) == pytest.approx(count, rel=0.02)


def test_every_preset_has_about_the_size_that_its_name_says():
    for name, model in MODELS.items():
        assert model.source
        if model.experts:
            continue
        said = float(name.rpartition("-")[2][:-1]) * (1e6 if name.endswith("m") else 1e9)
        # "8B" may be 8.2 and "7B" of Gemma 8.5.
        assert 0.85 < count_parameters(model) / said < 1.22, name


# What matters of the published files.
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 4096, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "attention_bias": False, "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 4096, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "topk_method": "noaux_tc", "vocab_size": 129280,
}  # fmt: skip
GEMMA2 = {
    "model_type": "gemma2", "attention_bias": False, "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
    "sliding_window": 4096, "vocab_size": 256000,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        "sliding_window": 1024, "sliding_window_pattern": 6,
    },
}  # fmt: skip


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
        ("mixtral-8x7b", MIXTRAL),
        ("qwen3-30b-a3b", QWEN3_MOE),
        ("deepseek-v3", DEEPSEEK),
        ("gemma2-9b", GEMMA2),
        ("gemma3-27b", GEMMA3),
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
    model = find_model(preset)
    assert count_parameters(read) == count_parameters(model)
    assert read.sequence == model.sequence
    told = "experts", "experts_per_token", "window", "full_every", "kv_rank", "post_norms", "tied"
    assert [getattr(read, key) for key in told] == [getattr(model, key) for key in told]


def test_a_config_without_preset_has_the_parameters_of_its_weights(tmp_path):
    """Phi-3 mini, and Qwen 1.5 with experts (14.3 B, 2.7 B of a token), by what matters of their files."""
    phi = {
        "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "sliding_window": 2047, "vocab_size": 32064,
        "max_position_embeddings": 4096, "attention_bias": False,
    }  # fmt: skip
    qwen = {
        "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632,
        "max_position_embeddings": 8192, "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_experts": 60,
        "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "sliding_window": 32768,
        "shared_expert_intermediate_size": 5632, "use_sliding_window": False, "vocab_size": 151936,
    }  # fmt: skip
    path = tmp_path / "config.json"
    counts = []
    for config in (phi, qwen):
        path.write_text(json.dumps(config))
        counts.append(count_parameters(read_config(path)))
    assert counts == [3_821_079_552, 14_315_784_192]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "no table"),
        ("{", "not JSON"),
        ('{"model_type": "t5"}', "'t5'"),
        ('{"model_type": "llama", "num_experts": 8}', "experts"),
        ('{"model_type": "qwen3_moe", "decoder_sparse_step": 2}', "decoder_sparse_step is 2"),
        (
            '{"model_type": "gemma2", "layer_types": ["full_attention", "x", "x", "full_attention", "x"]}',
            "every n-th",
        ),
        ('{"model_type": "llama", "num_attention_heads": 4, "hidden_size": "x"}', "hidden_size is x"),
        ('{"model_type": "gpt2", "n_embd": 10, "n_head": 3}', "3 heads"),
        ("{}", "model_type is missing"),
        ('{"model_type": "llama", "num_attention_heads": 4}', "hidden_size is missing"),
        ('{"model_type": "llama", "num_attention_heads": 4, "hidden_size": -8}', "hidden_size is -8"),
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


@pytest.mark.parametrize(
    ("numbers", "said"), [((100_000, 65_536), "activations"), ((1_000_000, 1_000_000), "weights")]
)
def test_models_whose_bytes_no_number_holds_are_refused(numbers: tuple[int, int], said: str) -> None:
    layers, hidden = numbers
    with pytest.raises(ConfigError, match=f"the {said} .* take .* EiB; allowed: 4 EiB at most"):
        build_workload("custom", 8, {"layers": layers, "hidden": hidden, "heads": 64, "sequence": 1_000_000})
