"""Models in memory."""

import difflib

from . import _probity
from ._errors import ProbityError, in_python
from ._progress import observer_of


def pairs(compute):
    """Keys of an option with their values, in the form of the command line."""
    if not isinstance(compute, dict):
        return [compute] if isinstance(compute, str) else list(compute)
    text = {True: "yes", False: "no"}
    given = {key.replace("_", "-"): value for key, value in compute.items() if value is not None}
    return [f"{key}={text[value] if isinstance(value, bool) else value}" for key, value in given.items()]


class Model:
    """A model in memory. Pass it as ``model=`` to any function, or query it with its methods.

    ``Model.load`` creates one.

    Examples
    --------
    >>> import probity
    >>> model = probity.Model.load("smollm2-135m-instruct", progress=False)
    >>> model.description["architecture"]
    'llama'
    """

    def __init__(self, native):
        self._native = native

    @classmethod
    def load(cls, model, *, progress=True, **options):
        """Loads a model: a known name that was downloaded before, a ``.gguf`` file, or a folder with safetensors.

        Parameters
        ----------
        model
            Name or path.
        **options
            Options such as ``precision``, ``device``, ``adapter`` and ``compute``, as in ``probity help compare``.

        Examples
        --------
        >>> import probity
        >>> probity.Model.load("smollm2-135m-instruct", precision="fast", compute={"threads": 1}, progress=False)
        <Model smollm2-135m-instruct: llama, ...>
        """
        known = [option["field"] for option in _probity.model_options()]
        for field in options:
            if field not in known:
                near = difflib.get_close_matches(field, known, n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"
                raise TypeError(f"Model.load() has no option {field!r}; {meant}")
        given = {field: value for field, value in options.items() if value is not None}
        if "compute" in given:
            given["compute"] = pairs(given["compute"])
        with observer_of(progress, "model") as observer:
            try:
                return cls(_probity.Model.load({"model": model, **given}, observer))
            except ProbityError as error:
                raise in_python(error, known) from None

    @property
    def description(self):
        """The name, architecture, weights, fingerprint, precision and device.

        Examples
        --------
        >>> import probity
        >>> probity.Model.load("smollm2-135m-instruct", progress=False).description["device"]
        'cpu'
        """
        return self._native.describe()

    def logprobs(self, requests, *, progress=False, **fields):
        """Exact log-probabilities of labels or of a text, under the full vocabulary.

        Parameters
        ----------
        requests
            A prompt, a request, or a list of either. A request is a dict with the fields of ``probity help logprobs``;
            ``id`` may be omitted.
        **fields
            Default fields of all requests, such as ``labels``, ``continuation`` and ``answer_prefix``.

        Returns
        -------
        An answer, or a list of answers in the order of the requests.

        Examples
        --------
        >>> import probity
        >>> model = probity.Model.load("smollm2-135m-instruct", progress=False)
        >>> answer = model.logprobs("The sky is", labels={"blue": [" blue"], "green": [" green"]})
        >>> answer["labels"]["blue"]["prob"] > answer["labels"]["green"]["prob"]
        True
        >>> 0 < answer["mass"] < 1
        True
        """
        return _asked(self._native.logprobs, requests, fields, progress)

    def generate(self, requests, *, progress=False, **fields):
        """Continues prompts, greedily unless ``temperature`` is set.

        Parameters
        ----------
        requests
            A prompt, a request, or a list of either. A request is a dict with the fields of ``probity help generate``;
            ``id`` may be omitted.
        **fields
            Default fields of all requests, such as ``max_tokens``, ``stop``, ``choice`` and ``schema``. Equal prompts
            with the same ``seed`` give the same text at any temperature.

        Examples
        --------
        >>> import probity
        >>> model = probity.Model.load("smollm2-135m-instruct", progress=False)
        >>> model.generate("One, two, three,", max_tokens=3)["text"]
        ' four, five'
        """
        return _asked(self._native.generate, requests, fields, progress)

    def __repr__(self):
        told = self.description
        return f"<Model {told['name']}: {told['architecture']}, {told['weights']}, {told['precision']} on {told['device']}>"


def _asked(ask, requests, fields, progress):
    is_one = isinstance(requests, (str, dict))
    if not is_one and not hasattr(requests, "__iter__"):
        raise TypeError(f"expected a prompt, a request, or a list of either, found {type(requests).__name__}")
    requests = [requests] if is_one else list(requests)
    if requests and all(isinstance(request, dict) and request.keys() == {"role", "content"} for request in requests):
        raise TypeError("a chat is one request: {'messages': [...]}")
    lines = []
    for place, request in enumerate(requests):
        request = {"prompt": request} if isinstance(request, str) else request
        if not isinstance(request, dict):
            raise TypeError(f"request {place} is neither a prompt nor a dict: {type(request).__name__}")
        lines.append({"id": str(place), **fields, **request})
    if not lines:
        return []
    with observer_of(progress, "asking") as observer:
        answers = ask(lines, observer)
    return answers[0] if is_one else answers
