from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import ConfigError
from studio.et import write as write_trace
from studio.sim.astra import (
    MOST_COMPILED_LEVELS,
    Files,
    _bound_levels,
    from_parts,
    load,
    parse_options,
    read,
    read_config,
    write_config,
)
from studio.sim.config import (
    Algorithm,
    Dimension,
    RemoteMemory,
    Roofline,
    SharedBus,
    SystemConfig,
    Topology,
)
from studio.sim.network import convert_to_gb_per_s
from studio.sim.parts import Parts, build_parts, interpret
from studio.sim.setting_edits import with_settings
from studio.trace import CommGroup
from tests.conftest import ROOT
from tests.examples import examples
from tests.handmade import node, trace_of

NETWORK = {
    "topology": ["Ring", "Switch"],
    "npus_count": [2, 4],
    "bandwidth": [200, 50],
    "latency": [50, 500.5],
}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "localBWAware",
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct4"],
}

SIZES = st.integers(2, 32)
WHOLE = st.integers(1, 1000)
GB_PER_S = st.sampled_from([50.0, 741.34, 3.125, 46.566]) | st.floats(1e-3, 1e6)
TIMES = st.integers(0, 10**6).map(float) | st.floats(0, 1e6)
RATES = st.floats(1e-3, 1e6)
ALGORITHMS = st.sampled_from(
    ["ring", "direct", "direct1", "direct16", "halvingDoubling", "doubleBinaryTree", "oneRing", "oneDirect3"]
).map(Algorithm.parse)


@st.composite
def configs(draw):
    """Every configuration that ASTRA-sim's files can say."""
    congestion = draw(st.sampled_from(["aware", "unaware"]))
    kinds = st.sampled_from(["ring", "fully_connected", "switch"])
    count = 1 if congestion == "aware" else draw(st.integers(1, 3))
    dims = []
    for _ in range(count):
        kind = draw(kinds)
        size = draw(st.integers(3 if kind == "ring" else 2, 12))
        # Rates that files can hold: GB/s of 2^30 bytes.
        dims.append(Dimension(kind, size, draw(GB_PER_S) * 2**30 / 10**9, draw(TIMES)))
    topology = Topology(tuple(dims))
    listed = st.lists(ALGORITHMS, min_size=1, max_size=count).map(tuple)
    members = st.lists(st.integers(0, topology.npus - 1), min_size=1, max_size=8, unique=True).map(tuple)
    names = st.integers(1, 10**6).map(str) | st.sampled_from(["tp0", "Größe", "<b>"])
    groups = st.dictionaries(names, members, max_size=3).map(
        lambda table: tuple(CommGroup(name, ranks) for name, ranks in table.items())
    )
    bus = st.builds(SharedBus, WHOLE, WHOLE, WHOLE, st.floats(0, 1), WHOLE)
    sharing = st.sampled_from(["per_npu", "per_node", "pool"])
    roofline = draw(st.none() | st.builds(Roofline, RATES))
    memory = RATES if roofline else st.just(0.0) | RATES
    return SystemConfig(
        topology=topology,
        congestion=congestion,
        scheduling=draw(st.sampled_from(["lifo", "fifo", "explicit"])),
        collective_optimization=draw(st.sampled_from(["baseline", "local_bw_aware"])),
        algorithms=draw(
            st.dictionaries(
                st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]), listed
            )
        ),
        splits=draw(WHOLE),
        active_chunks=draw(WHOLE),
        queues_per_dimension=draw(WHOLE),
        endpoint_delay_ns=draw(st.none() | TIMES),
        injection_scale=draw(st.sampled_from([1.0, 0.5, 2.0]) | st.floats(0, 10)),
        local_memory_bytes_per_ns=draw(memory),
        roofline=roofline,
        replay_only=draw(st.booleans()),
        rendezvous=draw(st.booleans()),
        remote_memory=draw(st.none() | st.builds(RemoteMemory, sharing, WHOLE, RATES, WHOLE)),
        shared_bus=draw(st.none() | bus),
        groups=draw(st.none() | groups),
    )


