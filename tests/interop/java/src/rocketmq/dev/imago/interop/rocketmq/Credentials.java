package dev.imago.interop.rocketmq;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Whose requests those of the clients are: as the process's properties say. */
final class Credentials {
    private Credentials() {
    }

    /** The hook that signs requests; null where no user is named. */
    static RPCHook hook() {
        String user = System.getProperty("interop.user");
        if (user == null) {
            return null;
        }
        return new AclClientRPCHook(
            new SessionCredentials(user, System.getProperty("interop.password")));
    }
}
