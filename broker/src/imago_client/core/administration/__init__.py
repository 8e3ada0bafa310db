"""Operations of administration: topics, groups, pipelines."""