@given(configs())
@settings(max_examples=examples(50), deadline=None)
def test_a_written_configuration_is_read_as_the_same_one(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("config")
    again = read(write_config(config, folder))
    assert again.config == config
    assert {finding.code for finding in again.findings} <= {
        "algorithms-short",
        "algorithms-unused",
        "group-name",
        "memory-nodes",
    }


def test_algorithms_given_as_traces_are_written_and_read_too(tmp_path, sample_trace):
    """They are files beside the others, named by prefix."""
    other = trace_of([[node(3, "COMP", micros=5)]])
    topology = from_parts(NETWORK, SYSTEM).topology
    config = SystemConfig(topology, custom={"all_reduce": sample_trace}, custom_nodes={7: other})
    assert read(write_config(config, tmp_path)).config == config


@given(st.floats(1e-9, 1e9))
@settings(deadline=None)
def test_any_rate_is_written_as_near_as_a_double_gets(rate):
    """Where no GB/s gives exactly this rate, the neighbouring double is as near as it gets."""
    again = convert_to_gb_per_s(rate) * 2**30 / 10**9
    assert abs(again - rate) <= rate * 2.3e-16


# ---------------------------------------------------------------------------------------------------
# What the tables mean


def test_a_network_gb_is_2_to_the_30_and_every_other_gb_10_to_the_9():
    config = from_parts(
        {**NETWORK, "bandwidth": [1, 2]},
        {**SYSTEM, "local-mem-bw": 1600, "roofline-enabled": 1, "peak-perf": 312},
        {"memory-type": "MEMORY_POOL", "remote-mem-latency": 20000, "remote-mem-bw": 50},
    )
    assert [dim.bytes_per_ns for dim in config.topology.dims] == [1.073741824, 2.147483648]
    assert config.local_memory_bytes_per_ns == 1600
    assert config.roofline == Roofline(312)
    assert config.remote_memory == RemoteMemory("pool", 20000, 50)


def test_defaults_are_the_references():
    """Section 11: 1 active chunk, endpoint delay 10 that no scale touches, nothing switched on."""
    config = from_parts(NETWORK, SYSTEM, None, {"injection-scale": 3})
    assert (config.active_chunks, config.queues_per_dimension, config.packet_delay_ns) == (1, 1, 10)
    assert (config.local_memory_bytes_per_ns, config.roofline, config.remote_memory) == (0, None, None)
    assert (config.replay_only, config.rendezvous, config.shared_bus, config.groups) == (
        False,
        False,
        None,
        None,
    )


def test_the_injection_scale_touches_only_a_written_endpoint_delay():
    assert (
        from_parts(NETWORK, {**SYSTEM, "endpoint-delay": 37}, None, {"injection-scale": 0.5}).packet_delay_ns
        == 18
    )


def test_no_memory_expansion_is_no_memory():
    assert from_parts(NETWORK, SYSTEM, {"memory-type": "NO_MEMORY_EXPANSION"}).remote_memory is None


def test_options_of_the_command_line_may_be_text():
    config = from_parts(
        NETWORK, SYSTEM, None, parse_options(["--num-queues-per-dim=2", "--rendezvous-protocol", "true"])
    )
    assert config.queues_per_dimension == 2
    assert config.rendezvous


def test_missing_splits_are_one_and_said():
    """The reference dies of them without a word."""
    table = {key: value for key, value in SYSTEM.items() if key != "preferred-dataset-splits"}
    result = interpret(Parts(NETWORK, table))
    assert result.config.splits == 1
    assert [finding.code for finding in result.findings] == ["splits-missing"]


# ---------------------------------------------------------------------------------------------------
# What is not taken

BAD = [
    ("network", "bandwidth", [200, "tbd"], r"network.yml: bandwidth\[1\] is 'tbd'; allowed: a number above 0 and at most 1e\+18, in GiB/s\nA placeholder"),
    ("network", "bandwidth", [200, -50], r"bandwidth\[1\] is -50; allowed: a number above 0 and at most 1e\+18"),
    ("network", "bandwidth", [0, 50], r"bandwidth\[0\] is 0; allowed"),
    ("network", "bandwidth", [200, float("nan")], r"bandwidth\[1\] is nan; allowed"),
    ("network", "bandwidth", [float("inf"), 50], r"bandwidth\[0\] is inf; allowed"),
    ("network", "bandwidth", [200, None], r"bandwidth\[1\] is null; allowed"),
    ("network", "bandwidth", [200], r"bandwidth is \[200\]; allowed: 2 entries, as many as topology has"),
    ("network", "bandwidth", 200, r"bandwidth is 200; allowed: a list with one entry per dimension\nFor one dimension write \[ 200 \]"),
    ("network", "latency", [-1, 500], r"latency\[0\] is -1; allowed: a number at least 0 and at most 1e\+18, in ns"),
    ("network", "npus_count", [1, 4], r"npus_count\[0\] is 1; allowed: a whole number from 2 to 1048576\nLeave a dimension of one"),
    ("network", "npus_count", [2, 2.5], r"npus_count\[1\] is 2.5; allowed"),
    ("network", "npus_count", [2, True], r"npus_count\[1\] is True; allowed"),
    ("network", "topology", ["Ring", "switch"], r"topology\[1\] is 'switch'; allowed: Ring, FullyConnected, Switch\nThe nearest is 'Switch'"),
    ("network", "topology", [], r"topology is \[\]; allowed: a list"),
    ("system", "preferred-dataset-splits", 0, r"system.json: preferred-dataset-splits is 0; allowed: a whole number from 1"),
    ("system", "preferred-dataset-splits", "4", r"preferred-dataset-splits is '4'; allowed"),
    ("system", "scheduling-policy", "Lifo", r"scheduling-policy is 'Lifo'; allowed: LIFO, FIFO, EXPLICIT\nThe nearest is 'LIFO'"),
    ("system", "collective-optimization", "localBwAware", r"The nearest is 'localBWAware'"),
    ("system", "all-reduce-implementation", ["ring", "halvingdoubling"], r"all-reduce-implementation\[1\] is 'halvingdoubling'; allowed: ring, .*\nThe nearest is 'halvingDoubling'"),
    ("system", "all-reduce-implementation", ["direct0", "ring"], r"all-reduce-implementation\[0\] is 'direct0'"),
    ("system", "all-reduce-implementation", ["ring"] * 3, r"all-reduce-implementation is \['ring', .*; allowed: up to 2 entries"),
    ("system", "all-reduce-implementation", "ring_ring", r"all-reduce-implementation is 'ring_ring'; allowed: a list"),
    ("system", "endpoint-delay", -1, r"endpoint-delay is -1; allowed: a number at least 0 and at most 1e\+18"),
    ("system", "active-chunks-per-dimension", 0, r"active-chunks-per-dimension is 0; allowed: a whole number from 1"),
    ("system", "replay-only", "yes", r"replay-only is 'yes'; allowed: true, false, 1, 0"),
    ("system", "roofline-enabled", 1, r"local-mem-bw is 0; allowed: a number above 0 and at most 1e\+18, in GB/s, where roofline-enabled is 1"),
    ("memory", "memory-type", "POOL", r"remote_memory.json: memory-type is 'POOL'; allowed: NO_MEMORY_EXPANSION, .*MEMORY_POOL"),
    ("memory", "remote-mem-bw", 0, r"remote-mem-bw is 0; allowed: a number above 0 and at most 1e\+18"),
    ("memory", "remote-mem-latency", 1.5, r"remote-mem-latency is 1.5; allowed: a whole number"),
    ("options", "num-queues-per-dim", "0", r"command line: num-queues-per-dim is '0'; allowed: a whole number from 1"),
    ("options", "injection-scale", "fast", r"injection-scale is 'fast'; allowed: a number at least 0 and at most 1e\+18"),
    ("options", "rendezvous-protocol", "maybe", r"rendezvous-protocol is 'maybe'; allowed: true, false, 1, 0"),
    ("groups", "1", [0, 8], r"comm_group.json: 1\[1\] is 8; allowed: a whole number from 0 to 7"),
    ("groups", "1", [0, 0], r"comm_group.json: 1 is \[0, 0\]; allowed: every rank once"),
    ("groups", "1", [], r"comm_group.json: 1 is \[\]; allowed: a list of ranks"),
    ("groups", "0", [0, 1], r"comm_group.json: a group is named '0'"),
]  # fmt: skip
MEMORY = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 0, "remote-mem-bw": 1}


