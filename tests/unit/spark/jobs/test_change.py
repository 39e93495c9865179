"""A round's statement in SQL."""

from __future__ import annotations

from airflow_provider_onelake.spark.jobs.change import statement


def test_the_authors_texts_stand_on_lines_of_their_own() -> None:
    job = {"shadow_uri": "file:///a lake/t", "where": "id = 3 -- a comment", "assignments": {}}
    assert statement(job) == "DELETE FROM delta.`file:///a lake/t` WHERE (\nid = 3 -- a comment\n)"


def test_columns_are_quoted_unless_their_author_has_done_so() -> None:
    sets = {"a": "1 -- one", "b.c": "2", "`d.e`": "3"}
    job = {"shadow_uri": "/t", "where": "true", "assignments": sets}
    parts = ["UPDATE delta.`/t` SET", " `a` = 1 -- one", ",", "`b`.`c` = 2", ",", "`d.e` = 3", " WHERE (", "true", ")"]
    assert statement(job).split("\n") == parts


def test_a_merge_stands_between_its_source_and_its_clauses() -> None:
    job = {
        "shadow_uri": "/t",
        "source_uri": "/s",
        "where": "target.`id` = source.`id`",
        "when": ["MATCHED THEN DELETE -- all", "NOT MATCHED THEN INSERT *"],
    }
    assert statement(job).split("\n") == [
        "MERGE INTO delta.`/t` AS target USING onelake__source AS source ON (",
        "target.`id` = source.`id`",
        ")",
        "WHEN MATCHED THEN DELETE -- all",
        "WHEN NOT MATCHED THEN INSERT *",
        "",
    ]
