"""Everything that can go wrong, as types: what happened, where, and the way out.

PipelineError
|- Terminal            never retried: the same input fails again
|  |- BadRequest       what was asked for cannot be understood or makes no sense
|  |- BadModel         a model file, its data or its labels are not usable
|  |- Unsupported      this backend cannot run this model or recipe
|  |- MissingExtra     a library is not installed
|  |- WrongDevice      we got another device, provider or precision than we asked for
|  |- BadArtifact      a stored file is not what its digest says, or a record was edited
|  |- Stale            a word was given on a decision that is not this one any more
|  |- NoQuote          no price for this target on this day
|  `- ChildFailed      a measuring or building process crashed, hung or ran out of memory
`- Transient           the network, a server or a lock; stages retry these
"""


class PipelineError(Exception):
    """Base of all errors Crossgrade raises on purpose.

    Args:
        what: what went wrong and where, one sentence.
        fix: what would be right, one sentence; shown after the first.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what.rstrip('.')}. {fix}".strip() if fix else what)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.fix)


class Terminal(PipelineError):
    """The same input fails again: never retried."""


class Transient(PipelineError):
    """The network, a server or a lock: worth another try."""


class BadRequest(Terminal):
    """What was asked for cannot be understood or makes no sense."""


class BadModel(Terminal):
    """A model file, its data or its labels are not usable."""


class Unsupported(Terminal):
    """This backend cannot run this model or recipe."""


class MissingExtra(Terminal):
    """A library is not installed."""


class WrongDevice(Terminal):
    """We got another device, provider or precision than we asked for."""


class BadArtifact(Terminal):
    """A stored file is not what its digest says, or a record was edited."""


class Stale(Terminal):
    """A word was given on a decision that is not this one any more."""


class NoQuote(Terminal):
    """No price for this target on this day."""


class ChildFailed(Terminal):
    """A measuring or building process crashed, hung or ran out of memory."""