@pytest.mark.parametrize(("part", "key", "value", "message"), BAD)
def test_a_refusal_names_file_key_value_and_what_is_allowed(part, key, value, message):
    tables = {"network": NETWORK, "system": SYSTEM, "memory": MEMORY, "options": {}, "groups": {}}
    tables[part] = {**tables[part], key: value}
    with pytest.raises(ConfigError, match=message):
        interpret(Parts(**tables))


def test_a_missing_key_names_the_misspelt_one():
    network = {("npu_count" if key == "npus_count" else key): value for key, value in NETWORK.items()}
    with pytest.raises(
        ConfigError, match=r"npus_count is missing; .*\nIt has 'npu_count'; was 'npus_count' meant"
    ):
        from_parts(network, SYSTEM)


@pytest.mark.parametrize(
    ("table", "key", "code", "words"),
    [
        (
            "system",
            "preferred-dataset-split",
            "key-unknown",
            "nearest known key is 'preferred-dataset-splits'",
        ),
        ("system", "qwertz", "key-unknown", "Known keys: scheduling-policy"),
        ("network", "bandwith", "key-unknown", "nearest known key is 'bandwidth'"),
        ("options", "num-queue-per-dim", "key-unknown", "nearest known key is 'num-queues-per-dim'"),
        ("system", "boost-mode", "key-without-effect", "boost-mode has no effect"),
        ("system", "intra-dimension-scheduling", "key-without-effect", "does not read it"),
        ("options", "comm-scale", "key-without-effect", "does not use it"),
    ],
)
def test_keys_that_change_nothing_are_named(table, key, code, words):
    tables = {"network": NETWORK, "system": SYSTEM, "options": {}}
    tables[table] = {**tables[table], key: 1}
    result = interpret(Parts(**tables))
    assert [finding.code for finding in result.findings] == [code]
    assert words in result.findings[0].message + result.findings[0].hint
    assert result.config == from_parts(NETWORK, SYSTEM)


