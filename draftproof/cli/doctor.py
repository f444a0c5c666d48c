"""`draftproof doctor`: what this machine can check, or what a subject is and lacks."""

from __future__ import annotations

import os

from draftproof.cli import drafts, inputs, repeated, screen, subjects
from draftproof.cli.groups import with_option_groups
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT


@with_option_groups(under_test=subjects.without_fault, target=drafts.given)
def doctor(
    under_test: subjects.UnderTest,
    target: drafts.DraftOptions,
    determinism: repeated.Determinism = False,
    seed: repeated.MaybeSeed = None,
    examples: repeated.Examples = None,
    debug: subjects.Debug = False,
    json: inputs.Json = None,
) -> None:
    """Show versions and devices, what can be checked, what is missing.

    With --subject instead: versions of that engine where it runs, how much it shows, the hooks that this release has
    and lacks, and the channels that each missing one costs. With --determinism, whether it does the same again.
    """
    if determinism:
        count = examples or repeated.REPEATED_EXAMPLES
        repeated.determinism(under_test._replace(debug=debug), target, seed or 0, count, json)
    options = drafts.chosen(target)
    given = {**options.arguments, "draft": options.draft, "seed": seed, "examples": examples, "debug": debug}
    if named := next((name for name, value in given.items() if value), None):
        raise inputs.InputError(
            f"invalid --{named.replace('_', '-')} {given[named]}: expected only together with --determinism"
        )
    if under_test.choice != BUILT_IN_SUBJECT:
        _of_subject(under_test, json)
        return
    from draftproof.harness.machine import diagnose

    found = diagnose()
    versions = {"python": found.python, **found.versions}
    screen.show(("what", "version"), [(name, version or "not installed") for name, version in versions.items()])
    lanes = [(lane.name, "yes" if lane.runs else "no", lane.checks, lane.missing) for lane in found.lanes]
    screen.show(("lane", "runs here", "checks", "to do"), lanes)
    screen.line(f"devices: {', '.join(found.devices)} ({found.machine}, {os.cpu_count()} cores)")
    inputs.write_json(json, found)


def _of_subject(under_test: subjects.UnderTest, json: inputs.Json) -> None:
    from draftproof.harness.remote import RemoteStartError
    from draftproof.harness.subject_report import SubjectReport, inspect_subject
    from draftproof.harness.subject_run import closing
    from draftproof.subjects.making import EngineMissingError

    try:
        with closing(under_test.made()) as subject:
            found = inspect_subject(subject)
    except (EngineMissingError, RemoteStartError) as error:
        lacks = error.name if isinstance(error, EngineMissingError) else error.lacks
        if lacks:
            name = under_test.choice.name
            screen.show(("what", "version"), [(lacks, "not installed")])
            screen.line(f"{name}: level not installed")
            inputs.write_json(json, SubjectReport(name=name, level="not installed", versions={lacks: ""}))
        raise
    screen.show(("what", "version"), [(name, version or "not installed") for name, version in found.versions.items()])
    hooks = [(hook.name, "yes" if hook.found else "NO", ", ".join(hook.channels), hook.where) for hook in found.hooks]
    if hooks:
        screen.show(("hook", "found", "carries", "where"), hooks)
    if found.missing:
        screen.line(f"not reported for lack of a hook: {', '.join(found.missing)}")
    assert found.limits is not None
    drafts = ", ".join(found.limits.drafts)
    level = "unknown until check --model DIR" if found.level == "unknown" else found.level
    screen.line(f"{found.name}: level {level}; drafts: {drafts}; models: {', '.join(found.limits.models)}")
    inputs.write_json(json, found)
