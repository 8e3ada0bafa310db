package dev.imago.interop.metaqbroker;

import com.taobao.gecko.service.Connection;
import com.taobao.gecko.service.RequestProcessor;
import com.taobao.gecko.service.exception.NotifyRemotingException;
import com.taobao.metamorphosis.network.BooleanCommand;
import com.taobao.metamorphosis.network.HttpStatus;
import com.taobao.metamorphosis.network.SyncCommand;
import com.taobao.metamorphosis.server.assembly.MetaMorphosisBroker;
import com.taobao.metamorphosis.server.store.MessageStore;
import com.taobao.metamorphosis.server.utils.MetaConfig;
import java.util.concurrent.ThreadPoolExecutor;

/**
 * The slave of a synchronous pair: the original broker out of ZooKeeper, which stores what comes by
 * the original's command `sync` under the id that it brings. Argument: server.ini.
 */
public final class GregorSlave {
    private GregorSlave() {}

    public static void main(String[] given) throws Exception {
        MetaConfig config = new MetaConfig();
        config.loadFromFile(given[0]);
        config.getZkConfig().zkEnable = false;
        MetaMorphosisBroker broker = new MetaMorphosisBroker(config);
        broker.getRemotingServer().registerProcessor(SyncCommand.class, new RequestProcessor<>() {
            @Override
            public void handleRequest(SyncCommand sync, Connection connection) {
                store(broker, sync, connection);
            }

            @Override
            public ThreadPoolExecutor getExecutor() {
                return null;
            }
        });
        broker.start();
    }

    private static void store(MetaMorphosisBroker broker, SyncCommand sync, Connection connection) {
        try {
            int partition = sync.getPartition();
            MessageStore store =
                broker.getStoreManager().getOrCreateMessageStore(sync.getTopic(), partition);
            store.append(sync.getMsgId(), sync, location -> {
                String text = sync.getMsgId() + " " + partition + " " + location.getOffset();
                answer(connection, HttpStatus.Success, text, sync.getOpaque());
            });
        } catch (Exception error) {
            answer(connection, HttpStatus.InternalServerError, String.valueOf(error), sync.getOpaque());
        }
    }

    private static void answer(Connection connection, int code, String text, Integer opaque) {
        try {
            connection.response(new BooleanCommand(code, text, opaque));
        } catch (NotifyRemotingException error) {
            System.err.println("gregor: " + error);
        }
    }
}
