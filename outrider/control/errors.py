"""What becomes of a job when something goes wrong: whether another run may fare better."""

from outrider.control.messages import RunnerError
from outrider.model.errors import OutriderError, StoreError

MAX_MESSAGE = 1_000


def judged(error: Exception) -> RunnerError:
    """Judge an error: what is wrong with the order stays wrong, all else may pass.

    >>> from outrider.model.errors import InvalidInput, StoreUnavailable
    >>> judged(InvalidInput("no")).transient, judged(StoreUnavailable("away")).transient, judged(KeyError()).transient
    (False, True, True)
    """
    is_permanent = isinstance(error, OutriderError) and not isinstance(error, StoreError)
    message = str(error) if isinstance(error, OutriderError) else f"{type(error).__name__}: {error}"
    return RunnerError(kind=kind_of(error), message=message[:MAX_MESSAGE].replace("\0", ""), transient=not is_permanent)


def kind_of(error: Exception) -> str:
    """Name an error in one word.

    >>> from outrider.model.errors import StoreUnavailable
    >>> kind_of(StoreUnavailable("away"))
    'store_unavailable'
    """
    name = type(error).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
