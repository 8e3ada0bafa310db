"""Tables: folders of Parquet files with commits, and what these say."""
