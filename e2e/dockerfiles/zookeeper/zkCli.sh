#!/bin/bash
# zkCli.sh -server HOST:PORT: as that of ZooKeeper's distribution.
exec java -Xmx48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
  -Dlog4j2.configurationFile=/opt/zookeeper/conf/log4j2.properties \
  -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.ZooKeeperMain "$@"
