#!/bin/bash
# zkServer.sh start-foreground CONFIG: as that of ZooKeeper's distribution.
set -eu
[ "${1:-}" = start-foreground ] || { echo "usage: zkServer.sh start-foreground CONFIG" >&2; exit 2; }
exec java -Xmx128m -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
  -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir=/tmp \
  -Dlog4j2.configurationFile=/opt/zookeeper/conf/log4j2.properties \
  -Dzookeeper.preAllocSize=4096 -Dzookeeper.jmx.log4j.disable=true ${JVMFLAGS:-} \
  -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.server.quorum.QuorumPeerMain "${2:-/conf/zoo.cfg}"
