"""The Access page: what the viewer may do, who else may do what and by which grant, and the product as others see it.

Rule: it grants nothing; grants are in the settings, where they are reviewed.
"""

from dataclasses import replace

import streamlit as st

from app import errors, navigation, services, state, viewer
from app.access.text import OPERATIONS, ROLES, answer_text, role_rows
from app.ui import dialogs, lists
from app.ui.view.words import markdown_safe, sentence
from backend.access import LOOK_AS, STREAM, Access, permission

_LOOK = "look_as"


def access() -> None:
    if not navigation.has_roles():
        st.info(
            "**No grants are set: whoever may act may do everything.** `[[auth.grants]]` in `weir.toml` gives roles.",
            icon=":material/key:",
        )
        return
    dialogs.dialog(_LOOK, _look_dialog, title=lambda _: "Look as somebody else?", width="small")
    who = viewer.actor()
    groups = f", in {', '.join(sorted(who.groups))}" if who.groups else ""
    st.markdown(f"You are **{markdown_safe(who.looks_as or who.name)}**{markdown_safe(groups)}.")
    effect, icon = "Shows every page as they see it, reading only; kept in the audit trail", ":material/visibility:"
    blocked = viewer.why_not(LOOK_AS, "")
    dialogs.button(_LOOK, _LOOK, "Look as…", key=_LOOK, icon=icon, effect=effect, blocked=blocked)
    _roles()
    _why()


def _roles() -> None:
    """Every grant, narrowed by person and by what it is for."""
    st.subheader("Who may do what", anchor=False)
    with st.container(horizontal=True, key="role_filters"):
        who = st.text_input("Person or group", key=state.SEARCH, bind="query-params", width=260)
        on = st.text_input("Table or stream", key=state.ROLE_ON, bind="query-params", width=260)
    rows = role_rows(services.settings().auth, who=who or "", on=(on or "").strip())
    lists.show(ROLES, rows, key="roles", alt="Who has which role on which tables and streams")


def _why() -> None:
    """Which grant allows or denies one operation."""
    st.subheader("Why may somebody, or not?", anchor=False)
    who = viewer.actor()
    with st.container(horizontal=True, vertical_alignment="bottom", key="why"):
        name = st.text_input("Person", key="why_name", placeholder=who.looks_as or who.name, width=220)
        groups = st.text_area("Groups, one a line", key="why_groups", height=68, width=200, disabled=not name)
        operation = st.selectbox("Operation", OPERATIONS, index=None, key="why_operation", width=200)
        resource = (st.text_input("Table or stream", key="why_resource", width=220) or "").removeprefix(STREAM).strip()
    if operation and resource:
        asked = replace(who, refused="") if who.looks_as else who
        if name:
            asked = services.settings().auth.actor(name.strip(), (groups or "").splitlines())
        found = permission(asked, operation, resource)
        text = answer_text(asked.looks_as or asked.name, operation, resource, found)
        icon = ":material/check:" if found.allowed else ":material/block:"
        st.info(markdown_safe(sentence(text)), icon=icon)


def _look_dialog(_: str) -> None:
    with errors.boundary():
        st.markdown("You see what they see and act on nothing. *Back to yourself* stands on every page.")

        def boxes() -> None:
            st.text_input("Their name", key="look_as_name", max_chars=200)
            st.text_area("Their groups, one a line", key="look_as_groups", height=68)

        reason = dialogs.reason(_LOOK, label="Look", boxes=boxes)
        name, groups = (str(st.session_state[f"look_as_{field}"] or "").strip() for field in ("name", "groups"))
        if reason and not name:
            st.error("A name is needed.", icon=":material/edit:")
        elif reason:
            given = {"groups": ", ".join(groups.splitlines())} if groups else {}
            access = Access(viewer.actor(), name, LOOK_AS, reason, given)
            services.store().admit(access, now=services.now(), outcome="reading only")
            viewer.look_as(name, groups.splitlines())
            st.rerun()
