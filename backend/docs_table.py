"""A table of a page of docs that is written from the source it describes."""


def with_table(page: str, subject: str, table: str) -> str:
    """A page with the table between the marks of its subject anew."""
    head, mark, rest = page.partition(f"<!-- {subject}:")
    comment, _, tail = rest.partition(f"<!-- end of {subject} -->")
    return f"{head}{mark}{comment.partition('-->')[0]}-->\n\n{table}\n\n<!-- end of {subject} -->{tail}"
