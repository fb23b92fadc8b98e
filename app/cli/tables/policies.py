"""`weir policies`: what each policy did to each table of its pattern, what it does next, and why it waits.

Rule: asks nothing of a host; what a host would decide is decided here once more, by the same rules.
"""

from app import services
from app.cli.output import Shapes, only, print_json, print_table, say
from app.ui.view.acts import LABELS, last_run_text, next_run_text
from backend.maintenance.policies import PolicyPlan, PolicyPlans

_SHAPES: Shapes = {
    PolicyPlan: only(
        "kind", "table", "state", "why_not", "next_at",
        empty_is_null=("why_not", "last_error"),
        policy="text", uri="ref.uri", figures="previewed.figures", failures="failures", last_job_id="runs.last.job_id",
        last_state="runs.last.state", last_at="runs.last.requested_at", last_error="runs.last.error",
    ),
}  # fmt: skip


def everything(*, as_json: bool) -> int:
    settings, now = services.settings(), services.now()
    plans = PolicyPlans(settings, services.lake()).plans(services.existing_store(), now=now)
    if as_json:
        print_json(plans, _SHAPES)
        return 0
    if not plans:
        say("No policies: `[[policies]]` in weir.toml says what hosts do to tables by themselves.")
        return 0
    print_table(
        ("table", "act", "last", "next", "why it waits", "policy"),
        (
            (
                plan.table or "–",
                LABELS[plan.kind],
                last_run_text(plan, now),
                next_run_text(plan, now),
                plan.why_not,
                plan.text,
            )
            for plan in plans
        ),
    )
    return 0
