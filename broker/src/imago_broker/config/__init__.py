"""Settings of a broker process: typed, frozen, checked; read from TOML and the environment."""

from imago_broker.config.loading import load
from imago_broker.config.settings import BrokerConfig, ConfigError

__all__ = ["BrokerConfig", "ConfigError", "load"]
