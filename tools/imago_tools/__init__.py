"""What `make docs` writes from the code: settings of brokers, files of the chart, install.yaml."""
