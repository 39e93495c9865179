"""``@task.onelake_write``: a Python function whose data frame is one writer's rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk import BaseHook
from airflow.sdk.bases.decorator import DecoratedOperator, KeywordParameters, TaskDecorator, task_decorator_factory

from airflow_provider_onelake.engines.base import ONLY_CONNECT
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.operators._roll import OUR_LABEL
from airflow_provider_onelake.operators._terms import check_rendered, terminal_errors_fail
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FunctionSource

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

SPARK = "spark"
"""The parameter in which a function gets its Spark session."""


class OneLakeWriteDecoratedOperator(DecoratedOperator, OneLakeWriteOperator):
    """Write the rows of the data frame that a function returns; see :func:`onelake_write_task`.

    :param python_callable: the function, its parameter ``spark`` hidden.
    :param op_args: positional arguments of the author (templated).
    :param op_kwargs: arguments of the author by name (templated).
    :param view: the name by which ``where`` and ``steps`` read the data frame. Default: ``source``.
    """

    custom_operator_name = "@task.onelake_write"
    # The arguments first: the other templates may name them. The source is the function itself.
    template_fields: Sequence[str] = (
        "op_args",
        "op_kwargs",
        *(field for field in OneLakeWriteOperator.template_fields if field != "source"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **{key: value for key, value in OneLakeWriteOperator.template_fields_renderers.items() if key != "source"},
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        view: str = "source",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            source=FunctionSource(_with_spark(python_callable), view=view),
            **kwargs,
        )

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render a template, in which ``op_kwargs`` are the author's arguments by name.

        :param content: of a field.
        :param context: of the running task.
        :param jinja_env: to render with.
        :param seen_oids: what must not be rendered.
        :returns: the rendered value.
        """
        named: Any = {**context, "op_kwargs": self._arguments()}
        return super().render_template(content, named, jinja_env, seen_oids)

    def execute(self, context: Context) -> Any:
        """Stage, and publish.

        :param context: of the running task.
        :returns: what happened, for XCom.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        with terminal_errors_fail():
            self.check_partition_key()
            kind = BaseHook.get_connection(self.spark_conn_id).conn_type
            if kind != "spark_connect":
                raise InvalidWriteError(f"The connection {self.spark_conn_id} is of the type {kind!r}. {ONLY_CONNECT}")
            arguments = self._arguments()
            for name, value in arguments.items():
                if isinstance(value, str):
                    check_rendered(name, value)
        everything = KeywordParameters.determine(self.python_callable, (), {**context, **arguments}).unpacking()
        given = {name: value for name, value in everything.items() if name not in arguments}
        self.source = FunctionSource(_with_spark(self.python_callable), arguments, given, self.source.view)
        return super().execute(context)

    def _arguments(self) -> dict[str, Any]:
        """Return the author's arguments by name, also those that were given by position."""
        names = inspect.signature(self.python_callable).parameters
        return {**dict(zip(names, self.op_args, strict=False)), **self.op_kwargs}


def onelake_write_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a writer of a function that returns a Spark data frame: ``@task.onelake_write``.

    The function runs in the task, on Spark Connect, and gets the session of this writer as ``spark``; its other
    parameters are given as to any ``@task``: by the call, by ``expand``, or by Airflow (``partition_key``, ``ds``,
    ``params``). What it returns is staged and published as an ``OneLakeWriteOperator``'s rows are, and it takes the
    same parameters, but for ``source``; ``where`` and ``steps`` read the data frame. Templates may name the arguments:
    ``writer="vendor-{{ op_kwargs.vendor }}"``.

    It builds a data frame, and does nothing else: it is called anew whenever Spark is given work, such as to create the
    table and then to stage. A clear compares its code and arguments with those of before
    (:mod:`~airflow_provider_onelake.reading.code_fingerprint`); so arguments are text, numbers, dates, paths and
    collections of them.

    :param python_callable: the function, with a parameter ``spark``.
    :param kwargs: of the :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator`, and ``view``, the
        name by which ``where`` and ``steps`` read the data frame. ``writer`` defaults to the task's id; a mapped task
        needs one, or a ``map_index_template`` that says it.
    :returns: the decorator, or the decorated function.
    :raises InvalidWriteError: the function has no parameter ``spark``, or takes arguments that have no name.
    """
    # Airflow asks the mapped task, which knows what is written here, not the operator's defaults.
    kwargs.setdefault("map_index_template", OUR_LABEL)

    def decorate(function: Callable[..., Any]) -> TaskDecorator:
        return task_decorator_factory(
            _without_spark(function),
            multiple_outputs=False,
            decorated_operator_class=OneLakeWriteDecoratedOperator,
            **kwargs,
        )

    return cast("TaskDecorator", decorate) if python_callable is None else decorate(python_callable)


def _without_spark(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose signature is what its caller gives: Spark's session comes from the engine."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    nameless = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    if SPARK not in signature.parameters or any(parameter.kind in nameless for parameter in parameters):
        raise InvalidWriteError(
            f"{function.__qualname__}{signature}: a writer's function gets its Spark session as `spark`, and every "
            "argument by name: def rows(spark, vendor): …"
        )

    @functools.wraps(function)
    def hidden(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    hidden.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[parameter for parameter in parameters if parameter.name != SPARK]
    )
    return hidden


def _with_spark(hidden: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind :func:`_without_spark`, with the decorators that its author put on it."""
    function: Callable[..., Any] = getattr(hidden, "__wrapped__", hidden)
    return function
