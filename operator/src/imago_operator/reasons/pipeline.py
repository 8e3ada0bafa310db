"""Conditions of an ImagoPipeline."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons.model import BY_ITSELF, Reason, own_mistake, refused_by_kubernetes

_of = partial(Reason, "ImagoPipeline")
_LOOK: Final = "`kubectl get imp NAME -o yaml` has the run's last words in `status.runs.lastError`."
_ACCOUNT: Final = "Apply manifests/spark/rbac.yaml in the pipeline's namespace."
_ENGINE: Final = "Install kubeflow's spark-operator, or set `engine: Auto`."
_ROLES: Final = "Install the chart with `pipelines.enabled`;"
_USER: Final = "`kubectl describe imu` of the ImagoUser that the message names."
_LIMIT: Final = f"Find out why it ends so often: {_LOOK} Any change of the spec starts it at once."

READY: Final = (
    _of("Ready", "Running", "The driver of the run named runs."),
    _of("Ready", "Scheduled", "Nothing runs; the next run comes at its time."),
    _of("Ready", "Completed", "It ended by itself and will not run again."),
    _of("Ready", "Starting", "A run was allowed and created; its driver does not run yet.",
        "The message names what it waits for; `kubectl describe pod` says more."),
    _of("Ready", "Stopping", "A driver of an earlier run ends its batch.", BY_ITSELF),
    _of("Ready", "Restarting", "It ended and will run again after a pause.", BY_ITSELF),
    _of("Ready", "Resuming", "It was paused and continues with a new run.", BY_ITSELF),
    _of("Ready", "SpecChanged", "The run with the spec before is stopped first.", BY_ITSELF),
    _of("Ready", "Paused", "`spec.paused` is true: nothing runs, the checkpoint stays.",
        "Set it to false to go on."),
    _of("Ready", "Annotation", "The annotation imago.dev/pause-reconciliation is set.",
        "Remove it when you are done."),
    _of("Ready", "ClusterNotReady", "No broker answers that could allow a run; a running one"
                                    " continues.",
        "See the conditions of the ImagoCluster."),
    _of("Ready", "ClusterNotFound", "There is no such ImagoCluster, or it is going.",
        "Correct `clusterRef`, or make the cluster."),
    _of("Ready", "NamespaceNotAllowed", "The cluster does not let this namespace in.",
        "Change `allowedNamespaces` of the cluster."),
    _of("Ready", "BrokerRejected", "Brokers refused the epoch of the next run.", BY_ITSELF),
    _of("Ready", "RunFailed", "The last run failed.", _LOOK),
    _of("Ready", "RestartLimit", "It was started too often in an hour.", _LIMIT),
    _of("Ready", "SparkOperatorMissing",
        "`engine: SparkOperator`, and the Spark operator is absent.", _ENGINE),
    _of("Ready", "AccountMissing", "The driver's ServiceAccount is not there.", _ACCOUNT),
    _of("Ready", "UserNotReady", "The ImagoUser that a run is to be is not ready.", _USER),
    _of("Ready", "UserNotOurs",
        "An ImagoUser with the name of the pipeline's own is there, and is not the pipeline's.",
        "Name it in `spec.user.name` if the pipeline is to use it, or remove it."),
    _of("Ready", "InvalidSpec", "The spec is refused; a run goes on with the one before.",
        "Correct the field that the message names."),
)  # fmt: skip
OTHERS: Final = (
    _of("Reconciling", "Starting", "A run is on its way.", BY_ITSELF),
    _of("Reconciling", "Stopping", "The run before is on its way out.", BY_ITSELF),
    _of("Reconciling", "Restarting", "The next run follows.", BY_ITSELF),
    _of("Reconciling", "Resuming", "The next run follows.", BY_ITSELF),
    _of("Reconciling", "SpecChanged", "The next run follows.", BY_ITSELF),
    _of("Reconciling", "UserNotReady", "A run follows once brokers have the user.", BY_ITSELF),
    _of("Degraded", "RunFailed", "The last run failed, and another follows.", _LOOK),
    _of("Paused", "Paused", "No run of it is left."),
    _of("Stalled", "RunFailed", "It failed, and `restart.policy` is Never.", _LOOK),
    _of("Stalled", "RestartLimit", "It goes on when the hour is over.", _LIMIT),
    _of("Stalled", "SparkOperatorMissing", "Nothing can run it.", _ENGINE),
    _of("Stalled", "UserNotOurs", "No run can have credentials.",
        "Name it in `spec.user.name` if the pipeline is to use it, or remove it."),
    _of("Stalled", "AccountMissing", "No pod of a driver could be made.", _ACCOUNT),
    *refused_by_kubernetes("ImagoPipeline", "Ready", "Stalled", cure=_ROLES),
    own_mistake("ImagoPipeline"),
)  # fmt: skip
REASONS: Final = (*READY, *OTHERS)
