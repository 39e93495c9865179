"""``@task.onelake_write``: a Python function that returns one writer's rows as a data frame."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import KeywordParameters
from airflow.sdk import BaseHook
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.spark import engine_class
from airflow_provider_onelake.operators._parameters import check_rendered, terminal_errors_fail
from airflow_provider_onelake.operators._writers_of_run import OUR_LABEL
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FunctionSource
from airflow_provider_onelake.spark.base import ONLY_CONNECT

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

SPARK = "spark"
"""The parameter in which a function gets its Spark session."""

_PLANNED = "planned"


class OneLakeWriteDecoratedOperator(DecoratedOperator, OneLakeWriteOperator):
    """Write the rows of the data frame that a function returns; see :func:`onelake_write_task`.

    :param python_callable: the function, without the parameter ``spark`` in its signature.
    :param op_args: the author's arguments by position. Default: none (templated).
    :param op_kwargs: the author's arguments by name. Default: none (templated).
    :param view: the name by which ``where`` and ``steps`` read the data frame. Default: ``source``. Not templated.
    """

    custom_operator_name = "@task.onelake_write"
    # Render the arguments first, because other templates may name them. The source is the function, so it has none.
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
        if op_kwargs and _PLANNED in op_kwargs and _PLANNED not in inspect.signature(python_callable).parameters:
            # A plan of new files gives it to the writer, not to the function.
            kwargs[_PLANNED] = op_kwargs[_PLANNED]
            op_kwargs = {name: value for name, value in op_kwargs.items() if name != _PLANNED}
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

        :param content: a field's value.
        :param context: of the running task.
        :param jinja_env: the Jinja environment. Default: the DAG's.
        :param seen_oids: ids of objects that are not rendered again.
        :returns: the rendered value.
        """
        named: Any = {**context, "op_kwargs": self._arguments()}
        return super().render_template(content, named, jinja_env, seen_oids)

    def execute(self, context: Context) -> Any:
        """Stage the rows, and publish them.

        :param context: of the running task.
        :returns: the result for XCom, as ``OneLakeWriteOperator`` describes it.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        with terminal_errors_fail(self.hook):
            self.check_partition_key()
            connection = BaseHook.get_connection(self.spark_conn_id)
            if not engine_class(connection).takes_functions:
                raise InvalidWriteError(
                    f"The connection {connection.conn_id} is of the type {connection.conn_type!r}. {ONLY_CONNECT}"
                )
            arguments = self._arguments()
            for name, value in arguments.items():
                if isinstance(value, str):
                    check_rendered(name, value)
        everything = KeywordParameters.determine(self.python_callable, (), {**context, **arguments}).unpacking()
        given = {name: value for name, value in everything.items() if name not in arguments}
        self.source = FunctionSource(_with_spark(self.python_callable), arguments, given, self.source.view)
        return super().execute(context)

    def _arguments(self) -> dict[str, Any]:
        """Return all arguments of the author by name, including those given by position."""
        names = inspect.signature(self.python_callable).parameters
        return {**dict(zip(names, self.op_args, strict=False)), **self.op_kwargs}


def onelake_write_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a writer of a function that returns a Spark data frame: ``@task.onelake_write``.

    The function runs in the task, on Spark Connect, and gets the writer's session as ``spark``. Its other parameters
    are given as for any ``@task``: by the call, by ``expand``, or by Airflow (``partition_key``, ``ds``, ``params``).
    The rows that it returns are staged and published like those of a ``OneLakeWriteOperator``. The decorator takes the
    parameters of that operator, except ``source``; ``where`` and ``steps`` read the data frame. Templates may name the
    arguments: ``writer="vendor-{{ op_kwargs.vendor }}"``.

    The function must only build a data frame, because it is called for each Spark job: to create the table, and then to
    stage. A clear compares the function's code and arguments with those before
    (:mod:`~airflow_provider_onelake.reading.code_fingerprint`). So arguments must be text, numbers, dates, paths or
    collections of them.

    :param python_callable: the function, with a parameter ``spark``.
    :param kwargs: the parameters of :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator`, templated
        as there, and ``view``, the name by which ``where`` and ``steps`` read the data frame (default: ``source``). The
        default of ``writer`` is the task's id. A mapped task needs ``writer``, or a ``map_index_template`` that gives
        the key.
    :returns: the decorator, or the decorated function.
    :raises InvalidWriteError: the function has no parameter ``spark``, or takes arguments without a name.
    """
    # Airflow reads this from the mapped task, which does not know the defaults of the operator's constructor.
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
    """Return the function without ``spark`` in its signature, because the engine gives the session."""
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
    """Return the function that :func:`_without_spark` wraps, with the author's own decorators."""
    function: Callable[..., Any] = getattr(hidden, "__wrapped__", hidden)
    return function
