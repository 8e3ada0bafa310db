package dev.imago.interop.metaqbroker;

import com.taobao.metamorphosis.Message;
import com.taobao.metamorphosis.MessageAccessor;
import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.MetaClientConfig;
import com.taobao.metamorphosis.client.MetaMessageSessionFactory;
import com.taobao.metamorphosis.client.consumer.ConsumerConfig;
import com.taobao.metamorphosis.client.consumer.FetchRequest;
import com.taobao.metamorphosis.client.consumer.InnerConsumer;
import com.taobao.metamorphosis.client.consumer.MessageConsumer;
import com.taobao.metamorphosis.client.consumer.TopicPartitionRegInfo;
import com.taobao.metamorphosis.cluster.Broker;
import com.taobao.metamorphosis.cluster.Partition;
import com.taobao.metamorphosis.consumer.MessageIterator;
import com.taobao.metamorphosis.network.PutCommand;
import com.taobao.metamorphosis.server.assembly.MetaMorphosisBroker;
import com.taobao.metamorphosis.server.store.MessageStore;
import com.taobao.metamorphosis.server.utils.MetaConfig;
import com.taobao.metamorphosis.server.utils.SlaveConfig;
import com.taobao.metamorphosis.utils.MessageUtils;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * An asynchronous slave: the original broker registered as one, fed by the original client's
 * requests, its store written by the original's append. Arguments: server.ini, number of the slave,
 * address of the master, a topic, its partitions.
 */
public final class AsyncSlave {
    private static final int FETCH_BYTES = 1024 * 1024;
    private static final long DELAY_MS = 50;
    private static final long APPEND_SECONDS_MAX = 10;

    private final MetaMorphosisBroker broker;
    private final MessageConsumer consumer;
    private final String topic;
    private final String group;
    private final Broker master;

    private AsyncSlave(MetaMorphosisBroker broker, MessageConsumer consumer, Broker master, String topic) {
        this.broker = broker;
        this.consumer = consumer;
        this.master = master;
        this.topic = topic;
        this.group = consumer.getConsumerConfig().getGroup();
    }

    public static void main(String[] given) throws Exception {
        MetaConfig config = new MetaConfig();
        config.loadFromFile(given[0]);
        SlaveConfig slave = new SlaveConfig(Integer.parseInt(given[1]));
        slave.setSlaveGroup("meta-slave-group_" + given[1]);
        config.setSlaveConfig(slave);
        MetaMorphosisBroker broker = new MetaMorphosisBroker(config);
        broker.getBrokerZooKeeper().resetBrokerIdPath();
        broker.start();
        MetaClientConfig client = new MetaClientConfig();
        client.setServerUrl(given[2]);
        MessageSessionFactory factory = new MetaMessageSessionFactory(client);
        MessageConsumer consumer = factory.createConsumer(new ConsumerConfig(slave.getSlaveGroup()));
        Broker master = new Broker(config.getBrokerId(), given[2]);
        AsyncSlave copying = new AsyncSlave(broker, consumer, master, given[3]);
        for (int number = 0; number < Integer.parseInt(given[4]); number++) {
            Partition partition = new Partition(config.getBrokerId(), number);
            new Thread(() -> copying.follow(partition)).start();
        }
    }

    private void follow(Partition partition) {
        while (true) {
            try {
                if (!copy(partition)) {
                    Thread.sleep(DELAY_MS);
                }
            } catch (Exception error) {
                System.err.println("slave: " + partition + ": " + error);
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(DELAY_MS * 10);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Ask for what follows the local end; false: there is nothing. */
    private boolean copy(Partition partition) throws Exception {
        MessageStore store = broker.getStoreManager().getMessageStore(topic, partition.getPartition());
        if (store == null) {
            TopicPartitionRegInfo begin = new TopicPartitionRegInfo(topic, partition, 0);
            long first = ((InnerConsumer) consumer).offset(new FetchRequest(master, 0, begin, FETCH_BYTES));
            store = broker.getStoreManager().getOrCreateMessageStore(topic, partition.getPartition(), first);
        }
        long end = store.getMinOffset() + store.getSizeInBytes();
        MessageIterator found = consumer.get(topic, partition, end, FETCH_BYTES);
        boolean any = false;
        while (found != null && found.hasNext()) {
            append(store, partition.getPartition(), found.next());
            any = true;
        }
        return any;
    }

    private void append(MessageStore store, int partition, Message message) throws Exception {
        broker.getBrokerZooKeeper().registerTopicInZk(topic, false);
        byte[] body = MessageUtils.encodePayload(message);
        PutCommand put = new PutCommand(
            topic, partition, body, null, MessageAccessor.getFlag(message), 0);
        CountDownLatch appended = new CountDownLatch(1);
        store.append(message.getId(), put, location -> appended.countDown());
        if (!appended.await(APPEND_SECONDS_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not appended");
        }
    }
}
