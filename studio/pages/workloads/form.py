"""The form of the Workloads page, made of the table of options, and what its texts say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from studio.generation.families.presets import NETWORKS, find_network
from studio.generation.models import MODELS
from studio.generation.options import BATCH, LAYOUT, MODEL, Option
from studio.generation.transformer import count_parameters
from studio.generation.workload import CUSTOM
from studio.operators.roofline import find_peak
from studio.pages.base.fold import Fold
from studio.pages.base.widgets import build_aria_label, build_hint
from studio.pages.workloads.texts import (
    FIELDS,
    OPTIONS_OF,
    STEP,
    Fields,
    get_label,
    infer_kind,
    lower_label,
    replace_options,
    spell,
)
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpus import SYSTEM_OF
from studio.units import format_count

_DEBOUNCE_MS = 120
FILE = "file"
"""The choice of the model that a config.json describes."""
_ABOVE = ("model", "kind", "ranks", "gpu")
_JOBS = [{"value": "inference", "label": "steps of inference"}]
_FAMILIES = {"vit": "Vision transformers", "resnet": "ResNet", "dlrm": "Recommendation"}
_OPEN = (STEP, LAYOUT, BATCH)
_COMMON = (
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "sequence_parallel",
    "schedule",
    "batch",
    "micro_batch",
    "sequence",
    "steps",
)
"""Options under open headings that are not folded."""
_TAKES_DROPS: dict[str, Any] = {
    "data-takes-drops": "Drop a config.json to take the model that it describes",
    "data-upload-name": "A config.json",
}
_CHOICES: Mapping[str, Sequence[tuple[str, str]]] = {
    "switch": (("on", "on"), ("off", "off")),
    "flag": (("on", "yes"),),
}
_ABOUT = {
    "model": "A published model, custom for numbers of your own, or a config.json in the form of Hugging Face.",
    "kind": "Training, unless it is steps of inference.",
    "ranks": "GPUs of the job: a process each.",
    "gpu": "Its machines are the preset that the job is simulated on, and its memory is what the job has to fit. Compute "
    "nodes get its durations, which they keep on other systems, but where both efficiencies are 1.",
}
_MEANINGS = {"zero": {"0": "nothing", "1": "optimizer", "2": "and gradients", "3": "all (FSDP)"}}
"""What choices mean that are numbers."""


def build_control_id(key: str) -> dict[str, str]:
    """Return the id of the field of an option."""
    return {"workload": key}


def build_message_id(key: str) -> dict[str, str]:
    """Return the id of the place below a field for what is wrong with it."""
    return {"workload-said": key}


def _choose_section(option: Option) -> str:
    """Return the heading of an option on the form: those of open headings that few jobs need are folded."""
    is_common = option.heading not in (LAYOUT, BATCH) or option.key in _COMMON
    return option.heading if is_common else f"More of {option.heading.lower()}"


FOLDED = tuple(
    dict.fromkeys(name for name in map(_choose_section, FIELDS.values()) if name not in (MODEL, *_OPEN))
)
"""The headings that are folded."""


def build_form(fields: Fields) -> Any:
    """Return the form with these texts in its fields; where they are the first ones, what the tab has kept of earlier ones."""
    kind = _build_select("kind", fields, _JOBS, clearable=True)
    controls = {
        "model": _build_model_field(fields),
        "kind": kind,
        "ranks": _build_text_field("ranks", fields),
        "gpu": _build_gpu_field(fields),
    }
    controls |= {key: _build_control(option, fields) for key, option in FIELDS.items() if key not in _ABOVE}
    for control in controls.values():
        # An address that says something is not overridden by what was kept.
        control.persistence, control.persistence_type = spell(fields) or True, "session"
    first = [_build_field(key, _ABOUT[key], controls[key]) for key in _ABOVE]
    parts: list[Any] = [
        html.Div([first[0], _build_drop(), *first[1:]], className=f"wl-group {_build_kind_classes(*_ABOVE)}")
    ]
    for heading in (MODEL, *_OPEN, *FOLDED):
        keys = _list_keys(heading)
        rows = [
            html.H2(heading),
            *(_build_field(key, _describe_option(FIELDS[key]), controls[key]) for key in keys),
        ]
        group = f"wl-group {_build_kind_classes(*keys)}"
        if heading == MODEL:
            hidden = fields["model"] != CUSTOM
            parts.append(html.Div(rows, id="workload-shape", hidden=hidden, className=group))
        elif heading in _OPEN:
            parts.append(html.Div(rows, className=group))
        else:
            line = html.Summary([rows[0], html.Span(id={"workload-set": heading}, className="cs-dim")])
            is_open = any(fields.get(key) for key in keys)
            parts.append(Fold([line, *rows[1:]], f"{group} wl-fold", is_open=is_open))
    return html.Div(parts, id="workload-form", className=build_form_class(fields))


def build_form_class(fields: Fields) -> str:
    """Return the class of the form, which shows the fields of the kind of job alone."""
    return f"wl-form wl-kind-{infer_kind(fields)}"


def _build_kind_classes(*keys: str) -> str:
    """Return the classes of what some fields are in: the kinds of jobs that have one of them."""
    shared = any(key in ("model", "ranks", "gpu") for key in keys)
    return " ".join(
        f"wl-of-{kind}"
        for kind, known in OPTIONS_OF.items()
        if shared or known & set(keys) or ("kind" in keys and kind != "network")
    )


def _list_keys(heading: str) -> list[str]:
    return [key for key, option in FIELDS.items() if _choose_section(option) == heading and key not in _ABOVE]


def describe_set_fields(heading: str, fields: Fields) -> str:
    """Say what is set under a heading, for its fold.

    Example:
        >>> describe_set_fields("Sharding and memory", {"model": "llama3-8b", "zero": "3"})
        'sharding 3'
    """
    known = OPTIONS_OF[infer_kind(fields)]
    keys = [key for key in _list_keys(heading) if fields.get(key) and key in known]
    return ", ".join(f"{lower_label(get_label(key))} {fields[key]}" for key in keys)


def _describe_option(option: Option) -> str:
    return replace_options(
        f"{option.hint} Where nothing is said: {option.rule}." if option.rule else option.hint
    )


def _build_field(key: str, about: str, control: Any) -> Any:
    label = get_label(key)
    named = html.Span([label, build_hint(label, about)], className="wl-label")
    message = html.Div(id=build_message_id(key), className="wl-said", role="alert")
    row = f"wl-row{' wl-wide' if key in _ABOVE else ''}"
    return html.Div(
        [html.Div([named, control], className=row), message], className=f"wl-field {_build_kind_classes(key)}"
    )


def _build_control(option: Option, fields: Fields) -> Any:
    choices = list_option_choices(option)
    return (
        _build_select(option.key, fields, choices, clearable=True)
        if choices
        else _build_text_field(option.key, fields)
    )


def list_option_choices(option: Option) -> list[dict[str, str]]:
    """Return what a field may be set to, as values and labels; empty where it is a text."""
    if option.kind == "choice":
        meanings = _MEANINGS.get(option.key, {})
        texts = [str(choice) for choice in option.choices]
        return [
            {"value": text, "label": f"{text} · {meanings[text]}" if text in meanings else text}
            for text in texts
        ]
    return [{"value": value, "label": label} for value, label in _CHOICES.get(option.kind, ())]


def _build_text_field(key: str, fields: Fields) -> Any:
    return dmc.TextInput(
        id=build_control_id(key),
        value=fields.get(key, ""),
        size="xs",
        debounce=_DEBOUNCE_MS,
        className="wl-control",
        **build_aria_label(get_label(key)),
    )


def _build_select(key: str, fields: Fields, data: Any, **more: Any) -> Any:
    return dmc.Select(
        id=build_control_id(key),
        data=data,
        value=fields.get(key) or None,
        size="xs",
        className="wl-control",
        comboboxProps={"shadow": "sm"},
        **more,
        **build_aria_label(get_label(key)),
    )


def _build_model_field(fields: Fields) -> Any:
    none = {"nothingFoundMessage": "No such model", "maxDropdownHeight": 380}
    return _build_select("model", fields, list_model_choices(), searchable=True, allowDeselect=False, **none)


def _build_gpu_field(fields: Fields) -> Any:
    more = {"searchable": True, "clearable": True, "nothingFoundMessage": "No such GPU"}
    return _build_select("gpu", fields, list_gpu_choices(), **more)


def _build_drop() -> Any:
    drop = dcc.Upload(
        html.Button("Drop a config.json, or choose it", className="cs-button-quiet", type="button"),
        id="workload-upload",
        max_size=1 << 20,
        multiple=False,
    )
    return html.Div(drop, className="wl-row wl-file", **_TAKES_DROPS)


@cache
def list_gpu_choices() -> list[dict[str, str]]:
    """Return the GPUs that can be chosen: those with a peak for the data type of generated jobs."""
    choices = []
    for name, system in SYSTEM_OF.items():
        gpu = SYSTEMS[system].gpu
        if gpu is not None and find_peak(gpu, "bf16") is not None:
            choices.append({"value": name, "label": f"{name} · {gpu.memory_gbytes:g} GB"})
    return choices


@cache
def _list_presets() -> list[dict[str, Any]]:
    families: dict[str, list[dict[str, str]]] = {}
    for name, model in MODELS.items():
        choice = {"value": name, "label": f"{name} · {describe_size(count_parameters(model))}"}
        families.setdefault(parse_family(name), []).append(choice)
    return [{"group": family, "items": items} for family, items in families.items()]


def list_model_choices(file: str = "") -> list[dict[str, Any]]:
    """Return the models that can be chosen, by family; `file` is what is to be said of a config.json that is there."""
    own = [{"value": CUSTOM, "label": "custom · numbers of your own"}]
    if file:
        own.insert(0, {"value": FILE, "label": file})
    return [{"group": "Your own", "items": own}, *_list_presets(), *_list_networks()]


@cache
def _list_networks() -> list[dict[str, Any]]:
    return [
        {
            "group": _FAMILIES[family],
            "items": [
                {"value": name, "label": f"{name} · {describe_size(find_network(name).parameters)}"}
                for name in named
            ],
        }
        for family, named in NETWORKS.items()
    ]


def parse_family(name: str) -> str:
    """Return the family of a model by its name.

    Example:
        >>> [parse_family(name) for name in ("llama3.1-8b", "gpt3-175b", "mistral-7b", "qwen2.5-7b")]
        ['Llama 3.1', 'GPT-3', 'Mistral', 'Qwen 2.5']
    """
    match = re.match(r"([a-z]+)([\d.]*)", name)
    if match is None:
        return name
    word, version = match[1], match[2]
    if word == "gpt":
        return f"GPT-{version}" if version else "GPT"
    called = {"deepseek": "DeepSeek"}.get(word, word.capitalize())
    return f"{called} {version}".strip()


def describe_size(count: int) -> str:
    """Return a number of parameters in words.

    Example:
        >>> describe_size(8_030_261_248), describe_size(124_439_808), describe_size(1_010_000_000_000)
        ('8.03 billion', '124 million', '1.01 trillion')
    """
    for word, unit in (("trillion", 10**12), ("billion", 10**9), ("million", 10**6)):
        if count >= unit:
            size = count / unit
            return (
                f"{size:.2f} {word}"
                if size < 9.995
                else f"{size:.1f} {word}"
                if size < 99.95
                else f"{size:,.0f} {word}"
            )
    return format_count(count)