def test_fewer_algorithms_than_dimensions_are_said():
    """The reference quietly leaves the outer dimensions out."""
    result = interpret(Parts(NETWORK, {**SYSTEM, "all-reduce-implementation": ["ring"]}))
    assert [finding.code for finding in result.findings] == ["algorithms-short"]
    whole = interpret(Parts(NETWORK, {**SYSTEM, "all-reduce-implementation": ["oneRing"]}))
    assert whole.findings == ()


# ---------------------------------------------------------------------------------------------------
# Files


def files(folder: Path, network: str, system: object, **more) -> Files:
    (folder / "n.yml").write_text(network, encoding="utf-8")
    (folder / "s.json").write_text(
        system if isinstance(system, str) else json.dumps(system), encoding="utf-8"
    )
    return Files(folder / "s.json", folder / "n.yml", **more)


YAML = "# two dimensions\ntopology: [ Ring, Switch ]\nnpus_count: [ 2, 4 ]\nbandwidth: [ 200, 5e1 ]  # GB/s\nlatency: [ 50, 500.5 ]\n"


def test_files_in_the_references_own_form_are_read(tmp_path):
    """5e1 is a number to the reference's YAML reader, though YAML 1.1 calls it a text."""
    assert read(files(tmp_path, YAML, SYSTEM)).config == from_parts(NETWORK, SYSTEM)


