"""The three ways a user's work can go wrong, each one sentence long."""


class AsapError(Exception):
    """Base of every error that the command line prints as one sentence (exit status 2)."""


class InputError(AsapError, ValueError):
    """An input breaks a rule. The message names the input, the rule and the fix."""


class DeviceLost(AsapError, RuntimeError):
    """A device process died during a run. The message names the device."""


class Stalled(AsapError, TimeoutError):
    """A bounded wait ran out. The message says who waited, for whom and how long."""
