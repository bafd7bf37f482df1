"""The words of a sweep: lists, ranges, grids, names, and every way to get them wrong."""

from __future__ import annotations

import pytest

from retrograd.core.errors import UsageError
from retrograd.experiments.ablation import find_ablation, parse_ablation
from retrograd.experiments.budget import Budget, Inspection, Need, make_budget, parse_memory
from retrograd.experiments.definition import Definition
from retrograd.experiments.search import default_setting
from retrograd.experiments.space import Range, parse_space


def test_lists_ranges_and_single_values_are_told_apart():
    space = parse_space(
        ["agent=dqn,ppo", "env=cartpole", "wandb.tags=[a,b]", "preset.lr=log(1e-5,1e-2)", "agent.n_step=int(1,5)"]
    )
    assert space.fixed == {"env": "cartpole", "wandb.tags": "[a,b]"}
    assert space.lists == {"agent": ("dqn", "ppo")}
    assert space.ranges == {
        "preset.lr": Range(1e-5, 1e-2, log=True),
        "agent.n_step": Range(1, 5, whole=True),
    }


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b", ("a", "b")),
        ("choice(a,b)", ("a", "b")),
        ("[1,2],[3]", ("[1,2]", "[3]")),
        ("'x,y',z", ("'x,y'", "z")),
        ("null,1", ("null", "1")),
    ],
)
def test_commas_inside_brackets_and_quotes_do_not_split(text, values):
    assert parse_space([f"k={text}"]).lists == {"k": values}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["preset.lr"], "not key=value"),
        (["a=1", "a=2"], "given twice"),
        (["a=lgo(1,2)"], "Did you mean 'log'"),
        (["a=log(0,1)"], "begins above 0"),
        (["a=log(2,1)"], "low end must be below"),
        (["a=uniform(1)"], "uniform(low,high)"),
        (["a=int(1.5,3)"], "whole numbers"),
        (["a=uniform(x,3)"], "are numbers"),
        (["a=1,,2"], "empty value"),
        (["a=1,1"], "lists 1 twice"),
        (["a=[1,2"], "is missing"),
        (["a=1],2"], "closes nothing"),
    ],
)
def test_a_mistake_is_named(words, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse_space(words)


def test_a_grid_has_every_combination_once_with_names_of_its_own():
    definition = Definition(("agent=dqn,ppo", "env=cartpole", "seed=0,1,2"))
    runs = definition.grid_runs()
    assert len(runs) == len({run.name for run in runs}) == len({run.overrides for run in runs}) == 6
    assert runs[1].name == "001_dqn_seed1"
    assert runs[1].overrides == ("agent=dqn", "env=cartpole", "seed=1")
    assert (runs[1].label, runs[1].seed) == ("dqn", "1")


def test_the_same_command_has_the_same_folder_and_another_one_another():
    first = Definition(("agent=dqn,ppo", "env=cartpole"))
    assert first.default_name == Definition(("agent=dqn,ppo", "env=cartpole")).default_name
    assert first.default_name.startswith("dqn-ppo_cartpole_")
    assert first.default_name != Definition(("agent=dqn,ppo", "env=cartpole", "seed=1")).default_name
    assert first.default_name != Definition(("agent=dqn,ppo", "env=cartpole"), metric="auc").default_name


def test_a_definition_comes_back_from_its_file(tmp_path):
    ablation = {"title": "t", "variants": {"a": {"overrides": ["agent=dqn"], "label": "a"}}}
    for definition in (
        Definition(("preset.lr=log(1e-5,1e-2)", "seed=0,1"), search="bayes", trials=7, metric="auc", prune=True),
        Definition(("env=pong",), ablation=ablation),
    ):
        definition.save(tmp_path)
        assert Definition.load(tmp_path) == definition


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("preset.lr=log(1e-5,1e-2)",), {}, "a grid cannot run through"),
        (("agent=dqn,ppo",), {"trials": 3}, "belong to --search"),
        (("env=pong",), {"search": "bayes", "trials": 3}, "something to vary"),
        (("preset.lr=log(1e-5,1e-2)",), {"search": "bayes"}, "number of trials"),
        (("agent=dqn", "run_name=x"), {}, "run_name"),
        (("agent=dqn",), {"metric": "finale"}, "Did you mean 'final'"),
        (
            ("agent.double=true",),
            {"ablation": {"variants": {"a": {"overrides": ["agent.double=false"]}}}},
            "beside them",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(words, options, message):
    with pytest.raises(UsageError, match=message):
        Definition(words, **options)


def test_the_default_setting_is_the_first_trial_only_inside_the_ranges():
    definition = Definition(
        ("preset.lr=log(1e-5,1e-2)", "agent.epochs=int(1,10)", "agent.value_clip=true,false", "seed=0,1"),
        search="bayes",
        trials=1,
    )
    config = {"preset.lr": 2.5e-4, "agent.epochs": 4, "agent.value_clip": True}
    assert default_setting(definition, config.get) == {
        "preset.lr": 2.5e-4,
        "agent.epochs": 4,
        "agent.value_clip": "true",
    }
    assert default_setting(definition, {**config, "agent.epochs": 40}.get) is None


def test_a_trial_is_run_with_every_seed():
    definition = Definition(("agent=ppo", "preset.lr=log(1e-5,1e-2)", "seed=3,5"), search="random", trials=4)
    runs = definition.trial_runs(2, {"preset.lr": "0.001"})
    assert [run.name for run in runs] == ["trial002_seed3", "trial002_seed5"]
    assert runs[1].overrides == ("agent=ppo", "preset.lr=0.001", "seed=5")
    assert runs[0].label == "lr=0.001"


def inspection(memory_bytes=0, **config) -> Inspection:
    hardware = {"torch_threads": None, "env_threads": None, **config.pop("hardware", {})}
    return Inspection({"hardware": hardware, "agent": config.pop("agent", {})}, memory_bytes)


def test_runs_never_take_more_than_the_budget():
    budget = Budget(cores=4, memory_bytes=10, jobs=2)
    assert budget.threads == 2
    assert budget.need(inspection(6)) == Need(2, 6)
    assert budget.fits(Need(2, 6), [])
    assert not budget.fits(Need(2, 6), [Need(2, 6)])  # memory
    assert budget.fits(Need(2, 4), [Need(2, 6)])
    assert not budget.fits(Need(3, 1), [Need(2, 1)])  # cores
    assert not budget.fits(Need(1, 1), [Need(1, 1), Need(1, 1)])  # jobs
    assert budget.need(inspection(agent={"workers": 3})).cores == 4  # all there are, but not more


def test_a_run_that_never_fits_is_refused():
    budget = Budget(cores=2, memory_bytes=10**9, jobs=1)
    with pytest.raises(UsageError, match=r"needs 2\.0 GB"):
        budget.check("a", inspection(2 * 10**9))
    with pytest.raises(UsageError, match="wants 4 threads"):
        budget.check("a", inspection(hardware={"torch_threads": 4}))
    with pytest.raises(UsageError, match="starve"):
        make_budget(cores=2, jobs=3)


@pytest.mark.parametrize(("text", "size"), [("8GB", 8 * 10**9), ("1.5g", 15 * 10**8), ("800 MB", 8 * 10**8), ("7", 7)])
def test_memory_sizes(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "GB", "8 potatoes", "-1GB", "0"])
def test_no_memory_sizes(text):
    with pytest.raises(UsageError, match="such as 8GB"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "variants"),
        ({"variants": {"a": {"overrides": ["agent=dqn"]}}, "seeds": 3}, "unknown key seeds"),
        ({"variants": {"a b": {"overrides": []}}}, "a name is letters"),
        ({"variants": {"a": {"override": []}}}, "Did you mean 'overrides'"),
        ({"variants": {"a": {"overrides": ["agent=dqn,ppo"]}}}, "several values"),
        ({"variants": {"a": {"overrides": ["x"]}}}, "list of key=value"),
        ({"variants": {"abc": {"overrides": []}, "b": {"overrides": [], "against": "abd", "adds": "x"}}}, "'abc'"),
        ({"variants": {"a": {"overrides": [], "against": "a"}}}, "exactly one of"),
    ],
)
def test_an_ablation_file_with_a_mistake_is_refused(content, message):
    with pytest.raises(UsageError, match=message):
        parse_ablation(content, "mine.yaml")


def test_an_ablation_is_found_by_name_the_users_first_or_by_path(tmp_path):
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    for folder, title in ((shipped, "ours"), (own, "mine")):
        folder.mkdir()
        (folder / "x.yaml").write_text(f"title: {title}\nvariants: {{a: {{overrides: [agent=dqn]}}}}\n")
    assert find_ablation("x", [own, shipped]).title == "mine"
    assert find_ablation(str(shipped / "x.yaml"), []).title == "ours"
    with pytest.raises(UsageError, match="there are x"):
        find_ablation("y", [own, shipped])
