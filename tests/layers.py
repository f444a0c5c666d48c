"""Which tests are quick, slow by nature, or long; what is named in no list is in the layer between.

`make test-fast` runs FAST, `make test` all but SLOW and LONG, `make test-slow` SLOW, `make test-long` LONG. CI runs of
`make test` what a change reaches (tests/reach.py), the night all four. A new test needs no line here.
"""

from typing import Literal, get_args

Layer = Literal["fast", "slow", "long"]
LAYERS: tuple[Layer, ...] = get_args(Layer)

FAST = (
    "tests/properties/",
    "tests/properties/test_mutations.py::test_a_missing_value_fails",
    "tests/reference/test_control.py",
    "tests/reference/test_draft_",
    "tests/reference/test_probe",
    "tests/reference/test_sampling.py",
    "tests/reference/test_sampling_plans.py",
    "tests/reference/test_states.py",
    "tests/report/test_parts.py",
    "tests/report/test_text.py",
    "tests/test_draws.py",
    "tests/test_errors.py",
    "tests/test_imports.py",
    "tests/test_layers.py",
    "tests/test_structure.py",
    "tests/test_tiny.py",
)
"""Values, contracts, diagnosis and the reference's probe models: no engine process is started, nothing is forked."""

BETWEEN = (
    # Many scenarios are drawn, or every value of every draft is changed.
    "tests/properties/test_drafts.py::test_counts_see_rows_that_found_nothing_beside_others_under_a_controller",
    "tests/properties/test_drafts.py::test_variants_hold_for_every_draft",
    "tests/properties/test_draft_strategies.py::test_a_draft_is_a_function",
    "tests/properties/test_draft_strategies.py::test_no_steps",
    "tests/properties/test_draft_strategies.py::test_step_counts_are_cut",
    "tests/properties/test_feature_rows.py::test_every_fact_of_it",
    "tests/properties/test_fit.py",
    "tests/properties/test_mutations.py",
    "tests/properties/test_quantities.py",
    "tests/properties/test_strategies.py",
)
"""What takes more than its share of a minute."""

WORKFLOWS = (
    "tests/faults/test_baseline.py",
    "tests/faults/test_kept.py",
    "tests/faults/test_mutation.py",
    "tests/faults/test_names_of_faults.py",
    "tests/faults/test_on_nodes.py",
    "tests/faults/test_run.py",
    "tests/faults/test_served.py",
    "tests/fuzz/test_history.py",
    "tests/harness/test_audit.py",
    "tests/harness/test_fp8.py",
    "tests/harness/test_kernel_check.py",
    "tests/harness/test_ranks.py",
    "tests/harness/test_side_by_side.py",
    "tests/harness/test_slower.py",
    "tests/harness/test_workers.py",
    "tests/subjects/test_openai.py",
    "tests/subjects/test_remote.py",
    "tests/subjects/test_transformers.py",
    "tests/tracer/test_check.py",
    "tests/tracer/test_drafts.py",
    "tests/tracer/test_loops.py",
    "tests/tracer/test_oracle.py",
    "tests/tracer/test_run.py",
    "tests/tracer/test_sensitivity.py",
    "tests/tracer/test_transformers.py",
)
"""Whole workflows, which start processes, patched copies, servers or tracers, one after another.

They run where a file of their own room was changed, or they were, and every night.
"""

