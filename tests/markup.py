"""What a browser would make of a page, for tests that need none."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """What a browser would load, run and show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown.append(data)

    def loads(self) -> list[str]:
        wanted = ("src", "href", "data", "action", "poster", "srcset")
        return [value or "" for _, attrs in self.tags for name, value in attrs.items() if name in wanted]
