"""The default pipeline: what runs at a level, and what it makes of real operators."""

from __future__ import annotations

from test_passes import network
from tracing import log_function

from relaybuild.ir.structural import structural_equal
from relaybuild.passes.infra import PassContext
from relaybuild.passes.instruments import ImmutabilityCheck, PassTimingInstrument, VerifyEach
from relaybuild.passes.pipelines import default_pipeline


def names_at(level: int, **settings: list[str]) -> list[str]:
    timing = PassTimingInstrument()
    with PassContext(opt_level=level, instruments=[timing], **settings):
        default_pipeline()(log_function())
    return [child.name for child in timing.timings[0].children]


def test_a_level_decides_which_passes_run() -> None:
    everything = [child.info for child in default_pipeline().passes]
    for level in range(4):
        assert names_at(level) == [info.name for info in everything if info.opt_level <= level]
    assert names_at(3)[0] == "InferType"
    assert names_at(3).count("FoldConstant") == 2


def test_names_decide_too() -> None:
    assert "FoldScaleAxis" in names_at(0, required_pass=["FoldScaleAxis"])
    assert "FoldConstant" not in names_at(3, disabled_pass=["FoldConstant"])


def test_what_goes_in_stays_and_what_comes_out_is_well_formed() -> None:
    with PassContext(opt_level=3, instruments=[ImmutabilityCheck(), VerifyEach("typed")]):
        default_pipeline()(network(0))


def test_a_second_run_changes_nothing() -> None:
    with PassContext(opt_level=3):
        once = default_pipeline()(network(0))
        assert structural_equal(default_pipeline()(once), once)


def test_rewrites_stop_the_pipeline_anywhere() -> None:
    with PassContext(opt_level=3) as free:
        whole = default_pipeline()(network(0))
    total = free.rewrites.asked
    assert total > 5
    seen = set()
    for limit in range(total + 1):
        with PassContext(opt_level=3, max_rewrites=limit, instruments=[VerifyEach("typed")]) as context:
            result = default_pipeline()(network(0))
        seen.add(str(result))
        assert context.rewrites.allowed == limit
    assert len(seen) > total // 2
    assert structural_equal(result, whole)
