"""A broker process: builds all parts, starts them in order, stops them in reverse."""

from imago_broker.app.broker import Broker
from imago_broker.app.process import main, run

__all__ = ["Broker", "main", "run"]
