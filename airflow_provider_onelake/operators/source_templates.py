"""Templates inside a source, for every operator that takes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_onelake.sources import Source

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class SourceTemplates(BaseOperator):
    """An operator one of whose templated fields may be a source."""

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render templates, also those inside a source, into a copy: one source may serve many tasks and runs.

        :param content: of a field.
        :param context: of the running task.
        :param jinja_env: to render with.
        :param seen_oids: what must not be rendered.
        :returns: the rendered value.
        """
        render = super().render_template
        if isinstance(content, Source):
            if id(content) in (seen_oids or ()):
                return content
            return content.rendered(lambda value: render(value, context, jinja_env))
        return render(content, context, jinja_env, seen_oids)
