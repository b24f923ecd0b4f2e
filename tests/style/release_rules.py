"""The rules for a release, of tidy.py's form."""

_TOOL = "tools/dev/changelog"


def changes_have_form(tree):
    """The files in changelog/unreleased, as tools/dev/changelog reads them."""
    tool = {"__name__": "changelog"}
    exec(compile(tree.get(_TOOL) or "", _TOOL, "exec"), tool)
    findings = []
    for path, text in tree.items():
        if path == "changelog/TEMPLATE" or path.startswith(
            "changelog/unreleased/"
        ):
            try:
                tool["parse_change"](text or "")
            except ValueError as problem:
                findings.append("%s:1: %s" % (path, problem))
    return findings


RULES = (changes_have_form,)
