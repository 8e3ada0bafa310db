#!/bin/bash
# What a container of this image runs.
#   driver [options of spark-submit] FILE.py ARGUMENTS…   the driver of an application
#   executor                                             what a driver starts in its executors' pods
#   anything else                                        as it stands
# Spark's own cluster mode starts pods with the first two.
set -euo pipefail

# A user id without a name makes Java and Hadoop fail.
if ! getent passwd "$(id -u)" > /dev/null && [ -w /etc/passwd ]; then
  echo "spark:x:$(id -u):$(id -g):spark:${SPARK_HOME}:/bin/false" >> /etc/passwd
fi
unset LD_PRELOAD

driver() {
  local options=()
  while [ $# -gt 0 ] && [ "${1#--}" != "$1" ]; do
    case "$1" in
      --class) ;; # the runner of Python files, which we do not need
      --verbose | --supervise) options+=("$1"); shift; continue ;;
      *) options+=("$1" "$2") ;;
    esac
    shift 2
  done
  [ $# -gt 0 ] || { echo "entrypoint: driver: no application" >&2; exit 2; }
  local file=${1#local://}
  shift
  case "$file" in
    *.py) ;;
    *) echo "entrypoint: driver: $file is no Python file" >&2; exit 2 ;;
  esac
  [ -z "${SPARK_DRIVER_BIND_ADDRESS:-}" ] || options+=(--conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}")
  # Python is the container's process and the JVM its child, not the other way round: so SIGTERM
  # reaches the application, which stops in order.
  local quoted
  printf -v quoted '%q ' "${options[@]}" --deploy-mode client
  export PYSPARK_SUBMIT_ARGS="${quoted}pyspark-shell"
  exec tini -- "${PYSPARK_PYTHON}" "$file" "$@"
}

executor() {
  local options=() name
  while read -r name; do
    options+=("${!name}")
  done < <(compgen -v | grep -E '^SPARK_JAVA_OPT_[0-9]+$' | sort -t_ -k4 -n)
  exec tini -- "${JAVA_HOME}/bin/java" "${options[@]}" \
    "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
    -cp "${SPARK_CONF_DIR}:${SPARK_HOME}/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "${SPARK_DRIVER_URL}" --executor-id "${SPARK_EXECUTOR_ID}" \
    --cores "${SPARK_EXECUTOR_CORES}" --app-id "${SPARK_APPLICATION_ID}" \
    --hostname "${SPARK_EXECUTOR_POD_IP}" --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
    --podName "${SPARK_EXECUTOR_POD_NAME}"
}

case "${1:-}" in
  driver) shift; driver "$@" ;;
  executor) executor ;;
  *) exec tini -- "$@" ;;
esac
