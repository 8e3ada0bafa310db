package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import dev.imago.interop.Inbox;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Commands about producers of transactions; what they say is told with each message. */
final class Transactions {
    private final Handles<Asked> producers = new Handles<>();

    void register(Driver driver) {
        driver.on("transactions.start", this::start)
            .on("transactions.stop", this::stop)
            .on("transactions.send", this::send)
            .on("transactions.decide", this::decide)
            .on("transactions.checks", this::checks);
    }

    private Object start(Arguments with) throws Exception {
        Asked asked = new Asked(new TransactionMQProducer(with.text("group")));
        Versions.prepare(asked.producer, with.text("namesrv"), with.text("name"));
        asked.producer.setSendMsgTimeout(10_000);
        asked.producer.setTransactionListener(asked);
        asked.producer.start();
        producers.put(with.text("name"), asked);
        return true;
    }

    private Object stop(Arguments with) {
        producers.remove(with.text("name")).producer.shutdown();
        return true;
    }

    /** Sends the messages; `state` is what the local transaction of each of them says. */
    private Object send(Arguments with) throws Exception {
        Asked asked = producers.get(with.text("producer"));
        LocalTransactionState state = LocalTransactionState.valueOf(with.text("state"));
        List<Object> results = new ArrayList<>();
        for (Message message : Messages.readAll(with)) {
            TransactionSendResult result =
                asked.producer.sendMessageInTransaction(message, state);
            results.add(Messages.write(result));
        }
        return results;
    }

    /** What is answered from now on when the broker asks about messages with these keys. */
    private Object decide(Arguments with) {
        Asked asked = producers.get(with.text("producer"));
        asked.decisions.put(
            with.text("keys"), LocalTransactionState.valueOf(with.text("state")));
        return true;
    }

    private Object checks(Arguments with) throws Exception {
        Asked asked = producers.get(with.text("producer"));
        return asked.checks.take(with.count("count", 1), with.number("timeout_ms"));
    }

    private static final class Asked implements TransactionListener {
        private final TransactionMQProducer producer;
        private final Map<String, LocalTransactionState> decisions = new ConcurrentHashMap<>();
        private final Inbox checks = new Inbox();

        private Asked(TransactionMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.add(Messages.write(message));
            return decisions.getOrDefault(message.getKeys(), LocalTransactionState.UNKNOW);
        }
    }
}