def test_findings_and_errors_name_the_files_as_they_are_called(tmp_path):
    given = files(tmp_path, YAML.replace("200", "tbd"), SYSTEM)
    with pytest.raises(ConfigError, match=r"n\.yml: bandwidth\[0\] is 'tbd'"):
        read(given)
    result = read(files(tmp_path, YAML, {**SYSTEM, "boost-mode": 0}))
    assert result.findings[0].file == str(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("network", "system", "message"),
    [
        (YAML, "{", r"s\.json: not a JSON file"),
        (YAML, "[1]", r"s\.json: \[1\] is no table"),
        (YAML, '{"L": 1, "L": 2}', r"s\.json: L is there 2 times; allowed: once"),
        (YAML, "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), r"s\.json: not a JSON file"),
        ("topology: [", SYSTEM, r"n\.yml: not a YAML file"),
        ("", SYSTEM, r"n\.yml: the file is empty; allowed: keys and values"),
        ("# later\n", SYSTEM, r"n\.yml: the file is empty; allowed: keys and values"),
        (YAML, " \n", r"s\.json: the file is empty; allowed: keys and values"),
        ("just text", SYSTEM, r"n\.yml: 'just text' is no table"),
        (YAML + "latency: [1, 1]\n", SYSTEM, r"n\.yml: latency is there 2 times"),
        (YAML + "x: !!python/object/apply:os.system [true]\n", SYSTEM, r"n\.yml: not a YAML file"),
    ],
)
def test_files_that_are_something_else_are_refused(tmp_path, network, system, message):
    with pytest.raises(ConfigError, match=message):
        read(files(tmp_path, network, system))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("[" * 2_000, "not a YAML file"),
        ("a: " + "{b: " * 500, "not a YAML file"),
        ("x: " + "[" * 50_000, "not a YAML file"),
        # Newer Pythons show what is nested so deeply, older ones say that they cannot.
        ("- " * 1_000, r"(a value nested too deeply|\[{79}…) is no table"),
    ],
)
def test_what_is_nested_without_end_is_refused(tmp_path, network, message):
    with pytest.raises(ConfigError, match=rf"n\.yml: {message}"):
        read(files(tmp_path, network, SYSTEM))


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 900 + "]" * 900,
        "a: " + "{b: " * 600 + "1" + "}" * 600,
        "- " * 500 + "1",
        "? " * 500 + "1",
        "\n".join(" " * level + "a:" for level in range(500)),
        "\n".join(f"{'  ' * level}b:\n{'  ' * level}- a: 1" for level in range(300)),
    ],
)
def test_the_bound_of_nesting_is_no_less_than_what_is_nested(text):
    tree = yaml.compose(text, yaml.CSafeLoader)
    levels, waiting = 0, [(1, tree)]
    while waiting:
        level, node = waiting.pop()
        levels = max(levels, level)
        if not isinstance(node, yaml.ScalarNode):
            inner = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else [pair])]
            waiting += [(level + 1, part) for part in inner]
    assert 400 < levels <= _bound_levels(text)


@pytest.mark.parametrize("compiled", [True, False])
def test_both_parsers_of_yaml_say_the_same(tmp_path, monkeypatch, compiled):
    """Where PyYAML was built without its compiled parser, and where a file may be nested too deeply for it."""
    said = []
    for text in (YAML, YAML + "#" * MOST_COMPILED_LEVELS, YAML + "latency: [1, 1]\n", "topology: ["):
        if not compiled:
            monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
        try:
            said.append(read(files(tmp_path, text, SYSTEM)).config)
        except ConfigError as error:
            said.append(str(error).replace(str(tmp_path), ""))
    plain = from_parts(NETWORK, SYSTEM)
    assert said[:2] == [plain, plain]
    assert said[2].startswith("/n.yml: latency is there 2 times")
    # The place in the line is one that the plain parser names.
    assert said[3].startswith("/n.yml: not a YAML file: while parsing a flow node expected the node content")
    assert "line 1, column 12" in said[3]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read: No such file"):
        read(Files(tmp_path / "none.json", tmp_path / "none.yml"))


def test_a_group_path_with_the_word_empty_means_no_groups(tmp_path):
    """As in the reference, where the examples name a file that is not there."""
    given = files(tmp_path, YAML, SYSTEM, comm_groups=Path("empty"))
    assert read(given).config.groups == ()


def test_a_custom_algorithm_that_is_not_there_is_named(tmp_path):
    system = {**SYSTEM, "all-reduce-implementation-custom": ["none/here"]}
    with pytest.raises(
        ConfigError, match=r"all-reduce-implementation-custom is 'none/here'; allowed: the prefix"
    ):
        read(files(tmp_path, YAML, system))


def test_a_custom_algorithm_is_found_beside_the_system_file(tmp_path, sample_trace):
    write_trace(sample_trace, tmp_path, "mine")
    system = {**SYSTEM, "all-reduce-implementation-custom": "mine"}
    config = read(files(tmp_path, YAML, system)).config
    assert config.custom["all_reduce"].node_count == sample_trace.node_count


@pytest.mark.parametrize("words", [["x"], ["--a"], ["-a=1"], ["--=1"]])
def test_words_that_are_no_options_are_refused(words):
    with pytest.raises(ConfigError, match="command line: "):
        parse_options(words)


