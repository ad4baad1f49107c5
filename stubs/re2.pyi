# As much of google-re2 as polymq uses; the package brings no types.
class Options:
    max_mem: int
    never_capture: bool
    log_errors: bool

class error(Exception): ...  # noqa: N801 - its name
class Match: ...

class Regexp:
    def search(self, text: str) -> Match | None: ...

def compile(pattern: str, options: Options | None = None) -> Regexp: ...  # noqa: A001 - its name
