"""The broker: sessions, processors, services, cluster."""