# ---------------------------------------------------------------------------------------------------
# Single values changed


def changed(*settings: str) -> SystemConfig:
    return interpret(with_settings(Parts(NETWORK, SYSTEM), settings)).config


def test_single_values_can_be_set():
    config = changed(
        "preferred-dataset-splits=8",
        "bandwidth[1]=25",
        "npus-count=[4, 8]",
        "all-reduce-implementation=direct,oneRing",
        "num-queues-per-dim=2",
        "endpoint_delay=5",
    )
    assert (config.splits, config.queues_per_dimension, config.endpoint_delay_ns) == (8, 2, 5)
    assert [dim.size for dim in config.topology.dims] == [4, 8]
    assert config.topology.dims[1].bytes_per_ns == 25 * 2**30 / 10**9
    assert [one.name for one in config.algorithms["all_reduce"]] == ["direct", "oneRing"]


def test_a_key_can_be_taken_out():
    assert changed("endpoint-delay=5", "endpoint-delay=").endpoint_delay_ns is None


def test_the_keys_of_the_shared_bus_differ_by_case():
    bus = changed("model-shared-bus=1", "g=2", "G=0.5", "L=3", "o=4").shared_bus
    assert bus == SharedBus(latency_ns=3, overhead_ns=4, gap_ns=2, gap_per_byte_ns=0.5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("splits", "is no setting; allowed: KEY=VALUE"),
        ("bandwith=3", "there is no such key\nThe nearest known key is 'bandwidth'"),
        ("bandwidth[2]=3", r"the system has 2 dimensions; allowed: bandwidth\[0\] to bandwidth\[1\]"),
        ("endpoint-delay[0]=3", "endpoint-delay is no list"),
        ("bandwidth[1]=-3", r"--set: bandwidth\[1\] is -3; allowed"),
        ("preferred-dataset-splits=0", "--set: preferred-dataset-splits is 0; allowed"),
        ("congestion=yes", "--set: congestion is 'yes'; allowed: aware, unaware"),
    ],
)
def test_a_wrong_setting_says_so(setting, message):
    with pytest.raises(ConfigError, match=message):
        changed(setting)


def test_loading_keeps_unknown_keys_for_the_message(tmp_path):
    parts = load(files(tmp_path, YAML, {**SYSTEM, "colour": "red"}))
    assert parts.system["colour"] == "red"
    assert build_parts(interpret(parts).config).system.get("colour") is None


@pytest.fixture
def sample_trace():
    """Two ranks with a node each."""
    return trace_of(
        [
            [node(0, "COMM_SEND", comm_dst=1, comm_size=8, comm_tag=0)],
            [node(0, "COMM_RECV", comm_src=0, comm_size=8, comm_tag=0)],
        ]
    )


def test_the_readme_reads_and_writes_a_system(tmp_path, monkeypatch):
    """What the README shows is what happens."""
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert found.attempted >= 5
    assert found.failed == 0
    assert sorted(path.name for path in (tmp_path / "astra").iterdir()) == ["network.yml", "system.json"]


def test_given_files_are_all_read(tmp_path):
    """Groups, memory, options and the network model are no less part of a system than the two main files."""
    config = read_config(*_written(tmp_path), comm_groups=tmp_path / "comm_group.json",
                         remote_memory=tmp_path / "remote_memory.json", options=["--num-queues-per-dim=2"],
                         congestion="aware").config  # fmt: skip
    assert config.groups == (CommGroup("1", (0, 1)),)
    assert config.remote_memory is not None
    assert config.remote_memory.latency_ns == 7
    assert (config.queues_per_dimension, config.congestion) == (2, "aware")


def _written(folder):
    tables = {
        "system.json": {
            "scheduling-policy": "LIFO",
            "collective-optimization": "baseline",
            "preferred-dataset-splits": 1,
        },
        "comm_group.json": {"1": [0, 1]},
        "remote_memory.json": {"memory-type": "MEMORY_POOL", "remote-mem-latency": 7, "remote-mem-bw": 3},
    }
    for name, table in tables.items():
        (folder / name).write_text(json.dumps(table), encoding="utf-8")
    (folder / "network.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n", encoding="utf-8"
    )
    return folder / "system.json", folder / "network.yml"
