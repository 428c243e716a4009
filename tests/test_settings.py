"""Settings with their units: what people read, what is exact, and what counts as a difference."""

from __future__ import annotations

from studio.sim.parts import Parts
from studio.sim.setting_values import (
    SettingValue,
    collect_settings,
    convert_settings,
    describe_differences,
    describe_values,
    differ,
)


def network(unit: str, *rates: float) -> Parts:
    return Parts({"bandwidth-unit": unit, "bandwidth": list(rates), "latency": [500]}, {})


def test_numbers_have_units_and_the_exact_value_beside_them():
    found = collect_settings(
        Parts({"bandwidth": [50, 0.123456789], "latency": [500, 1500]}, {"G": 2, "peak-perf": 989})
    )
    assert found["bandwidth"].text == "50 × 0.123457 GiB/s"
    exact = 0.123456789 * 2**30 / 10**9
    assert found["bandwidth"].exact == f"50 × 0.123456789 GiB/s = 53.6870912 × {exact} bytes per ns"
    assert (found["latency"].text, found["latency"].exact) == ("500 ns × 1.50 µs", "500 × 1500 ns")
    assert (found["G"].text, found["peak-perf"].text) == ("2 ns/B", "989 TFLOP/s")
    assert convert_settings(found)["latency_ns"] == [500, 1500]
    assert convert_settings(found)["mode"] == "compatible"


def test_what_differs_is_found_on_exact_values():
    """Two rates that read alike are told exactly; one rate in two units is no difference."""
    near = network("GB/s", 50.0000001), network("GB/s", 50)
    assert describe_differences(*near) == ["bandwidth 50.0000001 GB/s = 50.0000001 bytes per ns"]
    assert describe_differences(network("GB/s", 2**30 / 10**9), network("GiB/s", 1)) == [
        "bandwidth-unit GB/s"
    ]
    groups = [Parts({}, {}, groups={"1": ranks}) for ranks in ([0, 1], [0, 2])]
    assert describe_differences(*groups) == ['comm groups {"1": [0, 1]}']
    assert not differ([SettingValue(1), SettingValue(1)])
    assert differ([SettingValue(0), None])
    sizes = [SettingValue(size, "bytes") for size in (48 * 2**20, 48 * 2**20 + 1)]
    assert [text for text, _ in describe_values(sizes)] == ["50331648 bytes", "50331649 bytes"]


def test_what_is_no_number_stays_as_it_is():
    odd = Parts({"bandwidth": "fast", "latency": ["1", None]}, {"extended": {"compute-speeds": {"3": 0.9}}})
    found = collect_settings(odd)
    assert found["bandwidth"].text == "fast"
    assert found["latency"].text == "1 × None"
    assert found["compute-speeds"].text == "3: 0.9"
    assert found["bandwidth"].base == "fast"