SLOW = (
    *WORKFLOWS,
    # Lists are calibrated: many seeds, every pair and form of every draft, what Hypothesis finds and shrinks.
    "tests/kernels/test_lists.py::test_calls_of_a_size_are_of_consequence",
    "tests/kernels/test_lists.py::test_so_does_a_list_of_another_seed",
    "tests/kernels/test_lists.py::test_so_it_is_whatever_the_seed",
    "tests/kernels/test_lists.py::test_what_is_wrong_beyond_a_block_is_caught",
    "tests/properties/test_draft_strategies.py",
    "tests/properties/test_quantities.py::test_a_boundary_stands_where_it_was_asked_for",
    "tests/properties/test_strategies.py::test_every_pair_of_one_draft_meets_soon",
    "tests/properties/test_strategies.py::test_hypothesis_finds_",
    "tests/properties/test_strategies.py::test_shrinking_ends_at_one_short_eager_request",
    "tests/properties/test_strategies.py::test_three_of_four_scenarios_of_a_list_have_the_features",
    # Distributions are told apart by up to 100,000 rounds.
    "tests/kernels/test_samplers.py::test_the_engine_raises_no_alarm_in_100000_rounds_whatever_the_drafts",
    "tests/kernels/test_samplers.py::test_wrong_samplers_are_found_by_the_definition_within_a_few_rounds",
    "tests/kernels/test_samplers.py::test_wrong_samplers_are_found_by_the_distribution_of_texts_alone",
    "tests/reference/test_sampling.py::test_so_they_do_with_other_weights",
    # The reference is held to itself, to every small tree, and to wrong logits, beside real models.
    "tests/reference/test_audit_batched.py",
    "tests/reference/test_real_draws.py",
    "tests/reference/test_real_logprobs.py",
    "tests/reference/test_sampled_trees.py",
    "tests/reference/test_text.py",
    # An audit, a comparison, a step of a workflow, sessions of pytest: whole commands, one after another.
    "tests/cli/test_audit.py",
    "tests/cli/test_audit_lookup.py",
    "tests/cli/test_compare.py",
    "tests/cli/test_kernels.py::test_a_module_that_leaves_when_it_is_imported_ends_no_command_in_green",
    "tests/test_action.py",
    "tests/test_packaging.py::test_transformers_is_not_taken_in_by_our_folder",
    "tests/test_plugin.py::test_a_campaign_goes_by_time_and_workers_by_seeds",
    "tests/test_plugin.py::test_scenarios_of_ranks_run_here_or_say_what_is_missing",
    "tests/test_plugin.py::test_several_workers_share_the_scenarios",
    # A model is trained; mutants are judged; a check of few features.
    "tests/cli/test_selected.py::test_states_of_trees_are_kept_where_they_were_computed",
    "tests/faults/test_mutation.py::test_a_score_that_was_cut_goes_on_with_the_others",
    "tests/faults/test_mutation.py::test_mutants_are_noticed_and_survive",
    "tests/test_train_tiny.py",
    # Triton compiles or interprets every kernel.
    "tests/engine/test_narrow_linear.py::test_interpreted_equals_twin",
    "tests/kernels/test_chunks.py",
    "tests/kernels/test_compile.py",
    "tests/kernels/test_interpreted.py",
    # A browser is started.
    "tests/report/test_browser.py",
    # Results are made anew by what takes an hour.
    "tests/test_results.py",
    # Every command that README and docs show is run.
    "tests/test_docs.py::test_commands_end_without_a_failure",
    "tests/test_skill.py::test_commands_do_what_it_says",
    "tests/test_docs.py::test_python_runs",
    "tests/test_docs.py::test_the_failure_shown_is_the_one_that_is_printed",
    # A Ray cluster is started, and campaigns run in it.
    "tests/fuzz/test_ray.py",
    # pip installs packages, or looks for one that is nowhere.
    "tests/fuzz/test_packs.py::test_release_that_is_nowhere",
    "tests/fuzz/test_release_environments.py",
    # Campaigns find and shrink a fault.
    "tests/cli/test_fuzz.py::test_a_fault_is_one_finding_and_the_campaign_goes_on",
    "tests/cli/test_shrink.py::test_a_fault_is_shrunk_in_workers",
    # Workers are started, one after another.
    "tests/cli/test_kernel_faults.py::test_a_kernel_that_asks_what_is_not_there_never_passes",
    "tests/cli/test_kernel_faults.py::test_faults_are_found_or_told_apart",
    "tests/cli/test_kernels.py::test_a_crash_and_a_hang_are_verdicts",
    "tests/cli/test_kernels.py::test_the_kernels_of_the_example_hold",
    "tests/cli/test_kernels.py::test_verdicts_of_kernels_of_ones_own",
    # Releases of a package are compared.
    "tests/cli/test_release_wheels.py",
    # Benchmarks.
    "tests/benchmarks/",
    # Every kind of checkpoint goes through the command, and every draft of one through the whole reference.
    "tests/cli/test_model.py",
    "tests/faults/test_checkpoints.py::test_a_fault_meets_the_users_checkpoint",
    "tests/reference/test_checkpoint_drafts.py",
    # Every draft of every tracer.
    "tests/tracer/test_drafts.py::test_so_they_are_of_every_pair",
    # The engine is bisected over histories of up to 64 commits.
    "tests/cli/test_history.py::test_an_engine_of_this_layout",
    "tests/fuzz/test_history.py::test_the_commit_that_brought_a_fault_in_is_named",
    # Every step of the workflows is run.
    "tests/test_workflows.py::test_a_workflow_runs_as_it_stands",
)

LONG = (
    # Clusters and campaigns are killed and go on, beside whole ones.
    "tests/fuzz/test_pairs.py",
    "tests/fuzz/test_ray.py::test_faults_and_mutants_are_judged_as_on_this_machine",
    "tests/fuzz/test_ray.py::test_kills_of_workers_and_of_the_head_change_nothing",
    "tests/benchmarks/test_campaigns.py",
    # A hybrid checkpoint goes through the command with each of its drafts.
    "tests/cli/test_model.py::test_a_hybrid_passes",
    "tests/cli/test_model.py::test_a_prefix_cache_serves_pages_of_a_checkpoint",
    "tests/cli/test_model.py::test_all_means_every_draft_that_the_directories_allow",
    # What is built is installed, and runs every first command.
    "tests/test_wheel.py::test_commands_of_the_wheel_do_what_they_should_elsewhere",
    # Every beginning of texts of 2000 tokens, in three precisions.
    "tests/tracer/test_run.py::test_of_every_family_the_true_mistake_is_named_first",
    "tests/tracer/test_transformers.py::test_tokens_of_thousands_of_long_prompts_are_the_oracles",
)
"""What takes half a minute and more: before a release, and after changes of what it is about."""


def layer(nodeid: str) -> Layer | None:
    """Return the layer of a test by its id; the longest prefix decides."""
    layers: dict[str, Layer | None] = dict.fromkeys(FAST, "fast") | dict.fromkeys(BETWEEN)
    layers |= dict.fromkeys(SLOW, "slow") | dict.fromkeys(LONG, "long")
    fitting = [prefix for prefix in layers if nodeid.startswith(prefix)]
    return layers[max(fitting, key=len)] if fitting else None


def has(name: Layer, file: str) -> bool:
    """Return whether a file, by its path from the root, may hold tests of a layer."""
    prefixes = {"fast": FAST, "slow": SLOW, "long": LONG}[name]
    return layer(file) == name or any(prefix.startswith(f"{file}::") for prefix in prefixes)
